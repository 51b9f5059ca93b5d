"""What long campaigns came to, kept for docs/lockstep.md: `python -m preempt_oracle.lockstep.campaigns REPORT.json …`.

Each REPORT is what `lockstep --json` wrote. Of its combinations only sums are kept, and the least that one was run.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

import msgspec

from preempt_oracle.lockstep.modes import NOT_MODELLED, SWITCHES, select
from preempt_oracle.lockstep.run import Cell
from preempt_oracle.report.lockstep import Report, by_switch, rows, total

FILE: Final = Path(__file__).with_name("campaigns.json")


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One policy and kind of flight, with or without drafts. `ran` of `every` combinations were run.

    `reached`: what their workloads came to.
    """

    policy: str
    flight: str
    drafts: str
    ran: int
    every: int
    workloads: int
    steps: int
    granting: int
    divergences: int
    reached: dict[str, int] = {}


class Kept(msgspec.Struct, frozen=True):
    """One campaign. `least`: fewest steps of a combination that the engine takes; `refused`: those it does not."""

    version: str
    date: str
    seed: int
    workloads: int
    steps: int
    granting: int
    divergences: int
    least: int
    refused: int
    rows: tuple[Row, ...]
    switches: dict[str, int]
    reached: dict[str, int]


def keep(report: Report, when: str) -> Kept:
    """The sums of a report."""
    cells = {
        select((m.policy,), ",".join(m.mode))[0]: Cell(
            m.workloads, m.steps, m.granting, m.events, m.divergences, m.refused, Counter(m.reached)
        )
        for m in report.modes
    }
    every = total(cells.values())
    taken = [c for c in cells.values() if c.steps or not c.outside]
    return Kept(
        report.version,
        when,
        report.seed,
        every.workloads,
        every.steps,
        every.granting,
        every.divergences,
        min((c.steps for c in taken), default=0),
        len(cells) - len(taken),
        tuple(
            Row(policy, flight, drafts, ran, of, c.workloads, c.steps, c.granting, c.divergences, dict(c.reached))
            for policy, flight, drafts, c, ran, of in rows(cells)
        ),
        {word: c.steps for word, c in by_switch(cells)},
        report.reached,
    )


def kept(file: Path = FILE) -> tuple[Kept, ...]:
    """The campaigns on file."""
    return msgspec.json.decode(file.read_bytes(), type=tuple[Kept, ...])


def main(files: Sequence[str], target: Path = FILE) -> int:
    """Condense reports; of a version that is on file already, the new one counts."""
    if not files:
        print("usage: python -m preempt_oracle.lockstep.campaigns REPORT.json …", file=sys.stderr)
        return 2
    found = {k.version: k for k in kept(target)} if target.is_file() else {}
    for file in files:
        try:
            report = msgspec.json.decode(Path(file).read_bytes(), type=Report)
        except (OSError, msgspec.DecodeError) as e:
            print(f"{file}: {e}", file=sys.stderr)
            return 2
        found[report.version] = keep(report, date.today().isoformat())
    text = msgspec.json.format(msgspec.json.encode([found[v] for v in sorted(found)]), indent=1)
    target.write_bytes(text + b"\n")
    return 0


# -- docs/lockstep.md -------------------------------------------------------------------------------------------------


def table() -> str:
    """Mode × steps × divergences, both versions side by side."""
    campaigns = kept()
    names = [f"{k.version}: {what}" for k in campaigns for what in ("modes", "steps", "with grants", "divergences")]
    lines = ["| policy | frames | drafts | " + " | ".join(names) + " |", "|---|---|---|" + "---:|" * len(names)]
    by_key = [{(r.policy, r.flight, r.drafts): r for r in k.rows} for k in campaigns]
    for key in dict.fromkeys(key for found in by_key for key in found):
        cells = [text for found in by_key for text in _cells(found.get(key))]
        lines.append("| " + " | ".join((f"`{key[0]}`", key[1], key[2], *cells)) + " |")
    sums = [
        text
        for k in campaigns
        for text in (
            f"**{sum(r.ran for r in k.rows)} of {sum(r.every for r in k.rows)}**",
            *(f"**{n:,}**" for n in (k.steps, k.granting, k.divergences)),
        )
    ]
    lines.append("| **all** | | | " + " | ".join(sums) + " |")
    told = [
        f"vLLM {k.version} ({k.date}, seed {k.seed}): {k.workloads:,} workloads; every combination that it takes was "
        f"compared for {k.least:,} steps or more"
        + (f"; {k.refused} it refuses to start (a drafter with its second runner)." if k.refused else ".")
        for k in campaigns
    ]
    return "\n".join([*lines, "", *told])


def _cells(row: Row | None) -> tuple[str, ...]:
    if row is None or not row.steps:
        return ("refused", "", "", "") if row and row.workloads else ("-", "", "", "")
    return (f"{row.ran} of {row.every}", f"{row.steps:,}", f"{row.granting:,}", f"{row.divergences:,}")


def settings_table() -> str:
    """Steps with each setting on, and off."""
    campaigns = kept()
    lines = ["| setting | " + " | ".join(k.version for k in campaigns) + " |", "|---|" + "---:|" * len(campaigns)]
    for yes, (_, no) in SWITCHES.items():
        for word in (yes, no):
            lines.append(f"| `{word}` | " + " | ".join(f"{k.switches.get(word, 0):,}" for k in campaigns) + " |")
    return "\n".join(lines)


def reached_table() -> str:
    """How often workloads came to what: of all, and by policy and how frames fly, all versions together."""
    campaigns = kept()
    ways: dict[str, Counter[str]] = {}
    for row in (row for k in campaigns for row in k.rows):
        way = f"{row.policy.removeprefix('vllm-')} {row.flight.partition(',')[0]}"
        ways.setdefault(way, Counter()).update(row.reached)
    head = [*(k.version for k in campaigns), *ways]
    lines = ["| situation | " + " | ".join(head) + " |", "|---|" + "---:|" * len(head)]
    for name in dict.fromkeys(name for k in campaigns for name in k.reached):
        counts = [*(k.reached.get(name, 0) for k in campaigns), *(found[name] for found in ways.values())]
        lines.append(f"| {name} | " + " | ".join(f"{n:,}" for n in counts) + " |")
    return "\n".join(lines)


def not_modelled() -> str:
    """What the command refuses, by its word."""
    return "\n".join(
        ["| `--mode` | why not |", "|---|---|", *(f"| `{w}` | {why} |" for w, why in NOT_MODELLED.items())]
    )


BLOCKS: Final = {
    "lockstep": table,
    "lockstep-settings": settings_table,
    "lockstep-reached": reached_table,
    "lockstep-not-modelled": not_modelled,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
