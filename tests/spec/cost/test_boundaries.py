"""Where formulas meet: ties, ends and first points, each of which some small change of the code would move."""

from __future__ import annotations

from fractions import Fraction as Q
from typing import Any

import pytest
from attrs import evolve

from preempt_spec.cost.certify import certify
from preempt_spec.cost.checked import check_length
from preempt_spec.cost.copies import Affine, Tabulated
from preempt_spec.cost.decide import Setting, break_even_link, overhead_cost, recompute_cost, swap_cost
from preempt_spec.cost.fit import fit_prefill
from preempt_spec.cost.lengths import rates, recompute_lengths
from preempt_spec.cost.recompute import Device, Run, compute_time, weight_time
from preempt_spec.cost.shape import Layers, Shape
from preempt_spec.cost.swap import Copies, Hit, Transfer, extrapolated_sizes

ONE = Q(1)


def setting(link: Affine[Q], weights: Q = ONE, run: Run = Run.ALONE) -> Setting[Q]:
    """Per token: 2 bytes of KV, 2 seconds of products; attention half a second per token squared."""
    shape = Shape(ONE, weights, (Layers(Q(2), ONE, ONE),))
    transfer = Transfer(link, link, ONE, Copies.GATHERED, whole_blocks=False)
    return Setting(shape, Device(ONE, ONE, ONE, ONE), transfer, run)


def test_no_certificate_says_that_arithmetic_takes_longer_when_it_takes_as_long():
    # 4 tokens: 16 bytes there and back in 16 s; 8 + 8 s of arithmetic; 20 s to read the weights.
    s, length = setting(Affine(Q(0), ONE), weights=Q(20)), Q(4)
    assert swap_cost(s, length) == compute_time(s.shape, s.device, length) < weight_time(s.shape, s.device)
    assert "The arithmetic alone takes longer" not in " ".join(certify(s, length).why)
    assert certify(s, length).length.most == length


@pytest.mark.parametrize(("run", "said"), [(Run.ALONE, 1), (Run.PIGGYBACK, 0)])
def test_a_certificate_speaks_of_reading_weights_where_they_are_read(run, said):
    slow = setting(Affine(Q(0), Q(1, 100)), run=run)
    assert sum("reading the weights" in sentence for sentence in certify(slow, Q(4)).why) == said


def test_overhead_as_long_as_the_recompute_leaves_nothing_to_a_link():
    s, length = setting(Affine(Q(8), ONE)), Q(4)
    assert overhead_cost(s, length) == recompute_cost(s, length)
    assert break_even_link(s, length) is None
    assert break_even_link(evolve(s, run=Run.PIGGYBACK), length + 1) is not None


def test_a_thousand_trillions_are_written_with_an_exponent():
    with pytest.raises(ValueError, match=r"length: 1e\+15 tokens are more than the model's context of 999999999999999"):
        check_length(Q(10**15), Q(10**15 - 1))


def test_prefills_of_which_times_are_missing_are_refused():
    shape = setting(Affine(Q(0), ONE)).shape
    with pytest.raises(ValueError, match="shorter"):
        fit_prefill(shape, ONE, [Q(1), Q(2), Q(3)], [Q(3), Q(6)])


def test_the_worst_residual_may_be_a_time_that_the_model_falls_short_of():
    shape = setting(Affine(Q(0), ONE)).shape
    lengths = [Q(1), Q(2), Q(3), Q(4)]
    exact = [2 * n + n * n / 2 for n in lengths]
    fit = fit_prefill(shape, ONE, lengths, [*exact[:3], exact[3] * 3 / 2])
    assert fit.worst == -min(fit.residuals) > max(fit.residuals)


def test_one_windowed_kind_among_others_bends_the_cost():
    s = setting(Affine(Q(0), ONE))
    [plain] = s.shape.layers
    mixed = evolve(s, shape=evolve(s.shape, layers=(plain, evolve(plain, window=Q(8)))))
    assert rates(s).swap == 4
    with pytest.raises(ValueError, match="window"):
        rates(mixed)


@pytest.mark.parametrize("way", ["out", "back"])
def test_a_fixed_cost_of_either_direction_is_no_cost_per_token(way):
    s = setting(Affine(Q(0), ONE))
    change: dict[str, Any] = {way: Affine(ONE, ONE)}
    costly = evolve(s, transfer=evolve(s.transfer, **change))
    with pytest.raises(ValueError, match="copies"):
        rates(costly)


@pytest.mark.parametrize("way", ["out", "back"])
def test_a_size_that_either_direction_was_not_measured_at_is_named(way):
    s, measured = setting(Affine(Q(0), ONE)), Tabulated((Q(2), Q(6)), (ONE, Q(2)))
    change: dict[str, Any] = {way: measured}
    transfer = evolve(s.transfer, **change)
    assert extrapolated_sizes(s.shape, transfer, Q(4)) == (Q(8),)
    assert extrapolated_sizes(s.shape, transfer, Q(3)) == ()


def test_a_hit_of_everything_with_a_window_that_saves_its_bytes_divides_by_nothing():
    s = setting(Affine(Q(0), Q(1, 2)))
    [plain] = s.shape.layers
    shape, transfer = evolve(s.shape, layers=(evolve(plain, window=Q(5)),)), evolve(s.transfer, hit=Hit.SAVES_BYTES)
    cached = evolve(s, shape=shape, transfer=transfer, hit=ONE)
    tried = [n for n in range(1, 21) if recompute_cost(cached, Q(n)) < swap_cost(cached, Q(n))]
    assert [n for span in recompute_lengths(cached, 20) for n in range(span.first, span.last + 1)] == tried
