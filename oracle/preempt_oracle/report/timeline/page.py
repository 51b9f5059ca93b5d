"""One self-contained file: no network, a strict content-security policy, and nothing of a trace that is not text.

Whatever comes from a trace goes into the page twice at most: escaped by Jinja2, or as JSON in a data block, which the
script only ever puts into text nodes and numbers. The policy allows this very script and this very style, by hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from attrs import frozen
from jinja2 import Environment

from preempt_oracle.explained import reports
from preempt_oracle.film import Column, Film
from preempt_oracle.report.cause import CAUSES, CONSEQUENCES
from preempt_oracle.report.events import line
from preempt_oracle.report.judged import Judged
from preempt_oracle.report.version import version
from preempt_oracle.report.words import count, safe
from preempt_oracle.verdict import Failure, Standing
from preempt_spec.rules import RULES

#: The class of its colour; others are dim.
_COLOUR = {Standing.VIOLATED: "bad", Standing.KNOWN: "warn", Standing.ADVISED: "warn", Standing.HELD: "good"}
EVENTS = 8  # of a failure, as text


@frozen
class Shown:
    """A judged input, and films of it: what each shows, "" for the input itself."""

    judged: Judged
    films: tuple[tuple[str, Film | None], ...] = ()


def page(shown: Sequence[Shown]) -> str:
    """The page."""
    here = files(__package__)
    style, script = (here.joinpath(name).read_text(encoding="utf-8") for name in ("timeline.css", "timeline.js"))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(here.joinpath("timeline.html.j2").read_text(encoding="utf-8"))
    allowed = f"style-src {hashed(style)}; script-src {hashed(script)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    runs = [_run(one) for one in shown]
    return template.render(style=style, script=script, policy=policy, runs=runs, version=version())


def hashed(text: str) -> str:
    """A style or script as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _run(one: Shown) -> dict[str, Any]:
    judged, tally = one.judged, one.judged.tally
    failures = [_failure(f) for f in tally.failures] if tally else []
    return {
        "source": safe(judged.source, 300),
        "verdict": judged.verdict.value,
        "engine": safe(f"{tally.engine} {tally.version}", 100) if tally else "",
        "policy": tally.policy if tally else "",
        "error": safe(judged.error, 2000),
        "sizes": f"{count(tally.steps, 'step')}, {count(tally.preemptions, 'preemption')}, "
        f"{count(tally.resumes, 'resume')}"
        if tally
        else "",
        "failures": failures,
        "rules": _rules(judged),
        "films": [{"title": safe(title, 300), "data": _data(film) if film else ""} for title, film in one.films],
    }


def _failure(f: Failure) -> dict[str, Any]:
    rule = RULES[f.violation.rule]
    books = f.divergence.books if f.divergence else ()
    return {
        "rule": rule.id,
        "kind": rule.kind.value,
        "sentence": rule.sentence,
        "message": safe(f.violation.message, 600),
        "step": f.frame,
        "where": safe(f.where, 300),
        "moment": safe(f.divergence.moment, 300) if f.divergence else "",
        "cause": CAUSES[rule.id],
        "consequence": CONSEQUENCES[rule.id],
        "reports": [f"{', '.join(kind.reports)}: {kind.fault}" for kind in reports(rule.id)],
        "known": safe(f.known, 400),
        "advisory": f.advisory,
        "replay": safe(f.replay, 600),
        "events": [line(e, 400) for e in f.tail[-EVENTS:]],
        "books": [
            {"what": safe(b.what, 100), "engine": safe(b.engine or "-", 300), "shadow": safe(b.shadow, 300),
             "differs": b.differs}
            for b in books
        ],
    }  # fmt: skip


def _rules(judged: Judged) -> list[dict[str, Any]]:
    if judged.tally is None:
        return []
    rows = []
    for id, standing in judged.tally.standings.items():
        rule = RULES[id]
        times = judged.tally.exercised.get(id, 0)
        rows.append({"rule": id, "kind": rule.kind.value, "sentence": rule.sentence, "standing": standing.value,
                     "style": _COLOUR.get(standing, "dim"), "times": f"{times:,}"})  # fmt: skip
    return rows


def _data(film: Film) -> str:
    """The film as JSON that can stand in a script element: no `<` leaves it."""
    columns, cut = film.columns()
    s = film.monitor.shadow
    drawn = [_column(c) for c in columns]
    if film.monitor.violations:
        drawn[-1]["b"] = 1  # nothing is filmed behind a violation
    data = {
        "requests": [safe(r, 60) for r in film.requests],
        "groups": [{"name": safe(g.name, 40), "page": g.page_size, "total": s.extent(i)}
                   for i, g in enumerate(s.groups)],
        "cut": cut,
        "columns": drawn,
    }  # fmt: skip
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


def _column(c: Column) -> dict[str, Any]:
    always = {
        "n": c.step,
        "l": c.live,
        "s": c.places,
        "r": c.running,
        "w": c.waiting,
        "p": [[x for run in pool for x in run] for pool in c.pools],
        "f": c.free,
    }
    optional = {"k": c.folded, "x": c.swapped, "fl": c.flying, "t": c.happened}
    return {**always, **{k: v for k, v in optional.items() if v}}
