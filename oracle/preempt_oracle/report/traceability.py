"""docs/traceability.md: from each rule to what shows it at work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preempt_oracle.engines.environments import ENGINES
from preempt_oracle.report.rulebook import cell, first_line
from preempt_oracle.traceability import Trace
from preempt_properties.evidence import PLAYED, Evidence
from preempt_properties.known_bad import KnownBad
from preempt_spec.rules.rule import EVIDENCE

INTRODUCTION = f"""\
Each rule, and what shows it at work. A rule that nothing breaks is a rule that nobody has seen at work: a 0 under
property, known bad, alone or broken fails `python -m preempt_oracle.docs --check`, unless the reason stands beside the
rule and below.

- *clauses*: what evaluates it (`spec/preempt_spec/rules/`). The monitor's short cuts are held to the same clauses,
  event by event, by `tests/oracle/monitor/test_monitor_equals_pure.py`.
- *property*: how often the reference puts it to the test, and holds it, in {PLAYED} generated workloads of each
  profile. `tests/properties/test_reference_conforms.py` searches for a workload in which it does not.
- *known bad*: schedulers that are wrong in one place and are named by this rule
  (`properties/preempt_properties/known_bad/`, `tests/properties/test_known_bad.py`); *alone*: how many of these no
  other rule catches when this one is switched off.
- *broken*: shipped traces that break it and nothing else (`oracle/preempt_oracle/vectors/`); *kept*: the recorded
  traces of real engines these were made from.
- the engines: faults put into the real one that this rule must name (`preempt-oracle smoke ENGINE --inject`)."""


def page(traces: Sequence[Trace], evidence: Evidence) -> Iterator[str]:
    """The parts of the page."""
    yield INTRODUCTION
    yield "\n".join(_table(traces))
    yield "## What is lacking, and why"
    yield "\n".join(_lacks(traces)) or "Nothing."
    for trace in traces:
        yield "\n\n".join(_section(trace, evidence))


def _anchor(id: str) -> str:
    """As GitHub makes them of a heading."""
    return id.replace("/", "")


def _table(traces: Sequence[Trace]) -> Iterator[str]:
    head = ["rule", "clauses", "property", "known bad", "alone", "broken", "kept", *ENGINES]
    yield f"| {' | '.join(head)} |"
    yield "|---|" + "---:|" * (len(head) - 1)
    for t in traces:
        counts = [len(t.clauses), sum(t.exercised.values()), len(t.known_bad), len(t.alone), len(t.broken), len(t.kept)]
        counts += [sum(f.engine == engine for f in t.faults) for engine in ENGINES]
        link = f"[`{t.rule.id}`](#{_anchor(t.rule.id)})"
        yield f"| {link} | {' | '.join(f'{n:,}' for n in counts)} |"


def _lacks(traces: Sequence[Trace]) -> Iterator[str]:
    for what in EVIDENCE:
        for t in traces:
            if what in t.rule.lacks:
                yield f"- `{t.rule.id}`, {what}: {t.rule.lacks[what]}"


def _section(t: Trace, evidence: Evidence) -> Iterator[str]:
    id = t.rule.id
    yield f"## {id}"
    yield f"[{t.rule.kind.value}](rules.md#{_anchor(id)}), since {t.rule.since}. {t.rule.sentence}"
    yield "\n".join(_rows(t, evidence))


def _rows(t: Trace, evidence: Evidence) -> Iterator[str]:
    for c in t.clauses:
        needs = f"; needs {', '.join(c.needs)}" if c.needs else ""
        yield f"- clause at {c.at}: {c.says.rstrip('.')}{needs}"
    times = ", ".join(f"{policy} {n:,}" for policy, n in t.exercised.items())
    yield f"- property: {f'the reference exercises it: {times}' if times else 'never exercised by the reference'}"
    for v in t.known_bad:
        yield f"- known bad: `{v.__name__}`{_alone(v, evidence)}: {first_line(v)}"
    for vector in t.broken:
        yield f"- broken trace: `{vector.file}`: {vector.shows}"
    if t.kept:
        yield f"- kept by: {', '.join(f'`{name}`' for name in t.kept)}"
    for f in t.faults:
        blind = f" (not seen without {', '.join(f.lacks)}, which its adapter lacks)" if f.lacks else ""
        yield f"- injected into {f.engine}: `{f.name}`{blind}: {cell(f.does)}"


def _alone(variant: type[KnownBad], evidence: Evidence) -> str:
    found = evidence.known_bad.get(variant.__name__)
    return ", alone" if evidence.alone(variant) else f", without it {found.rule}" if found else ""
