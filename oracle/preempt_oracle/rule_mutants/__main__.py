"""Hunt the mutants of the rules and of the monitor, print what kills each, and the score."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from preempt_oracle.rule_mutants.kept import ENDS, SCORE, Row, argued, dump_score, score, scored
from preempt_properties.mutants.operators import Mutant
from preempt_properties.mutants.session import collected
from preempt_properties.mutants.stages import Killer

TESTS = ("tests/spec", "tests/oracle/monitor")
WHAT = ("rules", "monitor")


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """What is wanted."""
    parser = argparse.ArgumentParser(prog="python -m preempt_oracle.rule_mutants")
    parser.add_argument("names", nargs="*", help="'rules' or 'monitor', or part of a mutant's name [default: both]")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="one mutant of N, always the same ones")
    parser.add_argument("--write", action="store_true", help="keep the score")
    parser.add_argument("--list", action="store_true", help="name the mutants and hunt none")
    found = parser.parse_args(arguments)
    if found.sample < 1:
        parser.error("--sample: at least 1")
    if found.write and not set(found.names) <= {*WHAT}:
        parser.error("--write: of rules or monitor, not of part of one")
    return found


def chosen(what: str, wanted: argparse.Namespace) -> list[Mutant]:
    """The mutants of the rules, or of the monitor, that are to be hunted."""
    from preempt_oracle.rule_mutants.hunt import mutants, name, sampled

    words = [word for word in wanted.names if word not in WHAT]
    if wanted.names and not words and what not in wanted.names:
        return []
    found = sampled(mutants(what), wanted.sample)
    return [m for m in found if not words or any(word in name(what, m) for word in words)]


def main(items: Sequence[Any], wanted: argparse.Namespace) -> int:
    """Hunt, and print the table."""
    # Only now: pytest wants to see Hypothesis imported.
    from preempt_oracle.rule_mutants.hunt import name, prepare

    began, known, wrong = time.monotonic(), argued(), []
    kept, one_of = score() if SCORE.is_file() else ({}, {})
    seen: set[str] = set()
    for what in WHAT:
        if not (todo := chosen(what, wanted)):
            continue
        rows: list[Row] = []
        hunt = prepare(what, items)
        print(f"{what}: {len(todo)} mutants; prepared in {time.monotonic() - began:.0f} s", flush=True)

        def tell(mutant: Mutant, killer: Killer, what: str = what, rows: list[Row] = rows, hunt: Any = hunt) -> None:
            id = name(what, mutant)
            seen.add(id)
            why = "argued" if id in known.reasons else "open" if id in known.open else ""
            rows.append(
                Row(id, hunt.rules(mutant) or ((mutant.module,) if what == "monitor" else ()), killer.kind or why)
            )
            end = f"{killer.kind}: {killer.name}" if killer.kind else known.reasons.get(id) or why or "ALIVE"
            if killer.kind and why:
                end = f"{why.upper()} AND KILLED by {end}"
            if (killer.kind and why) or not (killer.kind or why):
                wrong.append(f"{id}\n    {end}")
            print(f"{id}\n    {end}", flush=True)

        hunt.all(todo, tell)
        kept, one_of = {**kept, what: scored(rows)}, {**one_of, what: wanted.sample}
        ends = {end: sum(row.end == end for row in rows) for end in (*ENDS, "")}
        print(f"{what}: {len(rows)} mutants: {', '.join(f'{n} {end or chr(63)}' for end, n in ends.items())}")
    if wanted.sample == 1 and not wanted.names:
        wrong += [
            f"{id}\n    ARGUED OR OPEN, and there is no such mutant" for id in {*known.reasons, *known.open} - seen
        ]
    if wrong:
        print("\nAt fault:\n" + "\n".join(wrong))
    if wanted.write:
        SCORE.write_text(dump_score(kept, one_of), encoding="utf-8")
    spent = sum(os.times()[:4])
    print(
        f"{len(seen)} mutants, {len(wrong)} at fault; {time.monotonic() - began:.0f} s, {spent:.0f} s of processor time"
    )
    return 1 if wrong else 0


def _list(wanted: argparse.Namespace) -> int:
    from preempt_oracle.rule_mutants.hunt import name

    for what in WHAT:
        for mutant in chosen(what, wanted):
            print(name(what, mutant))
    return 0


if __name__ == "__main__":
    _wanted = options(sys.argv[1:])
    sys.exit(_list(_wanted) if _wanted.list else collected(TESTS, lambda items: main(items, _wanted)))
