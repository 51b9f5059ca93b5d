"use strict";
// Everything of a trace reaches the page through textContent or as a number: nothing of it is ever markup.
const PLACES = {R: ["granted", "granted tokens"], r: ["running", "running"], w: ["waiting", "waiting"],
  p: ["preempted", "waiting after a preemption"], D: ["demoted", "preempted in this step"], s: ["swapped", "swapped out"],
  l: ["loading", "loading"], x: ["limbo", "in between"]};
const CELLS = {"-1": "free", "-2": "findable", "-3": "reserved", "-4": "shared", "-5": "pinned or fenced"};
const ROW = 15, HEAD = 18, NAME = 96, MOST = 40;

const element = (tag, text, parent) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
};
const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const hue = n => `hsl(${(n * 137.5) % 360} 55% ${matchMedia("(prefers-color-scheme:dark)").matches ? 45 : 62}%)`;
const cell = n => n >= 0 ? hue(n) : n === -1 ? colour("bg") : n === -2 ? colour("running") :
  n === -3 ? colour("line") : n === -4 ? colour("swapped") : colour("demoted");

function film(box) {
  const data = JSON.parse(document.getElementById(box.dataset.film).textContent);
  const columns = data.columns, scroll = box.querySelector(".scroll"), canvas = scroll.querySelector("canvas");
  const panel = box.querySelector(".step"), jump = box.querySelector(".jump"), legend = box.querySelector(".legend");
  const width = columns.length > 400 ? 9 : 16;
  const broken = columns.findIndex(c => c.b);
  const rows = [...new Set(columns.flatMap(c => c.l))].sort((a, b) => a - b);
  const at = new Map(rows.map((r, i) => [r, i]));
  let chosen = broken >= 0 ? broken : columns.length - 1;
  const size = scroll.querySelector(".size");
  size.style.width = NAME + columns.length * width + "px";
  size.style.height = HEAD + rows.length * ROW + "px";
  const high = Math.min(416, HEAD + rows.length * ROW + 16);
  scroll.style.height = high + "px";

  const name = r => data.requests[r];
  const names = list => list.slice(0, MOST).map(name).join(", ") + (list.length > MOST ? ", …" : "") || "nobody";

  function draw() {
    const wide = scroll.clientWidth, tall = scroll.clientHeight, ratio = devicePixelRatio || 1;
    canvas.width = wide * ratio; canvas.height = tall * ratio;
    canvas.style.width = wide + "px"; canvas.style.height = tall + "px";
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.fillStyle = colour("bg"); g.fillRect(0, 0, wide, tall);
    g.font = "11px ui-monospace, monospace"; g.textBaseline = "middle";
    const left = scroll.scrollLeft, top = scroll.scrollTop, fill = {};
    for (const key in PLACES) fill[key] = colour(PLACES[key][0]);
    const dim = colour("dim"), fg = colour("fg"), line = colour("line");
    const from = Math.max(0, Math.floor(left / width)), upto = Math.min(columns.length, from + Math.ceil(wide / width) + 1);
    g.save(); g.beginPath(); g.rect(NAME, 0, wide, tall); g.clip();
    for (let i = from; i < upto; i++) {
      const c = columns[i], x = NAME + i * width - left;
      if (c.k) { g.fillStyle = line; g.fillRect(x + width / 2 - 1, HEAD, 2, tall); continue; }
      if (c.b) { g.fillStyle = colour("mark"); g.fillRect(x, 0, width, tall); }
      c.l.forEach((r, j) => {
        const y = HEAD + at.get(r) * ROW - top;
        if (y < HEAD - ROW || y > tall) return;
        g.fillStyle = fill[c.s[j]]; g.fillRect(x + 1, y + 1, width - 2, ROW - 3);
      });
      if (i === chosen) { g.strokeStyle = fg; g.lineWidth = 1.5; g.strokeRect(x + .5, HEAD, width - 1, tall - HEAD - 1); }
    }
    g.fillStyle = colour("bg"); g.fillRect(NAME, 0, wide, HEAD);
    g.fillStyle = dim;
    for (let i = from - from % 5; i < upto; i += 5) if (i >= 0) g.fillText(columns[i].k ? "…" : columns[i].n, NAME + i * width - left, 9);
    if (broken >= from && broken < upto) { g.fillStyle = colour("bad"); g.fillText("▼", NAME + broken * width - left + width / 2 - 5, 9); }
    g.restore();
    g.fillStyle = colour("bg"); g.fillRect(0, 0, NAME - 2, tall);
    g.fillStyle = fg;
    g.save(); g.beginPath(); g.rect(0, HEAD, NAME - 6, tall); g.clip();
    rows.forEach((r, i) => { const y = HEAD + i * ROW + ROW / 2 - top; if (y > HEAD - ROW && y < tall + ROW) g.fillText(name(r), 2, y); });
    g.restore();
  }

  function strip(pool, index) {
    const c = element("canvas"), group = data.groups[index], runs = pool;
    let cells = 0;
    for (let i = 1; i < runs.length; i += 2) cells += runs[i];
    c.width = 1024; c.height = 26;
    const g = c.getContext("2d"), one = 1024 / cells;
    const owners = [];
    let x = 0;
    for (let i = 0; i < runs.length; i += 2) {
      g.fillStyle = cell(runs[i]); g.fillRect(x * one, 0, runs[i + 1] * one + .5, 26);
      g.fillStyle = colour("line");
      if (cells <= 128) for (let k = 0; k < runs[i + 1]; k++) g.fillRect((x + k) * one, 0, 1, 26);
      const said = runs[i] >= 0 ? name(runs[i]) : CELLS[runs[i]];
      g.fillStyle = colour("fg"); g.font = "13px ui-monospace, monospace"; g.textBaseline = "middle";
      if (g.measureText(said).width + 8 < runs[i + 1] * one) g.fillText(said, x * one + 4, 13);
      for (let k = 0; k < runs[i + 1]; k++) owners.push(runs[i]);
      x += runs[i + 1];
    }
    const each = Math.ceil(group.total / cells);
    c.setAttribute("role", "img");
    c.setAttribute("aria-label", `blocks of ${group.name}, in order`);
    c.addEventListener("mousemove", e => {
      const k = Math.min(cells - 1, Math.floor(e.offsetX / c.clientWidth * cells)), o = owners[k];
      const which = each > 1 ? `blocks ${k * each} to ${Math.min(group.total, (k + 1) * each) - 1}` : `block ${k}`;
      c.title = `${which}: ${o >= 0 ? name(o) : CELLS[o]}`;
    });
    return c;
  }

  function show() {
    const c = columns[chosen];
    panel.replaceChildren();
    if (!c) return;
    element("h4", c.k ? `${c.k} uneventful steps, up to step ${c.n}` : `step ${c.n}${c.b ? ": a rule breaks here" : ""}`, panel);
    if (chosen === data.cut) element("p", "Behind this step, steps were left out: the trace is long.", panel).className = "dim";
    const facts = [`running: ${names(c.r)}`, `waiting: ${names(c.w)}`];
    if (c.x) facts.push(`swapped: ${names(c.x)}`);
    if (c.fl) facts.push(`frames in flight: ${c.fl.join(", ")}`);
    element("p", facts.join("; "), panel);
    if (c.t) { const list = element("ul", undefined, panel); for (const t of c.t) element("bdi", t, element("li", undefined, list)); }
    c.p.forEach((pool, i) => {
      element("span", `${data.groups[i].name}: ${data.groups[i].total} blocks of ${data.groups[i].page}, ${c.f[i]} free`, panel).className = "dim";
      panel.append(strip(pool, i));
    });
    const x = chosen * width;
    if (x < scroll.scrollLeft) scroll.scrollLeft = x - 40;
    if (x + width + NAME > scroll.scrollLeft + scroll.clientWidth) scroll.scrollLeft = x + width + NAME + 40 - scroll.clientWidth;
    const lines = c.l.map(r => at.get(r) * ROW), top = Math.min(...lines), end = Math.max(...lines) + ROW;
    if (lines.length && (end < scroll.scrollTop + ROW || top > scroll.scrollTop + scroll.clientHeight - HEAD - ROW)) scroll.scrollTop = top;
    draw();
  }
  const choose = i => { chosen = Math.max(0, Math.min(columns.length - 1, i)); show(); };
  for (const key in PLACES) {
    const item = element("span", undefined, legend), mark = element("i", undefined, item);
    mark.style.background = `var(--${PLACES[key][0]})`;
    item.append(PLACES[key][1]);
  }
  jump.disabled = broken < 0;
  jump.addEventListener("click", () => choose(broken));
  scroll.addEventListener("scroll", () => requestAnimationFrame(draw));
  scroll.addEventListener("click", e => {
    const i = Math.floor((e.clientX - scroll.getBoundingClientRect().left + scroll.scrollLeft - NAME) / width);
    if (i >= 0 && i < columns.length) choose(i);
  });
  scroll.addEventListener("mousemove", e => {
    const box = scroll.getBoundingClientRect(), i = Math.floor((e.clientX - box.left + scroll.scrollLeft - NAME) / width);
    const r = rows[Math.floor((e.clientY - box.top + scroll.scrollTop - HEAD) / ROW)], c = columns[i];
    const j = c ? c.l.indexOf(r) : -1;
    scroll.title = j < 0 ? "" : `step ${c.n}: ${name(r)} ${PLACES[c.s[j]][1]}`;
  });
  scroll.addEventListener("keydown", e => {
    const to = {ArrowLeft: chosen - 1, ArrowRight: chosen + 1, Home: 0, End: columns.length - 1, v: broken, V: broken}[e.key];
    if (to === undefined || to < 0 && e.key.toLowerCase() === "v") return;
    e.preventDefault();
    choose(to);
  });
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme:dark)").addEventListener("change", show);
  show();
}

document.querySelectorAll(".film").forEach(film);
