// A complete scheduler behind preempt-oracle's adapter protocol, for authors of schedulers in any language: one JSON
// object per line on stdin, exactly one answer line on stdout with the same "id". Its policy is "vllm-fcfs" without a
// prefix cache: running requests grow in order, the LAST running request is the victim, a victim goes to the FRONT of
// the waiting queue and is recomputed later, and nobody is admitted in a step that preempted somebody.
let c, free, running, waiting, frame, flown; // configuration, free block ids, two queues, and the grants of each frame

const known = (r) => r.prompt.length + r.out.length; // tokens; the first r.computed of them have their KV in r.table
const pages = (tokens) => Math.ceil(tokens / c.page_size);
const find = (name) => [...running, ...waiting].find((r) => r.request === name);
const drop = (r) => { for (const queue of [running, waiting]) if (queue.includes(r)) queue.splice(queue.indexOf(r), 1); };
const release = (r) => { const blocks = r.table; free.push(...blocks); r.table = []; r.computed = 0; return [blocks]; };
const books = () => ({ // our own bookkeeping: the oracle compares it with what it derived, and believes none of it
  free: [free.length], free_ids: [free], held: [], refs: [],
  running: running.map((r) => r.request), waiting: waiting.map((r) => r.request),
});

const handlers = {
  start({ config }) {
    // Refuse what this scheduler does not do. A refusal is no verdict; doing something else in silence is a violation.
    const fixed = { policy: "vllm-fcfs", caching: false, chunked: true, whole_fit: true, long_prefill: 0, watermark: 0,
      frames: 1, drafts: 0, host_blocks: 0, groups: "full" };
    for (const [knob, value] of Object.entries(fixed))
      if ((config[knob] ?? value) !== value) return { event: "refused", reason: `only ${knob}=${value}` };
    if (config.max_length > config.blocks * config.page_size)
      return { event: "refused", reason: "max_length exceeds the pool" };
    c = { ...config, ...fixed };
    [free, running, waiting, frame, flown] = [[...Array(c.blocks).keys()], [], [], -1, new Map()];
    const { policy, blocks, page_size, seed, options, frames, drafts, host_blocks, groups, ...limits } = c;
    return {
      event: "header", engine: "stdio-scheduler-example", version: "1", policy, limits,
      groups: [{ name: "full", kind: "full", page_size }], pools: [{ tier: "device", group: 0, total: blocks, reserved: 0 }],
      // Declare what you really report and nothing else: a rule that lacks something is "not observable", never a pass.
      observes: ["counts", "blocks", "free", "free-ids", "refs", "queues", "demote", "trigger", "release", "reset",
        "held", "place", "known", "start", "sent", "emitted", "reject"],
      capabilities: ["abort", "chunked", "small_budget"],
    };
  },

  add({ request, prompt, max_tokens, priority = 0, arrival = 0, salt = "" }) {
    if (find(request)) return { event: "refused", reason: "this id is alive" };
    if (!prompt.length || max_tokens < 1 || prompt.length + max_tokens > c.max_length)
      return { event: "reject", request, reason: "empty, or longer than max_length" };
    waiting.push({ request, prompt, max_tokens, out: [], computed: 0, table: [], again: false });
    return { event: "arrive", request, prompt, max_tokens, priority, arrival, salt };
  },

  abort({ request }) { // what still flies for it is dropped when it lands: see deliver
    const r = find(request);
    if (r) drop(r);
    return { event: "abort", request, blocks: r ? release(r) : [[]], observed: books() };
  },

  step() {
    const e = { event: "step", frame: ++frame, requests: [], tokens: [], start: [], blocks: [], sent: [], resumed: [], acts: [] };
    const granted = new Map();
    let left = c.budget;
    const grant = (r, n, admitted) => { // never more tokens than there are slots: blocks first, then the grant
      const blocks = free.splice(0, pages(r.computed + n) - r.table.length);
      if (blocks.length) { r.table.push(...blocks); e.blocks.push([r.request, 0, blocks]); }
      // The worker is told a newcomer's whole table, and of the others only what is new. It keeps the rest.
      if (admitted) e.sent.push([r.request, 0, [...r.table], true]);
      else if (blocks.length) e.sent.push([r.request, 0, blocks]);
      e.requests.push(r.request); e.tokens.push(n); e.start.push(r.computed);
      granted.set(r.request, r); r.computed += n; left -= n;
    };
    // 1. Everybody who runs, in order, while the budget lasts.
    for (let i = 0; i < running.length && left > 0; i++) {
      const r = running[i], n = Math.min(known(r) - r.computed, left), need = pages(r.computed + n) - r.table.length;
      if (n <= 0) continue; // its last token is still in flight
      // 2. Too few blocks: victims from the tail, at last r itself. `after` counts the grants made before the act.
      while (need > free.length && running.includes(r)) {
        const victim = running.pop(), request = victim.request, after = granted.size, supply = free.length;
        e.acts.push({ act: "demote", request, after, cause: "growth", beneficiaries: [r.request], need, supply });
        e.acts.push({ act: "release", request, after, blocks: release(victim), computed: victim.computed });
        waiting.unshift(victim);
        victim.again = true;
        e.acts.push({ act: "requeue", request, after, queue: "waiting", index: 0, known: known(victim) });
      }
      if (running.includes(r)) grant(r, n);
    }
    // 3. Admission, head of the line first. All known tokens must fit, outputs included; a prefill may still be split.
    while (!e.acts.length && waiting.length && left > 0 && running.length < c.max_running) {
      const r = waiting[0];
      if (pages(known(r)) > free.length) break; // whoever does not fit blocks everybody behind it
      running.push(waiting.shift());
      if (r.again) e.resumed.push([r.request, known(r)]);
      r.again = false;
      grant(r, Math.min(known(r), left), true);
    }
    flown.set(frame, granted); // objects, not ids: an id may be aborted and used again meanwhile
    if (!granted.size) e.reason = running.length + waiting.length ? "nobody could be granted anything" : "idle";
    return { ...e, observed: books() };
  },

  deliver({ frame: number, requests, tokens }) {
    const emitted = [], disposition = [], finished = [], grants = flown.get(number);
    flown.delete(number);
    requests.forEach((request, i) => {
      const r = grants.get(request), lives = r !== undefined && find(request) === r;
      if (lives) r.out.push(...tokens[i]);
      emitted.push(lives ? tokens[i] : []);
      disposition.push(lives ? "delivered" : "dropped");
      if (!lives || r.out.length < r.max_tokens) return;
      drop(r);
      finished.push({ request, reason: "length", blocks: release(r) });
    });
    return { event: "deliver", frame: number, requests, tokens, emitted, disposition, finished };
  },

  stop: () => ({ event: "stopped" }),
};

const answer = (id, reply) => process.stdout.write(JSON.stringify({ id, ...reply }) + "\n"); // nothing else may print
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  let command = null;
  try { command = JSON.parse(line); } catch { /* answered below */ }
  const id = command?.id ?? null;
  if (!Object.hasOwn(handlers, command?.do)) { // not this protocol: say so, and end with 3, "harness broken"
    answer(id, { event: "engine_error", origin: "protocol", kind: "ProtocolError", message: "unknown command" });
    process.exitCode = 3;
    process.stdin.destroy();
    return;
  }
  try {
    answer(id, handlers[command.do](command));
  } catch (error) { // a crash of the scheduler is a finding about the scheduler: report it, do not die
    const where = error.stack?.split("\n")[1]?.trim() ?? "";
    answer(id, { event: "engine_error", origin: "engine", kind: error.name, message: error.message, where });
  }
});
