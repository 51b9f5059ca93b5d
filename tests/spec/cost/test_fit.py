"""Fits to measured curves: what they find, what is left over, and the curves that no affine law can pass through.

The numbers are the published ones: GB/s per direction at a size in KiB.
"""

from __future__ import annotations

from fractions import Fraction as Q

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from preempt_spec.cost.copies import Affine, copy_time, effective_bandwidth
from preempt_spec.cost.fit import (
    FASTER,
    SLOWER,
    Fit,
    Point,
    Refutation,
    RefutedError,
    described,
    fit_affine,
    fit_prefill,
    nearest_affine,
    point_from_bandwidth,
    refutations,
    tabulated,
)
from preempt_spec.cost.recompute import compute_time

KIB = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
# vLLM blog 2026-01-08, figures 3 and 4, digitised to ± 0.15 GB/s: H100, 1000 copies of a block, one DMA or kernel each.
OUT_DMA = ("0.92", "2.2", "4.6", "8.28", "15.33", "21.52", "29.28", "37.05", "42.42", "46.2", "48.6", "50.03", "50.7")
IN_DMA = (
    "1.21",
    "2.32",
    "4.29",
    "7.56",
    "14.47",
    "22.74",
    "31.76",
    "39.38",
    "44.32",
    "47.7",
    "49.76",
    "50.67",
    "51.13",
)
OUT_KERNEL = (
    "5.37", "21.93", "30.46", "34.24", "40.99", "45.43", "46.87", "47.99", "48.35", "48.65", "48.76", "48.81", "48.86",
)  # fmt: skip
IN_KERNEL = (
    "12.66", "24.35", "30.66", "35.85", "41.8", "44.02", "46.13", "46.84", "47.29", "47.6", "47.65", "47.7", "47.8",
)  # fmt: skip
# vllm-project/vllm#42212: one call of a batch copy API, 100,000 pages, into the device.
CLIFF_KIB, CLIFF = (4, 8, 16, 24, 28, 64), ("3.8", "5.3", "6.3", "6.9", "44.1", "51.8")


def curve(kib: tuple[int, ...], gbps: tuple[str, ...], error: str = "0") -> list[Point[Q]]:
    pairs = zip(kib, gbps, strict=True)
    return [point_from_bandwidth(Q(k * 1024), Q(g) * 10**9, Q(error) * 10**9) for k, g in pairs]


def sizes(refutation: Refutation[Q]) -> tuple[int, int]:
    return int(refutation.small.size), int(refutation.large.size)


def in_units(fit: Fit[Q]) -> tuple[str, str]:
    return f"{float(fit.law.overhead * 10**6):.2f} µs", f"{float(fit.law.bandwidth / 10**9):.1f} GB/s"


def test_copies_into_the_device_are_affine():
    fit = fit_affine(curve(KIB, IN_DMA, "0.15"))
    assert in_units(fit) == ("3.40 µs", "52.1 GB/s")
    assert fit.worst < Q(75, 1000)
    assert fit.worst == max(abs(r) for r in fit.residuals)
    points = curve(KIB, IN_DMA)
    assert fit.residuals == tuple(copy_time(fit.law, p.size) / p.seconds - 1 for p in points)


def test_copies_out_of_the_device_are_not_at_4_kib_and_are_from_8_kib_on():
    points = curve(KIB, OUT_DMA, "0.15")
    with pytest.raises(RefutedError, match=r"grows faster than size, from 0\.92 GB/s at 4,096 bytes to 4\.6 GB/s"):
        fit_affine(points)
    assert [sizes(r) for r in refutations(points)] == [(4096, 16384)]
    # The law nearest to all points is the one that the facts give; it misses the smallest copies by a fifth.
    nearest = nearest_affine(points)
    assert in_units(nearest) == ("3.48 µs", "50.6 GB/s")
    assert nearest.residuals[0] < Q(-19, 100)
    assert in_units(fit_affine(points[1:])) == ("3.33 µs", "50.1 GB/s")


def test_a_kernel_copy_out_is_refuted_between_4_and_8_kib_and_one_in_is_not():
    assert sizes(refutations(curve(KIB, OUT_KERNEL, "0.15"))[0]) == (4096, 8192)
    assert fit_affine(curve(KIB, IN_KERNEL, "0.15")).worst > Q(11, 100)


def test_the_cliff_of_the_batch_copy_api_is_refuted_by_the_pair_around_it():
    points = curve(CLIFF_KIB, CLIFF)
    with pytest.raises(RefutedError) as refuted:
        fit_affine(points)
    first = refuted.value.pairs[0]
    assert sizes(first) == (24 * 1024, 28 * 1024)
    assert first.reason == FASTER
    assert (
        str(refuted.value) == "no affine law fits: effective bandwidth grows faster than size, "
        "from 6.9 GB/s at 24,576 bytes to 44.1 GB/s at 28,672 bytes"
    )
    # As they are, the points make a law all the same, and it passes through them.
    law = tabulated(points)
    for point, gbps in zip(points, CLIFF, strict=True):
        assert effective_bandwidth(law, point.size) == Q(gbps) * 10**9


def test_bandwidth_that_falls_with_size_refutes_too():
    (refutation,) = refutations(curve((32, 64), ("10", "9")))
    assert refutation.reason == SLOWER
    assert described(refutation).startswith("effective bandwidth falls as size grows, from 10 GB/s")


def test_an_error_of_measurement_that_could_explain_a_pair_takes_its_proof_away():
    assert refutations(curve((32, 64), ("10", "9"), "0.4"))
    assert not refutations(curve((32, 64), ("10", "9"), "0.5"))
    assert refutations(curve((4, 8), ("1", "3"), "0.3"))
    assert not refutations(curve((4, 8), ("1", "3"), "0.4"))


def test_without_an_error_a_point_is_what_was_measured():
    p = point_from_bandwidth(Q(4096), Q(1024))
    assert p == Point(Q(4096), Q(4), Q(4), Q(4))


def test_equal_times_refute_nothing():
    assert refutations(curve((4, 8), ("1", "2"))) == ()
    assert refutations(curve((4, 8), ("1", "1"))) == ()


def test_an_error_as_large_as_the_figure_leaves_nothing():
    for error in (Q(10), Q(11)):
        with pytest.raises(ValueError, match=r"^error: "):
            point_from_bandwidth(Q(4096), Q(10), error)


LAWS = st.builds(
    Affine[Q],
    st.integers(0, 20_000).map(lambda ns: Q(ns, 10**9)),
    st.integers(1, 500).map(lambda gbps: Q(gbps * 10**9)),
)
SIZES = st.lists(st.integers(1, 2**24), min_size=2, max_size=8, unique=True).map(sorted)


@settings(max_examples=60)
@given(law=LAWS, chosen=SIZES)
def test_points_of_an_affine_law_give_it_back_exactly(law, chosen):
    times = [(Q(n), copy_time(law, Q(n))) for n in chosen]
    points = [Point(n, t, t, t) for n, t in times]
    fit = fit_affine(points)
    assert fit.law == law
    assert fit.worst == 0


@settings(max_examples=60)
@given(
    points=st.lists(
        st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=2, max_size=5, unique_by=lambda p: p[0]
    ).map(sorted),
    law=LAWS,
)
def test_a_refuted_pair_is_passed_by_no_affine_law(points, law):
    measured = [Point(Q(n), Q(t, 10**9), Q(t, 10**9), Q(t, 10**9)) for n, t in points]
    for refutation in refutations(measured):
        a, b = refutation.small, refutation.large
        assert a.size < b.size
        assert (copy_time(law, a.size), copy_time(law, b.size)) != (a.seconds, b.seconds)
        # And the only line through the two is no law: it falls, or starts below zero.
        slope = (b.seconds - a.seconds) / (b.size - a.size)
        assert slope < 0 or a.seconds - slope * a.size < 0


@settings(max_examples=40)
@given(data=st.data())
def test_no_law_near_the_fit_is_nearer(data):
    chosen = data.draw(SIZES)
    points = [Point(Q(n), t, t, t) for n, t in ((n, Q(data.draw(st.integers(1, 10**6)), 10**9)) for n in chosen)]
    try:
        law = nearest_affine(points).law
    except ValueError:
        return

    def misfit(other: Affine[Q]) -> Q:
        return sum(((copy_time(other, p.size) / p.seconds - 1) ** 2 for p in points), start=Q(0))

    nudge = Q(data.draw(st.sampled_from((-1, 1))), 1000)
    assert misfit(law) <= misfit(evolve(law, bandwidth=law.bandwidth * (1 + nudge)))
    more = max(Q(0), law.overhead + nudge * points[0].seconds)
    assert misfit(law) <= misfit(evolve(law, overhead=more))


def test_an_overhead_below_zero_is_taken_for_none():
    points = [Point(Q(n), Q(t), Q(t), Q(t)) for n, t in ((100, 1), (200, 3))]
    fit = nearest_affine(points)
    # Through the origin: per byte Σ v / Σ v² with v = size / time, here 100 and 200/3.
    assert fit.law == Affine(Q(0), (Q(100) ** 2 + Q(200, 3) ** 2) / (Q(100) + Q(200, 3)))


def test_times_that_do_not_grow_have_no_bandwidth():
    points = [Point(Q(n), Q(t), Q(t), Q(t)) for n, t in ((100, 3), (200, 1))]
    with pytest.raises(ValueError, match="does not grow"):
        nearest_affine(points)


# -- prefill -----------------------------------------------------------------------------------------------------------

# vLLM blog 2026-01-08, figure 1 (digitised): Llama-3.1-8B on one H100, milliseconds of prefill.
PREFILL = dict(
    zip(range(10_000, 110_000, 10_000), (268, 634, 1099, 1657, 2286, 3009, 3845, 4793, 5742, 6850), strict=True)
)


def test_measured_prefills_need_two_efficiencies(llama_8b):
    peak = llama_8b.device.peak_flops
    fit = fit_prefill(llama_8b.shape, peak, [Q(n) for n in PREFILL], [Q(ms, 1000) for ms in PREFILL.values()])
    assert round(float(fit.gemm_efficiency), 2) == 0.73
    assert round(float(fit.attention_efficiency), 2) == 0.57
    assert fit.worst < Q(11, 1000)


def test_prefills_of_the_model_itself_give_its_efficiencies_back(llama_8b):
    device = evolve(llama_8b.device, gemm_efficiency=Q(7, 10), attention_efficiency=Q(4, 10))
    lengths = [Q(1), Q(10), Q(100_000)]
    seconds = [compute_time(llama_8b.shape, device, n) for n in lengths]
    fit = fit_prefill(llama_8b.shape, device.peak_flops, lengths, seconds)
    assert (fit.gemm_efficiency, fit.attention_efficiency) == (Q(7, 10), Q(4, 10))
    assert fit.worst == 0
    slower = fit_prefill(llama_8b.shape, device.peak_flops, lengths, [*seconds[:2], 2 * seconds[2]])
    assert slower.worst == max(abs(r) for r in slower.residuals) > 0


@pytest.mark.parametrize("power", [1, 2])
def test_prefills_of_one_kernel_alone_leave_the_other_without_an_efficiency(llama_8b, power):
    lengths = [Q(1000), Q(2000)]
    with pytest.raises(ValueError, match="seconds"):
        fit_prefill(llama_8b.shape, Q(10**15), lengths, [n**power for n in lengths])


def test_prefills_that_get_cheaper_per_token_are_no_sum_of_the_two(llama_8b):
    with pytest.raises(ValueError, match="seconds"):
        fit_prefill(llama_8b.shape, Q(10**15), [Q(10_000), Q(100_000)], [Q(1), Q(2)])
