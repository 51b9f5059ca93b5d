"""The decision by bandwidth: what copies achieve against break-even, and the link that break-even asks for."""

from __future__ import annotations

from typing import Any

from preempt_properties.theorems.settings import ONE, TWO, device, layers, link, shape, transfer
from preempt_properties.theorems.theorem import (
    BANDWIDTH,
    BLOCK,
    FLOPS,
    KV,
    LENGTH,
    PARAMS,
    Theorem,
    equal,
    nonnegative,
)
from preempt_spec.cost.decide import (
    Choice,
    Setting,
    achieved_bandwidth,
    break_even_bandwidth,
    break_even_link,
    choose,
    overhead_cost,
    recompute_cost,
    speed_up,
    swap_cost,
)
from preempt_spec.cost.recompute import Run
from preempt_spec.cost.swap import Copies, Directions, Trip, moved_bytes

_COPIES = {
    "kv": KV,
    "params": PARAMS,
    "flops": FLOPS,
    "bandwidth": BANDWIDTH,
    "overhead": nonnegative("s", 1e-6, 2e-5),
    "block": BLOCK,
    "length": LENGTH,
}


def _copied(
    kv: Any, params: Any, flops: Any, bandwidth: Any, overhead: Any, block: Any, whole_blocks: bool, **how: Any
) -> Setting[Any]:
    """Copies block by block, with a fixed cost each."""
    return Setting(
        shape=shape(params, layers(kv, tensors=TWO)),
        device=device(flops),
        transfer=transfer(
            link(bandwidth, overhead), block=block, copies=Copies.PER_TENSOR, whole_blocks=whole_blocks, **how
        ),
        run=Run.PIGGYBACK,
    )


def _by_bandwidth(
    kv: Any, params: Any, flops: Any, bandwidth: Any, overhead: Any, block: Any, length: Any, **how: Any
) -> bool:
    setting = _copied(kv, params, flops, bandwidth, overhead, block, True, **how)
    above = achieved_bandwidth(setting, length) > break_even_bandwidth(setting, length)
    return bool((choose(setting, length) is Choice.SWAP) == above)


def _two_laws(kv: Any, params: Any, flops: Any, out: Any, back: Any, length: Any) -> bool:
    setting = Setting(shape(params, layers(kv)), device(flops), transfer(link(out), link(back)), Run.PIGGYBACK)
    above = achieved_bandwidth(setting, length) > break_even_bandwidth(setting, length)
    return bool((choose(setting, length) is Choice.SWAP) == above)


def _ratio_is_speed_up(
    kv: Any, params: Any, flops: Any, bandwidth: Any, overhead: Any, block: Any, length: Any
) -> bool:
    setting = _copied(kv, params, flops, bandwidth, overhead, block, True)
    return equal(speed_up(setting, length), achieved_bandwidth(setting, length) / break_even_bandwidth(setting, length))


def _link_is_a_break_even(
    kv: Any, params: Any, flops: Any, bandwidth: Any, overhead: Any, block: Any, length: Any
) -> bool:
    needed = break_even_link(_copied(kv, params, flops, bandwidth, overhead, block, True), length)
    if needed is None:
        return False
    there = _copied(kv, params, flops, needed, overhead, block, True)
    return equal(swap_cost(there, length), recompute_cost(there, length))


def _overhead_below_recompute(
    kv: Any, params: Any, flops: Any, bandwidth: Any, overhead: Any, block: Any, length: Any
) -> bool:
    setting = _copied(kv, params, flops, bandwidth, overhead, block, True)
    return bool(overhead_cost(setting, length) < recompute_cost(setting, length))


def _hopeless(kv: Any, params: Any, flops: Any, bandwidth: Any, overhead: Any, block: Any, length: Any) -> bool:
    setting = _copied(kv, params, flops, bandwidth, overhead, block, True)
    return break_even_link(setting, length) is None


def _two_overheads(kv: Any, bandwidth: Any, fixed_out: Any, fixed_back: Any, block: Any, length: Any) -> bool:
    def both(out: Any, back: Any, **how: Any) -> Any:
        pieces = transfer(link(bandwidth, out), link(bandwidth, back), block=block, copies=Copies.PER_TENSOR, **how)
        return overhead_cost(Setting(shape(ONE, layers(kv)), device(ONE), pieces, Run.PIGGYBACK), length)

    out, back = both(fixed_out, fixed_out) / 2, both(fixed_back, fixed_back) / 2
    return (
        equal(both(fixed_out, fixed_back), out + back)
        and equal(both(fixed_out, fixed_back, trip=Trip.WRITE_THROUGH), back)
        and equal(both(fixed_out, fixed_back, directions=Directions.OVERLAPPED), max(out, back))
    )


THEOREMS = (
    Theorem(
        id="decision/t09-decision",
        sentence="Swap is chosen exactly if the bandwidth that the copies achieve lies above break-even, whole blocks "
        "and the fixed cost of copies included.",
        parameters=_COPIES,
        claim=lambda kv, params, flops, bandwidth, overhead, block, length: _by_bandwidth(
            kv, params, flops, bandwidth, overhead, block, length
        ),
    ),
    Theorem(
        id="decision/n17-decision-two-directions",
        sentence="With two different directions too, comparing the effective bandwidth with break-even is the "
        "decision.",
        parameters={"kv": KV, "params": PARAMS, "flops": FLOPS, "out": BANDWIDTH, "back": BANDWIDTH, "length": LENGTH},
        claim=_two_laws,
    ),
    Theorem(
        id="decision/n18-decision-duplex",
        sentence="With overlapped directions too, comparing the effective bandwidth with break-even is the decision.",
        parameters=_COPIES,
        claim=lambda kv, params, flops, bandwidth, overhead, block, length: _by_bandwidth(
            kv, params, flops, bandwidth, overhead, block, length, directions=Directions.OVERLAPPED
        ),
    ),
    Theorem(
        id="decision/t10-speed-up",
        sentence="Swap is faster than recompute by exactly the achieved bandwidth over the break-even bandwidth.",
        parameters=_COPIES,
        claim=_ratio_is_speed_up,
    ),
    Theorem(
        id="decision/t61-overhead-alone",
        sentence="If the fixed costs of its copies alone take as long as the recompute, swap loses over a link of any "
        "speed.",
        parameters=_COPIES,
        hypotheses={"no link is fast enough": _hopeless},
        claim=lambda kv, params, flops, bandwidth, overhead, block, length: (
            recompute_cost(setting := _copied(kv, params, flops, bandwidth, overhead, block, True), length)
            < swap_cost(setting, length)
        ),
    ),
    Theorem(
        id="decision/n19-link",
        sentence="The link that break-even asks for, the fixed costs of copies given, makes both cost the same.",
        parameters=_COPIES,
        hypotheses={"fixed costs alone are below the recompute": _overhead_below_recompute},
        claim=_link_is_a_break_even,
    ),
    Theorem(
        id="decision/n96-overhead-is-an-infinite-link",
        sentence="A swap takes as long as the fixed costs of its copies and its bytes at the link's bandwidth, both "
        "ways.",
        parameters=_COPIES,
        claim=lambda kv, params, flops, bandwidth, overhead, block, length: equal(
            swap_cost(setting := _copied(kv, params, flops, bandwidth, overhead, block, True), length)
            - overhead_cost(setting, length),
            2 * moved_bytes(setting.shape, setting.transfer, length) / bandwidth,
        ),
    ),
    Theorem(
        id="decision/n97-overhead-duplex",
        sentence="Over a duplex link the fixed costs count once, as the bytes do.",
        parameters=_COPIES,
        claim=lambda kv, params, flops, bandwidth, overhead, block, length: equal(
            2
            * overhead_cost(
                _copied(kv, params, flops, bandwidth, overhead, block, True, directions=Directions.OVERLAPPED), length
            ),
            overhead_cost(_copied(kv, params, flops, bandwidth, overhead, block, True), length),
        ),
    ),
    Theorem(
        id="decision/n122-overhead-of-two-laws",
        sentence="Fixed costs that differ by direction count as the bytes do: added up in a round trip, the way back "
        "alone if the way out is paid, the larger over a duplex link.",
        parameters={
            "kv": KV,
            "bandwidth": BANDWIDTH,
            "fixed_out": nonnegative("s", 1e-6, 2e-5),
            "fixed_back": nonnegative("s", 1e-6, 2e-5),
            "block": BLOCK,
            "length": LENGTH,
        },
        claim=_two_overheads,
    ),
    Theorem(
        id="decision/n126-no-link-exactly",
        sentence="If the fixed costs of its copies take exactly as long as the recompute, no link is fast enough "
        "either.",
        parameters=_COPIES,
        hypotheses={
            "fixed costs take as long": lambda kv, params, flops, bandwidth, overhead, block, length: equal(
                overhead_cost(setting := _copied(kv, params, flops, bandwidth, overhead, block, True), length),
                recompute_cost(setting, length),
            )
        },
        claim=_hopeless,
    ),
)
