"""Symbolic numbers do what fractions do, over the functions of the cost model."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from preempt_properties.z3.explore import explore, fold
from preempt_properties.z3.real import integer, number, real
from preempt_properties.z3.solver import in_passing
from preempt_spec.cost.copies import Affine, Piecewise, Tabulated, effective_bandwidth, size_for
from preempt_spec.cost.decide import Setting, best_cost, break_even_bandwidth, regret, speed_up
from preempt_spec.cost.hybrid import hybrid_time
from preempt_spec.cost.number import round_down, round_up
from preempt_spec.cost.recompute import Device, Run, cached_tokens, causal_pairs, recompute_time
from preempt_spec.cost.shape import Layers, Shape, kv_heads_per_gpu
from preempt_spec.cost.spare import decode_step_time, spare_tokens_with_attention
from preempt_spec.cost.swap import Copies, Directions, Hit, Transfer, swap_bandwidth, swap_time

#: Values of the parameters a to f.
POSITIVE = st.fractions(min_value=Fraction(1, 8), max_value=64, max_denominator=8)
NAMES = "abcdef"


def shape(kv: Any, params: Any, window: Any = None) -> Shape[Any]:
    return Shape(params, 2 * params, (Layers(kv, params / 4, params / params, window), Layers(kv, params, 2 * kv / kv)))


def device(rate: Any) -> Device[Any]:
    return Device(rate, 3 * rate, rate / (2 * rate), rate / (3 * rate))


def setting(kv: Any, params: Any, rate: Any, link: Any, hit: Any = None, **how: Any) -> Setting[Any]:
    law = Affine(1 / rate, link)
    return Setting(shape(kv, params), device(rate), Transfer(law, law, 2 * kv / kv, **how), Run.ALONE, hit)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "round up": lambda a, b, **_: round_up(a / b),
    "round down": lambda a, b, **_: round_down(a / b) - round_down(b - a),
    "copies": lambda a, b, c, **_: effective_bandwidth(Affine(a, b), c),
    "size for": lambda a, b, c, **_: size_for(Affine(a, b), b + c),
    "protocol switch": lambda a, b, c, d, **_: effective_bandwidth(Piecewise(Affine(a, b), c, Affine(b, a)), d),
    "table": lambda a, b, c, d, **_: effective_bandwidth(Tabulated((a, a + b, a + b + c), (c, c + a, c + b)), d),
    "pairs": lambda a, b, c, **_: causal_pairs(a + b, a, c),
    "recompute": lambda a, b, c, d, **_: recompute_time(shape(a, b, c), device(d), a + b, b),
    "hit": lambda a, b, c, **_: cached_tokens(a, b / (b + c), c),
    "swap": lambda a, b, c, d, **_: swap_cost(a, b, c, d),
    "swap, saving": lambda a, b, c, d, e, **_: swap_time(
        shape(a, b, c), Transfer(Affine(a, b), Affine(c, d), e, Copies.PER_BLOCK, hit=Hit.SAVES_BYTES), b + c, b
    ),
    "swap, duplex": lambda a, b, c, d, e, **_: swap_bandwidth(
        shape(a, b), Transfer(Affine(a, b), Affine(c, d), e, Copies.GATHERED, directions=Directions.OVERLAPPED), c
    ),
    "heads": lambda a, b, **_: kv_heads_per_gpu(a, b),
    "break-even": lambda a, b, c, d, e, **_: break_even_bandwidth(setting(a, b, c, d, a / (a + b)), e),
    "speed-up": lambda a, b, c, d, e, **_: speed_up(setting(a, b, c, d, whole_blocks=False), e),
    "best": lambda a, b, c, d, e, **_: best_cost(setting(a, b, c, d), e),
    "regret": lambda a, b, c, d, e, f: regret(setting(a, b, c, d), setting(a, b, c, f), e),
    "hybrid": lambda a, b, c, d, e, f: hybrid_time(setting(a, b, c, d), e + f, e),
    "decode": lambda a, b, c, d, e, **_: decode_step_time(shape(a, b, c), device(d), e, a),
    "spare": lambda a, b, c, d, e, f: spare_tokens_with_attention(shape(a, b, c), device(d), e, f, a, b),
}


def swap_cost(a: Any, b: Any, c: Any, d: Any) -> Any:
    return swap_time(shape(a, b, c), Transfer(Affine(a, b), Affine(c, d), b), a + d)


def plain(term: Any, point: dict[str, Fraction]) -> Fraction:
    """A term at a point."""
    values = [(z3.Real(name), z3.Q(x.numerator, x.denominator)) for name, x in point.items()]
    found = z3.simplify(z3.substitute(z3.ToReal(term) if z3.is_int(term) else term, *values))
    return Fraction(found.numerator_as_long(), found.denominator_as_long())


@pytest.fixture(scope="module")
def folded() -> dict[str, Any]:
    symbols = {name: real(name, 1) for name in NAMES}
    above = [symbol.term > 0 for symbol in symbols.values()]
    return {name: fold(partial(f, **symbols), above, in_passing) for name, f in FUNCTIONS.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=20)
@given(values=st.tuples(*[POSITIVE] * 6))
def test_the_term_at_a_point_is_what_fractions_make(folded, name, values):
    point = dict(zip(NAMES, values, strict=True))
    expected = FUNCTIONS[name](**point)
    assert isinstance(expected, Fraction)
    assert plain(folded[name], point) == expected


@pytest.mark.parametrize("name", FUNCTIONS)
def test_some_path_taken_has_that_value_as_a_fraction_of_polynomials(name):
    """What is solved is not the term but numerator and denominator: they say the same on the path that is taken."""
    point = dict(zip(NAMES, (Fraction(n, 12) for n in (28, 60, 6, 27, 36, 132)), strict=True))
    symbols = {name: real(name, 1) for name in NAMES}
    expected, found = FUNCTIONS[name](**point), []
    for path in explore(lambda: FUNCTIONS[name](**symbols)):
        solver = z3.Solver()
        solver.add(*path.conditions, *(z3.Real(n) == z3.Q(x.numerator, x.denominator) for n, x in point.items()))
        if solver.check() == z3.sat:
            model, value = solver.model(), path.value
            den = math.prod((Fraction(str(model.eval(factor))) for factor in value.den), start=Fraction(1))
            assert den > 0
            found.append(Fraction(str(model.eval(value.num))) / den)
    assert found == [expected]


def one(function: Callable[[], Any]) -> Any:
    [path] = explore(function)
    return path.value


X, Y, N = real("x"), real("y", 1), integer("n", 1)


@pytest.mark.parametrize("use", [lambda: X == Y, lambda: X != Y, lambda: X == 1, lambda: bool(X), lambda: hash(X)])
def test_what_cannot_fork_raises(use):
    with pytest.raises(TypeError):
        use()


@pytest.mark.parametrize(
    "use", [lambda: X + 0.5, lambda: 0.5 * X, lambda: X < 0.5, lambda: float(X), lambda: math.sqrt(Y)]
)
def test_floats_are_no_exact_numbers(use):
    with pytest.raises(TypeError):
        use()


@pytest.mark.parametrize(
    "use",
    [lambda: X + True, lambda: X + "1", lambda: X < None, lambda: X**Y, lambda: X**-1, lambda: int(X)],  # type: ignore[call-overload]
)
def test_other_things_are_no_numbers(use):
    with pytest.raises(TypeError):
        use()


def test_comparing_outside_of_an_exploration_raises():
    with pytest.raises(TypeError, match="explores"):
        _ = X < Y
    with pytest.raises(TypeError, match="explores"):
        math.ceil(X)


def test_a_comparison_forks_once_for_the_same_question():
    assert [p.value for p in explore(lambda: (X < Y, Y > X, not X >= Y))] == [(True,) * 3, (False,) * 3]


def test_known_signs_fork_nowhere():
    assert one(lambda: (Y > 0, Y * Y + 2 * Y / N >= 0, X * X < 0, N / Y > 0)) == (True, True, False, True)


def test_a_divisor_of_unknown_sign_forks_three_ways():
    values = [p.value for p in explore(lambda: 1 / X > 0, ask=in_passing)]
    assert sorted(str(v) for v in values) == ["False", "True", "division by zero"]


def test_whole_numbers_need_no_rounding():
    assert one(lambda: math.ceil(N)).num.eq(N.num)
    assert one(lambda: math.floor(N * 2)).term.sort() == z3.RealSort()


def test_max_min_and_abs_are_pythons():
    at = {"x": Fraction(-3, 2), "y": Fraction(1, 3)}
    assert plain(fold(lambda: max(X, Y) - min(X, Y) + abs(X)), at) == Fraction(1, 3) + Fraction(3, 2) + Fraction(3, 2)


def test_whole_division_and_powers():
    at = {"x": Fraction(-7, 2), "y": Fraction(2)}
    assert plain(fold(lambda: X // Y + 7 // Y + X**2 + X**0), at) == -2 + 3 + Fraction(49, 4) + 1
    assert plain(number(Fraction(2, 6)).term, {}) == Fraction(1, 3)
