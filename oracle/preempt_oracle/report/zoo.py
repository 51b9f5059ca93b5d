"""The kill matrix on a terminal, as JSON, and as docs/zoo.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from preempt_oracle.report.rulebook import cell, first_line
from preempt_oracle.report.version import version
from preempt_properties.evidence import Evidence
from preempt_properties.known_bad import ZOO, KnownBad
from preempt_properties.known_bad.kinds import Kinds
from preempt_properties.scenario import Scenario, as_json
from preempt_spec import SPEC_VERSION

if TYPE_CHECKING:
    from rich.console import Console

    from preempt_oracle.zoo import Kill, Summary

FORMAT, FORMAT_VERSION = "preempt-oracle zoo", 1


def show(out: Console, found: Summary, faults: Sequence[str], kinds: Kinds) -> None:
    """The matrix, one line for each scheduler and profile, and what is wrong with it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from preempt_oracle.report.words import count, safe

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, justify in (("scheduler", "left"), ("profile", "left"), ("named by", "left")):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for name in ("workloads", "events", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    letter = ""
    for k in (*sorted(found.kills, key=lambda k: kinds.letter(k.name)), *found.right):
        now = kinds.letter(k.name) if k.rule else "right"
        if now != letter:
            letter = now
            title = kinds.groups.get(letter, "right: nobody may accuse them")
            table.add_row(Text(title, style="bold"))
        named = ", ".join(k.named) or "nobody"
        by = Text(named, style="bold red" if k.fault else "green")
        table.add_row(k.name, k.policy, by, f"{k.workloads:,}", f"{k.events:,}", f"{k.seconds:.2f}")
    out.print(table)
    if found.kills:
        (typical, worst), (half, most) = found.seconds, found.workloads
        caught = sum(not k.fault for k in found.kills)
        out.print(
            f"{caught} of {count(len(found.kills), 'search')[:-1]}es end with the rule that is broken, for "
            f"{count(len({k.name for k in found.kills}), 'scheduler')}: median {typical:.3f} s and {half:g} workloads, "
            f"worst {worst:.1f} s and {most} workloads",
            soft_wrap=True,
        )
    if found.right:
        out.print(
            f"{sum(not k.fault for k in found.right)} of {len(found.right)} right ones are accused of nothing in "
            f"{count(sum(k.workloads for k in found.right), 'workload')}"
        )
    for fault in faults:
        out.print(Text(f"wrong: {safe(fault, 400)}", style="bold red"), soft_wrap=True)


def document(found: Summary, faults: Sequence[str], kinds: Kinds, seed: int) -> bytes:
    """The JSON report. Its fields are an interface: added to, never renamed."""
    report = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": version(),
        "spec": SPEC_VERSION,
        "seed": seed,
        "median_seconds": round(found.seconds[0], 4),
        "worst_seconds": round(found.seconds[1], 4),
        "kills": [_row(k, kinds) for k in found.kills],
        "right": [_row(k, kinds) for k in found.right],
        "wrong": list(faults),
    }
    return (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode()


def _row(k: Kill, kinds: Kinds) -> dict[str, Any]:
    row: dict[str, Any] = {"name": k.name, "profile": k.policy, "named": list(k.named), "workloads": k.workloads}
    row |= {"events": k.events, "seconds": round(k.seconds, 4), "fault": k.fault}
    if k.rule:
        reports = [report for kind in kinds.of(k.name) for report in kind.reports]
        row |= {"rule": k.rule, "group": kinds.letter(k.name), "reports": reports, "message": k.message}
    return row


INTRODUCTION = """\
Every kind of fault of which a public report is known to us, as a scheduler of a few lines that has it: the reference
with one decision wrong. `preempt-oracle zoo` searches for each of them, with workloads that know what kind of engine
they drive and nothing of the fault, and says which rule named it, and how soon:

    preempt-oracle zoo [--only GROUP|RULE|NAME] [--seed N] [--jobs N] [--json FILE]

It fails unless every one is named by the rule that it breaks, half of the searches within a second of processor time
and all within thirty, and unless schedulers that are right (`known_bad/right.py`: the reference, and one for each knob
that no profile turns) are accused of nothing.

*Workloads* are those of seed 0 until the rule was named, under each profile that the scheduler can have, in the order
of the [profiles](profiles.md). *Alone*: no other rule catches it when this one is switched off (else who does). The
scenarios below are the shortest known that show the fault; each is what a failing search comes down to."""


def page(
    kinds: Kinds, evidence: Evidence, kills: Mapping[str, Mapping[str, int]], scenes: Mapping[str, Scenario]
) -> Iterator[str]:
    """The parts of docs/zoo.md."""
    yield INTRODUCTION
    yield "\n".join(_totals(kinds, kills, scenes))
    yield "## Who shows what"
    yield "\n".join(_schedulers(kinds, evidence, kills))
    yield "## Kinds of faults"
    yield "\n".join(_kinds(kinds))
    yield "## Kinds that no trace of a scheduler shows, and why"
    yield "\n".join(f"- {k.id}, {', '.join(k.reports)}: {k.fault} {k.why}" for k in kinds.kinds if k.why)
    yield "## Scenarios"
    for letter, name in kinds.groups.items():
        yield f"### {letter}. {name[0].upper()}{name[1:]}"
        for variant in _of(kinds, letter):
            yield _scene(variant, scenes[variant.__name__])


def _of(kinds: Kinds, letter: str) -> list[type[KnownBad]]:
    return [v for v in ZOO if kinds.letter(v.__name__) == letter]


def _totals(kinds: Kinds, kills: Mapping[str, Mapping[str, int]], scenes: Mapping[str, Scenario]) -> Iterator[str]:
    yield "| group | kinds | of them shown | schedulers | searches | workloads, median | worst | actions, median |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    rows = [*((f"{x}. {name}", (x,)) for x, name in kinds.groups.items()), ("all", tuple(kinds.groups))]
    for title, letters in rows:
        mine = [k for k in kinds.kinds if k.id[0] in letters]
        names = [v.__name__ for x in letters for v in _of(kinds, x)]
        counts = [n for name in names for n in kills.get(name, {}).values()]
        actions = [len(scenes[name].script) for name in names]
        yield (
            f"| {title} | {len(mine)} | {sum(bool(k.shown_by) for k in mine)} | {len(names)} | {len(counts)} "
            f"| {median(counts):g} | {max(counts)} | {median(actions):g} |"
        )


def _schedulers(kinds: Kinds, evidence: Evidence, kills: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    yield "| | scheduler | what is wrong | seen in | rule | alone | workloads |"
    yield "|---|---|---|---|---|---|---|"
    for letter in kinds.groups:
        for v in _of(kinds, letter):
            name = v.__name__
            other = evidence.known_bad.get(name)
            alone = "yes" if evidence.alone(v) else f"`{other.rule}`" if other else "?"
            counts = " ".join(str(n) for n in kills.get(name, {}).values())
            yield f"| {letter} | `{name}` | {cell(first_line(v))} | {v.bug} | `{v.rule}` | {alone} | {counts} |"


def _kinds(kinds: Kinds) -> Iterator[str]:
    yield "| | reported | what was wrong | shown by |"
    yield "|---|---|---|---|"
    for k in kinds.kinds:
        shown = ", ".join(f"`{name}`" for name in k.shown_by) or "nobody, see below"
        yield f"| {k.id} | {', '.join(k.reports)} | {cell(k.fault)} | {shown} |"


def _scene(variant: type[KnownBad], scene: Scenario) -> str:
    """What is not usual in the configuration, and the script."""
    told = as_json(scene)
    usual = {"chunked": True, "whole_fit": True, "frames": 1, "groups": "full"}
    config = [f"{k}={v}" for k, v in told["config"].items() if v != usual.get(k, 0) and v is not False]
    config += [f"{k}=false" for k in ("chunked", "whole_fit") if told["config"][k] is False]
    lines = [f"`{variant.__name__}` breaks `{variant.rule}`:", "", f"    # {' '.join(config)}"]
    return "\n".join([*lines, *(f"    {line}" for line in told["script"])])
