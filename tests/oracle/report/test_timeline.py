"""The HTML page: its structure, and that nothing of a trace is ever markup. In a browser: test_timeline_browser.py."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from click.testing import CliRunner

from preempt_oracle.check import check
from preempt_oracle.cli.main import cli
from preempt_oracle.film import BINS, CONTEXT, FIRST, LAST, TEXT, Film
from preempt_oracle.matrix import VECTORS
from preempt_oracle.monitor import Monitor
from preempt_oracle.report.cause import CAUSES, CONSEQUENCES
from preempt_oracle.report.judged import Judged
from preempt_oracle.report.timeline.page import Shown, page
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec, to_wire
from preempt_properties.play import header, play
from preempt_properties.scenario import Add, Config, Scenario
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import Reference
from preempt_spec.rules import RULES

TRACE = VECTORS / "traces" / "fault-unwritten-pages.vllm-0.33.0.jsonl"


def shown(trace: Path) -> Shown:
    films: list[Film] = []

    def film(monitor: Monitor):
        films.append(Film(monitor))
        return films[-1].see

    return Shown(Judged(trace.name, check(trace, film=film)), tuple(("", f) for f in films))


def data(html: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in re.findall(r'<script type="application/json" id="[^"]*">(.*?)</script>', html)]


def test_what_broke_is_said_in_words_and_drawn(snapshot):
    html = page([shown(TRACE)])
    [film] = data(html)
    assert film["requests"] == ["a", "b"]
    assert [c["n"] for c in film["columns"]] == [0, 1]
    assert film["columns"][-1]["b"] == 1
    assert dict(zip(film["columns"][-1]["l"], film["columns"][-1]["s"], strict=True)) == {0: "D", 1: "R"}
    for words in ("resume/publish", RULES["resume/publish"].sentence, CAUSES["resume/publish"]):
        assert words.replace("'", "&#39;") in html
    body = re.sub(r"<(style|script)[^>]*>.*?</\1>", r"<\1>…</\1>", html, flags=re.S)
    # Neither where this checkout is nor how it was installed is part of the structure.
    body = re.sub(r"sha256-[\w+/=]+|(?<=content=\"preempt-oracle )[^\"]+", "…", body)
    assert body.replace(str(VECTORS), "vectors") == snapshot


def test_every_rule_has_a_cause_and_a_consequence():
    assert CAUSES.keys() == CONSEQUENCES.keys() == RULES.keys()


def test_the_page_needs_nothing_from_outside_and_allows_nothing_else():
    html = page([shown(TRACE)])
    assert "default-src &#39;none&#39;" in html or "default-src 'none'" in html
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?:""", html)
    assert html.count("<script") == 2  # the data, and one that the policy knows by its hash


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", "</script><b>", "\u202eabc", "\x1b[31m", "'\"&"])
def test_nothing_of_a_trace_is_markup(hostile):
    one = shown(TRACE)
    tally = one.judged.tally
    assert tally is not None
    [failure] = tally.failures
    tally.failures[:] = [evolve(failure, violation=evolve(failure.violation, message=hostile), where=hostile)]
    [(_, film)] = one.films
    assert film is not None
    film.requests = {f"{hostile}{n}": n for n in range(2)}
    film.first[0] = evolve(film.first[0], happened=(hostile,))
    html = page([Shown(evolve(one.judged, source=hostile, error=hostile), ((hostile, film),))])
    bare = page([shown(TRACE)])
    # As many elements as without it: all of it is text.
    for tag in ("<script", "<b>", "<h3", "</script"):
        assert html.count(tag) == bare.count(tag) + (tag == "<h3")
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert data(html)[0]["columns"][0]["t"]


def test_a_long_run_is_folded_and_cut():
    limits = Config("vllm-fcfs", 200, 4, 4, 64, 800)
    head = header(limits)
    scenario = Scenario(limits, (Add("a", (1, 2), 200), Add("b", (1, 2), 200)))
    film = Film(Monitor(head, PROFILES["vllm-fcfs"].contract))
    for event in play(scenario, Reference(head, PROFILES["vllm-fcfs"].contract)):
        told = to_wire(event)
        film.monitor.feed(told)
        film.see(told)
    columns, cut = film.columns()
    assert cut == -1
    assert film.steps == 200
    assert sum(c.folded or 1 for c in columns) == film.steps
    assert len(columns) < 6 * CONTEXT
    assert max(len(pool) for c in columns for pool in c.pools) <= BINS
    # Where every step is eventful, the first and the last are kept.
    for n in range(2000):
        film._keep(evolve(columns[0], step=n))
    columns, cut = film.columns()
    assert (len(columns), cut) == (FIRST + LAST, FIRST - 1)


def test_what_breaks_between_steps_has_a_picture_of_its_own():
    head, *lines = TRACE.read_bytes().splitlines()
    header = wire.DECODER.decode(head)
    assert isinstance(header, wire.Header)
    film = Film(Monitor(to_spec(header), PROFILES[header.policy].contract))
    decoded: list[Any] = [wire.DECODER.decode(text) for text in lines]
    events = decoded[: next(n for n, e in enumerate(decoded) if isinstance(e, wire.Step)) + 1]
    for event in (*events, wire.EngineError("engine", "KeyError", "'a'", "scheduler.py:1 in schedule")):
        film.monitor.feed(event)
        film.see(event)
    columns, _ = film.columns()
    assert [c.step for c in columns] == [0, 0]
    assert "KeyError" in columns[-1].happened[-1]
    [told] = data(page([Shown(Judged("x"), (("", film),))]))
    assert ["b" in c for c in told["columns"]] == [False, True]


def test_what_happens_between_steps_is_not_gathered_for_ever():
    limits = Config("vllm-fcfs", 8, 4, 4, 64, 32)
    film = Film(Monitor(header(limits), PROFILES["vllm-fcfs"].contract))
    for n in range(100):
        for event in (wire.Arrive(f"r{n}", (1, 2), 2), wire.Abort(f"r{n}")):
            film.monitor.feed(event)
            film.see(event)
    assert len(film.happened) == TEXT


@pytest.mark.parametrize(
    "words",
    [
        ("check", str(TRACE)),
        ("conform", "reference", "--policy", "vllm-fcfs", "--workloads", "1"),
        ("fuzz", "reference", "--policy", "vllm-fcfs", "--workloads", "1"),
        ("explain", "victim/unplan"),
    ],
)
def test_a_page_that_cannot_be_made_is_told_of_before_anything_runs(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(cli, [*words, "--html", "-"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    monkeypatch.delitem(sys.modules, "preempt_oracle.report.timeline.page")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = CliRunner().invoke(cli, [*words, "--html", "page.html"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pip install 'preempt-oracle[report]'" in result.stderr
    assert not (tmp_path / "page.html").exists()
