"""Measured curves: what they may be read as, and which of them rule a law out."""

from __future__ import annotations

from typing import Any

from preempt_properties.theorems.settings import ONE, ZERO, layers, link, shape
from preempt_properties.theorems.theorem import (
    BANDWIDTH,
    BYTES,
    SECONDS,
    Parameter,
    Theorem,
    equal,
    positive,
    share,
)
from preempt_spec.cost.copies import (
    Piecewise,
    Tabulated,
    copy_time,
    covers,
    effective_bandwidth,
)
from preempt_spec.cost.fit import (
    FASTER,
    SLOWER,
    Point,
    Refutation,
    fit_prefill,
    nearest_affine,
    point_from_bandwidth,
    refutations,
)
from preempt_spec.cost.recompute import Device, compute_time

#: A share that is neither nothing nor all.
PART = Parameter(unit="", above=ZERO, below=ONE, usual=(0.05, 0.95))

_LAW = {"overhead": SECONDS, "bandwidth": BANDWIDTH}


_CURVE = {"small": BYTES, "large": BYTES, "first": SECONDS, "second": SECONDS}


_IN_ORDER = {"the sizes are in order": lambda small, large: small < large}


_LONGER = {"the larger copy does not take less": lambda first, second: first <= second}


def _effective(overhead: Any, bandwidth: Any, size: Any) -> Any:
    return effective_bandwidth(link(bandwidth, overhead), size)


def _table(small: Any, large: Any, first: Any, second: Any) -> Tabulated[Any]:
    return Tabulated(sizes=(small, large), seconds=(first, second))


def _three(small: Any, middle: Any, large: Any, first: Any, second: Any, third: Any) -> Tabulated[Any]:
    return Tabulated(sizes=(small, middle, large), seconds=(first, second, third))


def _between(value: Any, one: Any, other: Any) -> bool:
    return bool(min(one, other) <= value <= max(one, other))


def _interpolated_bandwidth(small: Any, large: Any, first: Any, second: Any, part: Any) -> bool:
    law = _table(small, large, first, second)
    size = small + part * (large - small)
    return _between(effective_bandwidth(law, size), small / first, large / second)


def _not_refuted(overhead: Any, bandwidth: Any, small: Any, large: Any) -> bool:
    law = link(bandwidth, overhead)
    points = [point_from_bandwidth(size, effective_bandwidth(law, size)) for size in (small, large)]
    return not refutations(points)


def _recovered(overhead: Any, bandwidth: Any, small: Any, large: Any) -> bool:
    law = link(bandwidth, overhead)
    points = [point_from_bandwidth(size, effective_bandwidth(law, size)) for size in (small, large)]
    found = nearest_affine(points)
    exact = found.worst <= 0
    return exact and equal(found.law.overhead, overhead) and equal(found.law.bandwidth, bandwidth)


def _covered(small: Any, large: Any, switch: Any, size: Any) -> bool:
    """A curve up to the switch and an affine law, which claims every size, from there on; or the other way round."""
    curve, law = _table(small, large, ONE, ONE), link(ONE)
    inside = bool(small <= size <= large)
    return (
        covers(curve, size) == inside
        and covers(law, size)
        and covers(Piecewise(curve, switch, law), size) == (inside or bool(switch <= size))
        and covers(Piecewise(law, switch, curve), size) == (inside or bool(size < switch))
    )


def _names(refutation: Refutation[Any], small: Any, large: Any) -> bool:
    return equal(refutation.small.size, small) and equal(refutation.large.size, large)


def _bars_allow(
    overhead: Any, bandwidth: Any, small: Any, large: Any, under: Any, over: Any, below: Any, above: Any
) -> bool:
    """Error bars around the law's times: shorter by one part, longer by another, each point its own."""

    def point(size: Any, shorter: Any, longer: Any) -> Point[Any]:
        seconds = copy_time(link(bandwidth, overhead), size)
        return Point(size, seconds, (1 - shorter) * seconds, (1 + longer) * seconds)

    return not refutations([point(small, under, over), point(large, below, above)])


def _bars(size: Any, bandwidth: Any, error: Any) -> bool:
    point = point_from_bandwidth(size, bandwidth, error)
    ends = ((point.seconds, bandwidth), (point.shortest, bandwidth + error), (point.longest, bandwidth - error))
    return all(equal(size / seconds, reached) for seconds, reached in ends)


def _named(small: Any, large: Any, slow: Any, fast: Any) -> bool:
    found = refutations([point_from_bandwidth(small, slow), point_from_bandwidth(large, fast)])
    return len(found) == 1 and found[0].reason == FASTER and _names(found[0], small, large)


def _named_slower(small: Any, large: Any, slow: Any, fast: Any) -> bool:
    found = refutations([point_from_bandwidth(small, fast), point_from_bandwidth(large, slow)])
    return len(found) == 1 and found[0].reason == SLOWER and _names(found[0], small, large)


def _prefill_recovered(pair: Any, gemm: Any, attention: Any, length: Any) -> bool:
    """In units of the shorter length, and of the FLOP of its products per token."""
    model, gpu = shape(ONE, layers(ONE, pair)), Device(ONE, ONE, gemm, attention)
    lengths = (ONE, length)
    found = fit_prefill(model, ONE, lengths, [compute_time(model, gpu, n) for n in lengths])
    return equal(found.gemm_efficiency, gemm) and equal(found.attention_efficiency, attention)


THEOREMS = (
    Theorem(
        id="measured/t54-faster-than-size",
        sentence="No law with a fixed cost and a bandwidth lets effective bandwidth grow faster than size.",
        parameters={**_LAW, "size": BYTES, "larger": BYTES},
        hypotheses={"the second copy is larger": lambda size, larger: size < larger},
        claim=lambda overhead, bandwidth, size, larger: (
            _effective(overhead, bandwidth, larger) / _effective(overhead, bandwidth, size) < larger / size
        ),
    ),
    Theorem(
        id="measured/n28-refutation-is-fair",
        sentence="Points that lie on a law with a fixed cost and a bandwidth are never refuted.",
        parameters={**_LAW, "small": BYTES, "large": BYTES},
        hypotheses=_IN_ORDER,
        claim=_not_refuted,
    ),
    Theorem(
        id="measured/n29-refutation-names-speed",
        sentence="Two points of which the larger copy is quicker are refuted, for growing faster than size.",
        parameters={"small": BYTES, "large": BYTES, "slow": BANDWIDTH, "fast": BANDWIDTH},
        hypotheses={
            **_IN_ORDER,
            "bandwidth grows faster than size": lambda small, large, slow, fast: large / small < fast / slow,
        },
        claim=_named,
    ),
    Theorem(
        id="measured/n30-refutation-names-slowness",
        sentence="Two points of which the larger copy has the lower effective bandwidth are refuted, for falling.",
        parameters={"small": BYTES, "large": BYTES, "slow": BANDWIDTH, "fast": BANDWIDTH},
        hypotheses={**_IN_ORDER, "bandwidth falls": lambda slow, fast: slow < fast},
        claim=_named_slower,
    ),
    Theorem(
        id="measured/t55-two-sizes-suffice",
        sentence="Two sizes determine fixed cost and bandwidth: fitting two points of a law gives that law back.",
        parameters={**_LAW, "small": BYTES, "large": BYTES},
        hypotheses=_IN_ORDER,
        claim=_recovered,
    ),
    Theorem(
        id="measured/n31-table-at-its-points",
        sentence="A measured curve gives back what was measured, at each of its points.",
        parameters={
            "small": BYTES,
            "middle": BYTES,
            "large": BYTES,
            "first": SECONDS,
            "second": SECONDS,
            "third": SECONDS,
        },
        hypotheses={"the sizes are in order": lambda small, middle, large: small < middle < large},
        claim=lambda small, middle, large, first, second, third: all(
            equal(copy_time(_three(small, middle, large, first, second, third), size), seconds)
            for size, seconds in ((small, first), (middle, second), (large, third))
        ),
    ),
    Theorem(
        id="measured/n32-table-between-points",
        sentence="Between two measured points a copy takes neither less nor more than both of them.",
        parameters={**_CURVE, "part": share()},
        hypotheses=_IN_ORDER,
        claim=lambda small, large, first, second, part: _between(
            copy_time(_table(small, large, first, second), small + part * (large - small)), first, second
        ),
    ),
    Theorem(
        id="measured/n33-table-bandwidth-between-points",
        sentence="Between two measured points the effective bandwidth lies between theirs.",
        parameters={**_CURVE, "part": share()},
        hypotheses=_IN_ORDER,
        claim=_interpolated_bandwidth,
    ),
    Theorem(
        id="measured/n34-table-monotone",
        sentence="If larger measured copies never took less time, neither do those that the curve makes up, in "
        "between and beyond.",
        parameters={**_CURVE, "size": BYTES, "larger": BYTES},
        hypotheses={
            **_IN_ORDER,
            **_LONGER,
            "the second copy is larger": lambda size, larger: size < larger,
        },
        assumed={"the sizes are in order": "a curve out of order is refused before it is used, and means nothing"},
        claim=lambda small, large, first, second, size, larger: (
            copy_time(_table(small, large, first, second), size)
            <= copy_time(_table(small, large, first, second), larger)
        ),
    ),
    Theorem(
        id="measured/n35-table-beyond",
        sentence="Beyond the largest measured size a copy runs at the last measured bandwidth, and no faster.",
        parameters={**_CURVE, "size": BYTES},
        hypotheses={**_IN_ORDER, "it lies beyond": lambda large, size: size > large},
        claim=lambda small, large, first, second, size: equal(
            effective_bandwidth(_table(small, large, first, second), size), large / second
        ),
    ),
    Theorem(
        id="measured/n36-table-of-a-law",
        sentence="A curve measured off a law never promises more bandwidth than the law has, at any size.",
        parameters={**_LAW, "small": BYTES, "large": BYTES, "size": BYTES},
        claim=lambda overhead, bandwidth, small, large, size: (
            effective_bandwidth(
                _table(
                    small,
                    large,
                    copy_time(link(bandwidth, overhead), small),
                    copy_time(link(bandwidth, overhead), large),
                ),
                size,
            )
            <= _effective(overhead, bandwidth, size)
        ),
    ),
    Theorem(
        id="measured/n101-prefill-recovered",
        sentence="Two measured prefills of different length determine both efficiencies: fitting them gives back "
        "those they were run with.",
        parameters={
            "pair": positive("FLOP/pair", 1e4, 1e7),
            "gemm": positive("", 0.3, 0.9),
            "attention": positive("", 0.2, 0.8),
            "length": positive("tokens", 1, 1e6),
        },
        hypotheses={"the lengths differ": lambda length: length > 1},
        claim=_prefill_recovered,
    ),
    Theorem(
        id="measured/n123-error-bars-allow",
        sentence="Points are not refuted either if the law passes anywhere through their error bars.",
        parameters={
            **_LAW,
            "small": BYTES,
            "large": BYTES,
            "under": PART,
            "over": PART,
            "below": PART,
            "above": PART,
        },
        hypotheses=_IN_ORDER,
        claim=_bars_allow,
    ),
    Theorem(
        id="measured/n124-error-bars",
        sentence="The error of a measured bandwidth becomes the ends of the time: the fastest the shortest.",
        parameters={"size": BYTES, "bandwidth": BANDWIDTH, "error": BANDWIDTH},
        hypotheses={"the error is smaller than the bandwidth": lambda bandwidth, error: error < bandwidth},
        claim=_bars,
    ),
    Theorem(
        id="measured/n129-covers",
        sentence="A curve covers exactly the sizes from its smallest to its largest; past a protocol switch, the "
        "other curve's.",
        parameters={"small": BYTES, "large": BYTES, "switch": BYTES, "size": BYTES},
        claim=_covered,
    ),
)
