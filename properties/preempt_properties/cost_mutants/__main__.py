"""Print every mutant of the cost functions and its killer; exit 1 if one is alive and not argued to be no change."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from preempt_properties.cost_mutants.apply import COST
from preempt_properties.cost_mutants.changes import changes
from preempt_properties.cost_mutants.equivalent import EQUIVALENT
from preempt_properties.cost_mutants.hunt import prepare
from preempt_properties.cost_mutants.named import named
from preempt_properties.mutants.operators import Mutant, mutants
from preempt_properties.mutants.session import collected
from preempt_properties.mutants.stages import Killer


def every() -> list[Mutant]:
    """The named mistakes, then every small change of every function."""
    functions = COST.shipped()
    small = (mutant for (module, name), f in functions.items() for mutant in mutants(module, name, f, changes))
    return [*named(functions), *small]


def main(items: Sequence[Any]) -> int:
    """Hunt all mutants with the theorems and these tests, and print the table."""
    began = time.monotonic()
    wanted = sys.argv[2:]
    chosen = [m for m in every() if not wanted or m.module in wanted]
    found: dict[str, Killer] = {}
    alive: list[str] = []

    def tell(mutant: Mutant, killer: Killer) -> None:
        found[mutant.id] = killer
        argued = EQUIVALENT.get(mutant.id)
        if killer.kind and not argued:
            end = f"{killer.kind} {killer.name}"
        elif argued and not killer.kind:
            end = f"no change: {argued}"
        else:
            end = f"ARGUED AWAY, and killed by {killer.kind} {killer.name}" if argued else "ALIVE"
            alive.append(f"{mutant.id}\n    {end}")
        print(f"{mutant.name + ': ' if mutant.name else ''}{mutant.id}\n    {end}", flush=True)

    prepare(items).all(chosen, tell)
    if not wanted:
        alive += [f"{id}\n    ARGUED AWAY, and there is no such mutant" for id in EQUIVALENT.keys() - found.keys()]
    if alive:
        print("\nAt fault:\n" + "\n".join(alive))
    by = Counter(killer.kind for killer in found.values())
    print(
        f"{len(found)} mutants of {len({(m.module, m.function) for m in chosen})} functions: {by['theorem']} killed by "
        f"theorems, {by['test']} by tests, {len(EQUIVALENT.keys() & found.keys())} argued to change nothing, "
        f"{len(alive)} at fault; {time.monotonic() - began:.0f} s, "
        f"{sum(os.times()[:4]):.0f} s of processor time"
    )
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(collected([sys.argv[1] if sys.argv[1:] else "tests/spec/cost"], main))
