"""The mutation run notices what it should: every kind of change, and that a change is alive."""

from __future__ import annotations

import ast
import os
import signal
import time
from fractions import Fraction
from typing import Any

import pytest

import preempt_spec.cost.swap as shipped_swap
from preempt_properties.cost_mutants.apply import COST
from preempt_properties.cost_mutants.changes import changes
from preempt_properties.cost_mutants.equivalent import EQUIVALENT
from preempt_properties.cost_mutants.hunt import Hunt
from preempt_properties.cost_mutants.named import named
from preempt_properties.cost_mutants.points import points, stands_at
from preempt_properties.mutants import children
from preempt_properties.mutants.children import WorkFailed, run, time_left
from preempt_properties.mutants.operators import Mutant, functions, mutants
from preempt_properties.mutants.stages import Killer
from preempt_properties.theorems import THEOREMS

SOURCE = '''
def f(a: float, cached: int = 0) -> float:
    """2 + 2: a docstring is no formula."""
    if a < 1 and not cached:
        raise ValueError(f"{a + 1}")
    b: float = max(a.out, 2 * a)
    return 0 * a if a is None else a + b
'''


def test_small_changes_of_every_kind():
    [(name, function)] = functions("m", SOURCE).items()
    found = {(m.was, m.now) for m in mutants("m", name, function, changes)}
    assert found == {
        ("0", "1"), ("a < 1 and (not cached)", "a < 1 or not cached"), ("a < 1", "a <= 1"), ("a < 1", "a > 1"),
        ("1", "2"), ("1", "0"),
        ("not cached", "cached"), ("cached", "0"), ("max", "min"), ("a.out", "a.back"), ("2 * a", "2 / a"),
        ("2", "3"), ("2", "1"), ("0 * a if a is None else a + b", "a + b if a is None else 0 * a"),
        ("a is None", "a is not None"), ("a + b", "a - b"), ("a + b", "a"), ("a + b", "b"),
    }  # fmt: skip


def test_ids_are_unique_and_every_mutant_is_another_function():
    seen = set()
    for (module, name), function in COST.shipped().items():
        whole = ast.unparse(function)
        for mutant in mutants(module, name, function, changes):
            assert mutant.id not in seen
            assert mutant.source != whole
            seen.add(mutant.id)
        assert ast.unparse(function) == whole
    assert EQUIVALENT.keys() <= seen
    assert len(seen) > 700


def test_every_named_mistake_still_fits_the_source():
    assert len({m.name for m in named(COST.shipped())}) >= 20


def test_a_named_mistake_that_no_longer_fits_is_refused():
    with pytest.raises(ValueError, match=r"needs the function swap\.swap_time"):
        named({})


def test_what_is_called_is_recorded_and_the_functions_are_left_as_they_were():
    before = shipped_swap.whole_block_tokens.__code__
    with COST.recorded() as called:
        shipped_swap.whole_block_tokens(Fraction(17), Fraction(16))
    assert called == {("swap", "whole_block_tokens"), ("number", "round_up")}
    assert shipped_swap.whole_block_tokens.__code__ is before


def answer_of(work):
    answers: list[Any] = []
    run([(work, answers.append)])
    return answers


def test_a_change_lives_in_the_child_only():
    mutant = Mutant("swap", "whole_block_tokens", "", "", 1, "def whole_block_tokens(tokens, block):\n    return 99")

    def changed():
        COST.put(mutant)
        return str(shipped_swap.whole_block_tokens(Fraction(1), Fraction(16)))

    assert answer_of(changed) == ["99"]
    assert shipped_swap.whole_block_tokens(Fraction(1), Fraction(16)) == 16


def spin() -> str:
    time_left(0.2)
    while True:
        pass


def die() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@pytest.mark.parametrize("work", [spin, die])
def test_a_child_that_hangs_or_is_killed_has_no_answer(work):
    assert answer_of(work) == [None]


def wait() -> str:
    time.sleep(60)
    return ""


def test_a_child_that_waits_is_no_dead_mutant(monkeypatch):
    monkeypatch.setattr(children, "SILENCE", 0.1)
    with pytest.raises(WorkFailed, match=r"no answer in 0\.1 s"):
        answer_of(wait)


def test_a_child_that_raises_is_no_dead_mutant():
    with pytest.raises(WorkFailed, match="KeyError: 'x'"):
        answer_of(lambda: dict[str, str]()["x"])
    with pytest.raises(WorkFailed, match="exit 3"):
        answer_of(lambda: os._exit(3))


def hunted(mutant: Mutant, ids: list[str]) -> Killer:
    theorems = [(THEOREMS[id], points(THEOREMS[id]), {(mutant.module, mutant.function)}) for id in ids]
    found = []
    Hunt(theorems, []).all([mutant], lambda _, killer: found.append(killer))
    return found[0]


def test_a_theorem_kills_a_mistake_and_lets_live_what_is_no_change():
    one_way = next(m for m in named(COST.shipped()) if m.name == "one direction only")
    ids = [id for id in THEOREMS if id.startswith("swap/")]
    killer = hunted(one_way, ids)
    assert killer.kind == "theorem"
    assert killer.name.startswith("swap/")
    same = Mutant("swap", "swap_time", "", "", 1, ast.unparse(COST.shipped()["swap", "swap_time"]))
    assert hunted(same, ids[:3]) == Killer()


@pytest.mark.long
def test_every_theorem_stands_at_points_by_plain_arithmetic():
    """Without a solver, and exactly: what is proved of all points holds at these."""
    tried = 0
    for theorem in THEOREMS.values():
        for point in points(theorem):
            assert stands_at(theorem, point), theorem.id
            tried += 1
    assert tried > 5 * len(THEOREMS)
