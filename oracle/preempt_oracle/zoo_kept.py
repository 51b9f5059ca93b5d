"""`python -m preempt_oracle.zoo_kept` renews what is kept of the zoo: see `preempt_properties.known_bad.kept`.

A scenario comes from the searches of the kill matrix: of the first few workloads that show the fault each is made
short, and the shortest is kept. What is kept and still shows the fault is kept on unless a shorter one is found.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from attrs import evolve

from preempt_oracle.reduce import Weight, reduce, weight
from preempt_oracle.zoo import Kill, matrix, monitor, tasks
from preempt_properties.catch import finders, generated, shown
from preempt_properties.known_bad import ZOO, KnownBad
from preempt_properties.known_bad.kept import (
    FOUND,
    KILLS,
    SCENES,
    dump_found,
    dump_kills,
    dump_scenes,
    kills,
    scenes,
)
from preempt_properties.known_bad.kinds import load as kinds
from preempt_properties.scenario import Add, Scenario, Step
from preempt_spec.micro import Malformed

#: Workloads that are looked at, and those that show the fault among them that are made short; runs spent on each.
LOOKED_AT, SHORTENED, TRIES = 400, 4, 600


def breaks(variant: type[KnownBad], scenario: Scenario) -> bool:
    """Whether a scenario shows the fault of a variant as its rule."""
    try:
        return any(v.rule == variant.rule for v in shown(variant, scenario, monitor))
    except Malformed:  # a scheduler that is wrong may make no sense
        return False


def size(scenario: Scenario) -> tuple[int, int]:
    """How much there is to read: commands, then steps and tokens."""
    steps = sum(c.count for c in scenario.script if isinstance(c, Step))
    tokens = sum(len(c.prompt) + c.max_tokens for c in scenario.script if isinstance(c, Add))
    return len(scenario.script), steps + tokens


def shortest(name: str) -> Scenario:
    """The shortest scenario found that shows the fault. RuntimeError if none does."""
    variant = next(v for v in ZOO if v.__name__ == name)

    def weigh(candidate: Scenario) -> Weight | None:
        return weight(candidate, 0) if breaks(variant, candidate) else None

    found = []
    for seed in range(LOOKED_AT):
        scenario = generated(variant, variant.policies[0], seed)
        if breaks(variant, scenario):
            found.append(reduce(scenario, weight(scenario, 0), weigh, TRIES).scenario)
            if len(found) == SHORTENED:
                break
    if not found:
        raise RuntimeError(f"{name}: no workload shows its fault")
    return evolve(min(found, key=size), rule=variant.rule)


def stale(found: Mapping[str, Scenario]) -> Iterator[str]:
    """Schedulers whose scenario is missing, or shows its fault no more; scenarios of nobody."""
    names = {v.__name__ for v in ZOO}
    for name in sorted(found.keys() - names):
        yield f"{name}: a scenario is kept, and there is no such scheduler"
    for variant in ZOO:
        scene = found.get(variant.__name__)
        if scene is None:
            yield f"{variant.__name__}: no scenario is kept"
        elif not breaks(variant, scene):
            yield f"{variant.__name__}: its scenario shows its fault no more"


def kept_otherwise(found: tuple[Kill, ...]) -> list[str]:
    """Where a matrix of seed 0 differs from the one that is kept: the documents show the latter."""
    kept, out = kills(), []
    for k in found:
        was = kept.get(k.name, {}).get(k.policy)
        if not k.fault and was != k.workloads:
            out.append(f"{k.name}, {k.policy}: caught in workload {k.workloads}, and kills.toml says {was}")
    return [*out[:5], "renew it with `python -m preempt_oracle.zoo_kept`"] if out else []


def main(arguments: list[str]) -> int:
    """Renew the files; `--all`: make every scenario afresh."""
    if arguments not in ([], ["--all"]):
        print("usage: python -m preempt_oracle.zoo_kept [--all]", file=sys.stderr)
        return 2
    rows: dict[str, dict[str, int]] = defaultdict(dict)
    for kill in matrix([*tasks(ZOO)], 0, 2, lambda kill: print(kill.name, kill.policy, kill.fault or kill.workloads)):
        rows[kill.name][kill.policy] = kill.workloads
    KILLS.write_text(dump_kills(rows), encoding="utf-8")
    old = {} if arguments else scenes()
    keep = {v.__name__: old[v.__name__] for v in ZOO if v.__name__ in old and breaks(v, old[v.__name__])}
    todo = [v.__name__ for v in ZOO if v.__name__ not in keep]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for name, scene in zip(todo, pool.map(shortest, todo), strict=True):
            keep[name] = scene
            print(name, len(scene.script))
    table = kinds()
    SCENES.mkdir(exist_ok=True)
    for letter in table.groups:
        mine = {v.__name__: keep[v.__name__] for v in ZOO if table.letter(v.__name__) == letter}
        (SCENES / f"{letter}.toml").write_text(dump_scenes(mine), encoding="utf-8")
    FOUND.write_text(dump_found({v.__name__: finders(v, keep[v.__name__]) for v in ZOO}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
