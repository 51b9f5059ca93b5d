"""What a swap costs: over one link, over two different directions, with copies that have a fixed cost."""

from __future__ import annotations

from typing import Any

from preempt_properties.theorems.settings import ONE, TWO, layers, link, shape, transfer
from preempt_properties.theorems.theorem import (
    BANDWIDTH,
    BLOCK,
    BYTES,
    KV,
    LENGTH,
    SECONDS,
    Theorem,
    equal,
    positive,
    whole,
)
from preempt_spec.cost.copies import staged_bandwidth
from preempt_spec.cost.shape import Shape, State
from preempt_spec.cost.swap import Copies, Directions, Hit, Trip, repeated_swap_time, swap_bandwidth, swap_time

TENSORS = whole("tensors", 2, 256)


def _seconds(kv: Any, bandwidth: Any, length: Any, **how: Any) -> Any:
    return swap_time(shape(ONE, layers(kv)), transfer(link(bandwidth), **how), length)


def _pieces(
    kv: Any, overhead: Any, bandwidth: Any, length: Any, *, block: Any, tensors: Any, copies: Copies = Copies.PER_TENSOR
) -> Any:
    """Blocks copied one by one."""
    how = transfer(link(bandwidth, overhead), block=block, copies=copies)
    return swap_time(shape(ONE, layers(kv, tensors=tensors)), how, length)


def _ways(kv: Any, out: Any, back: Any, length: Any, **how: Any) -> Any:
    return swap_time(shape(ONE, layers(kv)), transfer(link(out), link(back), **how), length)


def _between_half_and_whole(kv: Any, out: Any, back: Any, length: Any) -> bool:
    serial = _ways(kv, out, back, length)
    duplex = _ways(kv, out, back, length, directions=Directions.OVERLAPPED)
    return bool(serial / 2 <= duplex < serial)


def _gathering_saves(kv: Any, overhead: Any, bandwidth: Any, length: Any, block: Any, tensors: Any) -> bool:
    apart = _pieces(kv, overhead, bandwidth, length, block=block, tensors=tensors)
    gathered = _pieces(kv, overhead, bandwidth, length, block=block, tensors=tensors, copies=Copies.GATHERED)
    return equal(apart - gathered, 2 * overhead * (length / block * tensors - 1))


def _kept_copy(kv: Any, out: Any, back: Any, length: Any, times: Any) -> bool:
    once = swap_time(shape(ONE, layers(kv)), transfer(link(out), link(back)), length)
    return bool(
        repeated_swap_time(shape(ONE, layers(kv)), transfer(link(out), link(back)), length, times) < times * once
    )


def _whole_block_saves(kv: Any, overhead: Any, bandwidth: Any, length: Any, block: Any, tensors: Any) -> bool:
    apart = _pieces(kv, overhead, bandwidth, length, block=block, tensors=tensors)
    together = _pieces(kv, overhead, bandwidth, length, block=block, tensors=tensors, copies=Copies.PER_BLOCK)
    return equal(apart - together, 2 * overhead * length / block * (tensors - 1))


THEOREMS = (
    Theorem(
        id="swap/t01-faster-link",
        sentence="A faster link makes a swap strictly shorter, whatever the fixed cost of a copy and the way KV is "
        "cut up.",
        parameters={
            "kv": KV,
            "overhead": SECONDS,
            "slow": BANDWIDTH,
            "fast": BANDWIDTH,
            "length": LENGTH,
            "block": BLOCK,
            "tensors": TENSORS,
        },
        hypotheses={"the second link is faster": lambda slow, fast: slow < fast},
        claim=lambda kv, overhead, slow, fast, length, block, tensors: (
            _pieces(kv, overhead, fast, length, block=block, tensors=tensors)
            < _pieces(kv, overhead, slow, length, block=block, tensors=tensors)
        ),
    ),
    Theorem(
        id="swap/t23-gathering",
        sentence="Gathering a request into one copy saves exactly the fixed cost of every other copy, in both "
        "directions.",
        parameters={
            "kv": KV,
            "overhead": SECONDS,
            "bandwidth": BANDWIDTH,
            "length": LENGTH,
            "block": BLOCK,
            "tensors": TENSORS,
        },
        claim=_gathering_saves,
    ),
    Theorem(
        id="swap/t52-write-through",
        sentence="If the KV was written out beforehand, a swap costs exactly half: counting one way is then right.",
        parameters={"kv": KV, "bandwidth": BANDWIDTH, "length": LENGTH},
        claim=lambda kv, bandwidth, length: equal(
            2 * _seconds(kv, bandwidth, length, trip=Trip.WRITE_THROUGH), _seconds(kv, bandwidth, length)
        ),
    ),
    Theorem(
        id="swap/t53-staging",
        sentence="A copy from pageable memory, staged through a host buffer, is slower than the link and than the "
        "buffer.",
        parameters={"link": BANDWIDTH, "host": BANDWIDTH},
        claim=lambda link, host: staged_bandwidth(link, host) < min(link, host),
    ),
    Theorem(
        id="swap/t53-staging-half",
        sentence="Staging through a host buffer never costs more than half of the slower of link and buffer.",
        parameters={"link": BANDWIDTH, "host": BANDWIDTH},
        claim=lambda link, host: 2 * staged_bandwidth(link, host) >= min(link, host),
    ),
    Theorem(
        id="swap/t58-duplex",
        sentence="Overlapping the two directions of a duplex link saves time, but never more than half of it.",
        parameters={"kv": KV, "out": BANDWIDTH, "back": BANDWIDTH, "length": LENGTH},
        claim=_between_half_and_whole,
    ),
    Theorem(
        id="swap/n01-duplex-equal-ways",
        sentence="Over a duplex link that is equally fast both ways, overlapping saves exactly half.",
        parameters={"kv": KV, "bandwidth": BANDWIDTH, "length": LENGTH},
        claim=lambda kv, bandwidth, length: equal(
            2 * _seconds(kv, bandwidth, length, directions=Directions.OVERLAPPED), _seconds(kv, bandwidth, length)
        ),
    ),
    Theorem(
        id="swap/t75-kept-copy",
        sentence="A request that is preempted more than once pays less per preemption if its host copy is kept.",
        parameters={
            "kv": KV,
            "out": BANDWIDTH,
            "back": BANDWIDTH,
            "length": LENGTH,
            "times": whole("preemptions", 1, 10),
        },
        hypotheses={"it is preempted again": lambda times: times > 1},
        claim=_kept_copy,
    ),
    Theorem(
        id="swap/t82-harmonic-mean",
        sentence="With two different directions, the effective bandwidth of a round trip is their harmonic mean.",
        parameters={"kv": KV, "out": BANDWIDTH, "back": BANDWIDTH, "length": LENGTH},
        claim=lambda kv, out, back, length: equal(
            swap_bandwidth(shape(ONE, layers(kv)), transfer(link(out), link(back)), length),
            TWO * out * back / (out + back),
        ),
    ),
    Theorem(
        id="swap/n02-arithmetic-mean-flatters",
        sentence="Averaging the two directions' bandwidths flatters a round trip whenever they differ.",
        parameters={"kv": KV, "out": BANDWIDTH, "back": BANDWIDTH, "length": LENGTH},
        hypotheses={"the directions differ": lambda out, back: not equal(out, back)},
        claim=lambda kv, out, back, length: (
            swap_bandwidth(shape(ONE, layers(kv)), transfer(link(out), link(back)), length) < (out + back) / 2
        ),
    ),
    Theorem(
        id="swap/n03-slower-way-bounds",
        sentence="However fast one direction is, a round trip runs at less than twice the bandwidth of the other.",
        parameters={"kv": KV, "out": BANDWIDTH, "back": positive("B/s", 1e9, 1e12), "length": LENGTH},
        claim=lambda kv, out, back, length: (
            swap_bandwidth(shape(ONE, layers(kv)), transfer(link(out), link(back)), length) < 2 * back
        ),
    ),
    Theorem(
        id="swap/n93-gathering-a-block",
        sentence="Copying a block whole instead of tensor by tensor saves the fixed cost of every other tensor, out "
        "and back.",
        parameters={
            "kv": KV,
            "overhead": SECONDS,
            "bandwidth": BANDWIDTH,
            "length": LENGTH,
            "block": BLOCK,
            "tensors": TENSORS,
        },
        claim=_whole_block_saves,
    ),
    Theorem(
        id="swap/n94-kinds-of-layers-add",
        sentence="Layers of different kinds cost together what each kind costs by itself.",
        parameters={"kv": KV, "other": KV, "bandwidth": BANDWIDTH, "length": LENGTH, "window": LENGTH},
        claim=lambda kv, other, bandwidth, length, window: equal(
            swap_time(shape(ONE, layers(kv), layers(other, window=window)), transfer(link(bandwidth)), length),
            swap_time(shape(ONE, layers(kv)), transfer(link(bandwidth)), length)
            + swap_time(shape(ONE, layers(other, window=window)), transfer(link(bandwidth)), length),
        ),
    ),
    Theorem(
        id="swap/n95-kept-copy-write-through",
        sentence="If the KV was written out beforehand, each preemption costs the way back and nothing else.",
        parameters={
            "kv": KV,
            "out": BANDWIDTH,
            "back": BANDWIDTH,
            "length": LENGTH,
            "times": whole("preemptions", 1, 10),
        },
        claim=lambda kv, out, back, length, times: equal(
            repeated_swap_time(
                shape(ONE, layers(kv)), transfer(link(out), link(back), trip=Trip.WRITE_THROUGH), length, times
            ),
            times * kv * length / back,
        ),
    ),
    Theorem(
        id="swap/n112-kept-copy-cost",
        sentence="With a host copy that is kept, preemptions cost one way out, and one way back each.",
        parameters={
            "kv": KV,
            "out": BANDWIDTH,
            "back": BANDWIDTH,
            "length": LENGTH,
            "times": whole("preemptions", 1, 10),
        },
        claim=lambda kv, out, back, length, times: equal(
            repeated_swap_time(shape(ONE, layers(kv)), transfer(link(out), link(back)), length, times),
            kv * length / out + times * kv * length / back,
        ),
    ),
    Theorem(
        id="swap/n113-state-by-tensor",
        sentence="Copied tensor by tensor, a recurrent state pays a fixed cost for each of its tensors and crosses "
        "the link once each way, whatever the length.",
        parameters={
            "state": BYTES,
            "overhead": SECONDS,
            "bandwidth": BANDWIDTH,
            "length": LENGTH,
            "block": BLOCK,
            "tensors": TENSORS,
        },
        claim=lambda state, overhead, bandwidth, length, block, tensors: equal(
            swap_time(
                Shape(ONE, ONE, (), State(state, tensors)),
                transfer(link(bandwidth, overhead), block=block, copies=Copies.PER_TENSOR, whole_blocks=True),
                length,
            ),
            2 * (tensors * overhead + state / bandwidth),
        ),
    ),
    Theorem(
        id="swap/n114-hit-by-tensor",
        sentence="A prefix hit that saves bytes saves the copies of its blocks too: the swap is that of the rest "
        "alone.",
        parameters={
            "kv": KV,
            "overhead": SECONDS,
            "bandwidth": BANDWIDTH,
            "length": LENGTH,
            "block": BLOCK,
            "cached": LENGTH,
        },
        claim=lambda kv, overhead, bandwidth, length, block, cached: equal(
            swap_time(
                shape(ONE, layers(kv)),
                how := transfer(
                    link(bandwidth, overhead), block=block, copies=Copies.PER_TENSOR, hit_means=Hit.SAVES_BYTES
                ),
                length + cached,
                cached,
            ),
            swap_time(shape(ONE, layers(kv)), how, length),
        ),
    ),
    Theorem(
        id="swap/n115-hit-bandwidth",
        sentence="A prefix hit that saves bytes leaves the effective bandwidth as it is over a link without fixed "
        "costs.",
        parameters={"kv": KV, "out": BANDWIDTH, "back": BANDWIDTH, "length": LENGTH, "cached": LENGTH},
        claim=lambda kv, out, back, length, cached: equal(
            swap_bandwidth(
                shape(ONE, layers(kv)),
                transfer(link(out), link(back), hit_means=Hit.SAVES_BYTES),
                length + cached,
                cached,
            ),
            TWO * out * back / (out + back),
        ),
    ),
)
