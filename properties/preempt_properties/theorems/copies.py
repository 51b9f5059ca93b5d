"""Copy laws: what a fixed cost per copy does to bandwidth, and what a measured curve may be read as."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from preempt_properties.theorems.settings import ONE, layers, link, shape, transfer
from preempt_properties.theorems.theorem import (
    BANDWIDTH,
    BYTES,
    SECONDS,
    Kind,
    Parameter,
    Theorem,
    equal,
    share,
    whole,
)
from preempt_spec.cost.copies import (
    Law,
    Piecewise,
    copy_time,
    effective_bandwidth,
    half_bandwidth_size,
    overhead_for,
    size_for,
)
from preempt_spec.cost.swap import swap_bandwidth

#: A share that is neither nothing nor all.
PART = Parameter(unit="", above=Fraction(0), below=Fraction(1), usual=(0.05, 0.95))


_LAW = {"overhead": SECONDS, "bandwidth": BANDWIDTH}


def _effective(overhead: Any, bandwidth: Any, size: Any) -> Any:
    return effective_bandwidth(link(bandwidth, overhead), size)


def _concave(law: Law[Any], size: Any, other: Any, part: Any) -> bool:
    mixed = effective_bandwidth(law, part * size + (1 - part) * other)
    return bool(mixed >= part * effective_bandwidth(law, size) + (1 - part) * effective_bandwidth(law, other))


def _trip(out: Any, back: Any, fixed_out: Any, fixed_back: Any, size: Any) -> Any:
    """Effective bandwidth of a round trip with one copy of `size` bytes each way (one byte per token)."""
    return swap_bandwidth(shape(ONE, layers(ONE)), transfer(link(out, fixed_out), link(back, fixed_back)), size)


def _concave_trip(out: Any, back: Any, fixed_out: Any, fixed_back: Any, size: Any, other: Any, part: Any) -> bool:
    def effective(s: Any) -> Any:
        return _trip(out, back, fixed_out, fixed_back, s)

    mixed = effective(part * size + (1 - part) * other)
    return bool(mixed >= part * effective(size) + (1 - part) * effective(other))


def _monotone(law: Law[Any], size: Any, larger: Any) -> bool:
    return bool(effective_bandwidth(law, size) <= effective_bandwidth(law, larger))


def _merged(overhead: Any, bandwidth: Any, size: Any, other: Any) -> bool:
    law = link(bandwidth, overhead)
    return bool(copy_time(law, size + other) <= copy_time(law, size) + copy_time(law, other))


THEOREMS = (
    Theorem(
        id="copies/t18-two-ceilings",
        sentence="The effective bandwidth of a copy is below the link's, and below its size over its fixed cost.",
        parameters={**_LAW, "size": BYTES},
        claim=lambda overhead, bandwidth, size: _effective(overhead, bandwidth, size) < min(bandwidth, size / overhead),
    ),
    Theorem(
        id="copies/n27-half-of-the-ceiling",
        sentence="The effective bandwidth of a copy is at least half of the lower of two ceilings: the link's, and "
        "size over fixed cost.",
        parameters={**_LAW, "size": BYTES},
        claim=lambda overhead, bandwidth, size: (
            2 * _effective(overhead, bandwidth, size) >= min(bandwidth, size / overhead)
        ),
    ),
    Theorem(
        id="copies/t19-larger",
        sentence="Larger copies reach a strictly higher effective bandwidth.",
        parameters={**_LAW, "size": BYTES, "larger": BYTES},
        hypotheses={"the second copy is larger": lambda size, larger: size < larger},
        claim=lambda overhead, bandwidth, size, larger: (
            _effective(overhead, bandwidth, size) < _effective(overhead, bandwidth, larger)
        ),
    ),
    Theorem(
        id="copies/t20-strictly-concave",
        sentence="Two copies of different size reach less on average than two of the average size.",
        parameters={**_LAW, "size": BYTES, "larger": BYTES},
        hypotheses={"the sizes differ": lambda size, larger: not equal(size, larger)},
        claim=lambda overhead, bandwidth, size, larger: (
            _effective(overhead, bandwidth, size) + _effective(overhead, bandwidth, larger)
            < 2 * _effective(overhead, bandwidth, (size + larger) / 2)
        ),
    ),
    Theorem(
        id="copies/t70-concave",
        sentence="Growing copies brings less and less: effective bandwidth is concave in size.",
        parameters={**_LAW, "size": BYTES, "other": BYTES, "part": share()},
        claim=lambda overhead, bandwidth, size, other, part: _concave(link(bandwidth, overhead), size, other, part),
    ),
    Theorem(
        id="copies/h01-concave-round-trip",
        sentence="A round trip over two different laws is no exception: its effective bandwidth, the harmonic mean of "
        "two concave curves, is concave in size.",
        parameters={
            "out": BANDWIDTH,
            "back": BANDWIDTH,
            "fixed_out": SECONDS,
            "fixed_back": SECONDS,
            "size": BYTES,
            "other": BYTES,
            "part": share(),
        },
        claim=_concave_trip,
    ),
    Theorem(
        id="copies/t21-half-bandwidth-size",
        sentence="Copies of the half-bandwidth size reach exactly half of the link's bandwidth.",
        parameters=_LAW,
        claim=lambda overhead, bandwidth: equal(
            2 * _effective(overhead, bandwidth, half_bandwidth_size(link(bandwidth, overhead))), bandwidth
        ),
    ),
    Theorem(
        id="copies/t22-size-for-a-share",
        sentence="A copy reaches the share f of the link's bandwidth exactly from f / (1 − f) half-bandwidth sizes on.",
        parameters={**_LAW, "size": BYTES, "part": PART},
        claim=lambda overhead, bandwidth, size, part: (
            (_effective(overhead, bandwidth, size) >= part * bandwidth)
            == (size >= part / (1 - part) * half_bandwidth_size(link(bandwidth, overhead)))
        ),
    ),
    Theorem(
        id="copies/t80-size-for",
        sentence="A copy reaches a wanted bandwidth below the link's exactly from the size on that is given for it.",
        parameters={**_LAW, "size": BYTES, "wanted": BANDWIDTH},
        hypotheses={"it is below the link's": lambda wanted, bandwidth: wanted < bandwidth},
        claim=lambda overhead, bandwidth, size, wanted: (
            (_effective(overhead, bandwidth, size) >= wanted) == (size >= size_for(link(bandwidth, overhead), wanted))
        ),
    ),
    Theorem(
        id="copies/t81-overhead-for",
        sentence="A copy reaches a wanted bandwidth exactly up to the fixed cost that is given for it.",
        parameters={**_LAW, "size": BYTES, "wanted": BANDWIDTH},
        claim=lambda overhead, bandwidth, size, wanted: (
            (_effective(overhead, bandwidth, size) >= wanted) == (overhead <= overhead_for(size, bandwidth, wanted))
        ),
    ),
    Theorem(
        id="copies/t24-merging",
        sentence="Merging two copies into one is never slower.",
        parameters={**_LAW, "size": BYTES, "other": BYTES},
        claim=_merged,
    ),
    Theorem(
        id="copies/t23-batching",
        sentence="Merging n equal copies into one saves exactly n − 1 fixed costs.",
        parameters={**_LAW, "size": BYTES, "count": whole("copies", 1, 10_000)},
        claim=lambda overhead, bandwidth, size, count: equal(
            count * copy_time(link(bandwidth, overhead), size) - copy_time(link(bandwidth, overhead), count * size),
            (count - 1) * overhead,
        ),
    ),
    Theorem(
        id="copies/t79-protocol-switch",
        kind=Kind.FALSE,
        sentence="Larger copies reach a higher effective bandwidth also if the driver changes its protocol at some "
        "size.",
        parameters={
            "small_overhead": SECONDS,
            "small_bandwidth": BANDWIDTH,
            "switch": BYTES,
            "large_overhead": SECONDS,
            "large_bandwidth": BANDWIDTH,
            "size": BYTES,
            "larger": BYTES,
        },
        hypotheses={"the second copy is larger": lambda size, larger: size < larger},
        claim=lambda small_overhead, small_bandwidth, switch, large_overhead, large_bandwidth, size, larger: _monotone(
            Piecewise(link(small_bandwidth, small_overhead), switch, link(large_bandwidth, large_overhead)),
            size,
            larger,
        ),
        at={
            "small_overhead": Fraction(1, 1_000_000),
            "small_bandwidth": 10_000_000_000,
            "switch": 65_536,
            "large_overhead": Fraction(10, 1_000_000),
            "large_bandwidth": 50_000_000_000,
            "size": 61_440,
            "larger": 65_536,
        },
        shows={
            f"effective, {name}": (effective, "B/s")
            for name, effective in (
                (
                    "below the switch",
                    lambda small_overhead, small_bandwidth, size: _effective(small_overhead, small_bandwidth, size),
                ),
                (
                    "at the switch",
                    lambda large_overhead, large_bandwidth, larger: _effective(large_overhead, large_bandwidth, larger),
                ),
            )
        },
    ),
)
