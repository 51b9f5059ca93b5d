"""What was inferred of engines, kept for docs/inference.md: `python -m preempt_oracle.inferred REPORT.json …`.

Each REPORT is what `infer --json` wrote. It takes the place of what was kept of the same engine, version and policy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from preempt_oracle.report.infer import Report, Row
from preempt_oracle.report.rulebook import cell

REFERENCE: Final = "reference"
FILE: Final = Path(__file__).with_name("inferred.json")


def kept(file: Path = FILE) -> tuple[Report, ...]:
    """The reports on file. It ships with us: OSError, DecodeError."""
    return msgspec.json.decode(file.read_bytes(), type=tuple[Report, ...])


def merged(old: Sequence[Report], new: Sequence[Report]) -> tuple[Report, ...]:
    """The old ones, each replaced where there is a new one; by engine, version and policy."""
    by = {(r.engine, r.version, r.policy): r for r in (*old, *new)}
    return tuple(by[key] for key in sorted(by))


def page(reports: Sequence[Report]) -> Iterator[str]:
    """The parts of docs/inference.md."""
    yield (
        "Which policy does an engine follow? `preempt-oracle infer ENGINE` drives it through generated workloads and "
        "holds all that it did against every value of every knob ([profiles](profiles.md) says what they mean). An "
        "event that breaks a rule refutes not one policy but all that agree on the knobs which were read on the way to "
        "it, so few runs leave little. A value that only allows more than another (to admit in a preempting step, say) "
        "is refuted by nothing that is seen; it is left out where there was occasion to use it: a workload in which "
        "the reference scheduler, with that value, does what the narrower one forbids, and the engine never did."
    )
    yield (
        "*Undetermined* means that nothing tells the values apart while the other knobs are as they are: whoever "
        "preempts only the last one preempts itself last of all, so what a pass does behind that is nobody's to see."
    )
    yield "## Engines"
    yield "\n".join([*_table([r for r in reports if r.engine != REFERENCE])])
    yield "Bold: not what the contract says, but declared of this version (a deviation). Workloads of seed 1 and on."
    yield "## The reference, under each profile"
    yield "\n".join([*_table([r for r in reports if r.engine == REFERENCE])])
    yield "## What told them apart"
    for r in reports:
        yield f"### {r.engine} {r.version}, {r.policy}"
        yield "\n".join([*_evidence(r)])


def _name(r: Report) -> str:
    options = "".join(f", {k}={str(v).lower()}" for k, v in r.options.items())
    return f"{r.engine} {r.version}{options}"


def _table(reports: Sequence[Report]) -> Iterator[str]:
    yield "| knob | " + " | ".join(f"{_name(r)}: `{r.policy}`" for r in reports) + " |"
    yield "|---|" + "---|" * len(reports)
    for knob in dict.fromkeys(row.knob for r in reports for row in r.knobs):
        rows = [next((row for row in r.knobs if row.knob == knob), None) for r in reports]
        yield f"| {knob} | " + " | ".join(_cell(row) for row in rows) + " |"
    yield "| causes | " + " | ".join(", ".join(r.causes) for r in reports) + " |"
    yield "| workloads, preemptions | " + " | ".join(f"{r.workloads}, {r.preemptions}" for r in reports) + " |"
    yield "| run | " + " | ".join(f"{r.date}, {r.seconds:.0f} s" for r in reports) + " |"
    yield "| verdict | " + " | ".join(_verdict(r) for r in reports) + " |"


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if len(row.possible) > 1:
        return "undetermined"
    [value] = row.possible
    return f"**{value}**" if value != row.declared else value


def _verdict(r: Report) -> str:
    told = sum(len(row.possible) == 1 for row in r.knobs)
    if {rule for _, rule, _ in r.unexplained} - {*r.known}:
        return f"{len({run for run, *_ in r.unexplained})} runs unexplained"
    wrong = [row.knob for row in r.knobs if row.agrees is False]
    but = f"; {len(r.unexplained)} runs only up to a known fault ({', '.join(r.known)})" if r.unexplained else ""
    return f"differs in {', '.join(wrong)}" if wrong else f"agrees, {told} of {len(r.knobs)} told{but}"


def _evidence(r: Report) -> Iterator[str]:
    yield "| knob | is not | because |"
    yield "|---|---|---|"
    for row in r.knobs:
        for one in row.refuted:
            why = f"{one.run}: `{one.rule}`: {cell(one.message or '')}" if one.run else "several runs together"
            yield f"| {row.knob} | {one.value} | {why} |"
        for value, runs in row.unused.items():
            yield f"| {row.knob} | {value} | never as it allows, in {', '.join(runs)} among others |"
        if len(row.possible) > 1:
            yield f"| {row.knob} | | undetermined: {', '.join(row.possible)} |"


def main(files: Sequence[str]) -> int:
    """Keep the reports."""
    try:
        new = [msgspec.json.decode(Path(file).read_bytes(), type=Report) for file in files]
    except (OSError, msgspec.DecodeError) as e:
        print(f"cannot use a report: {e}", file=sys.stderr)
        return 2
    old = kept() if FILE.is_file() else ()
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(merged(old, new)), indent=1) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
