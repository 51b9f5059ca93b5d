"""Certificates: the boxes that the shipped function gives out hold, at every point in them."""

from __future__ import annotations

from typing import Any

from preempt_properties.theorems.settings import ONE, device, layers, link, plain, shape, transfer
from preempt_properties.theorems.theorem import (
    ATTENTION,
    BANDWIDTH,
    BLOCK,
    BYTES,
    FLOPS,
    KV,
    LENGTH,
    MEMORY,
    PARAMS,
    TOKENS,
    Theorem,
    equal,
    positive,
    share,
)
from preempt_spec.cost.certify import certify, holds_at
from preempt_spec.cost.decide import (
    Choice,
    Setting,
    achieved_bandwidth,
    break_even_bandwidth,
    recompute_cost,
    smooth,
    swap_cost,
)
from preempt_spec.cost.recompute import Run
from preempt_spec.cost.shape import Shape, State
from preempt_spec.cost.swap import whole_block_tokens

WINDOW = positive("tokens", 128, 131_072)

_POINT = {"bandwidth": BANDWIDTH, "flops": FLOPS, "length": LENGTH}
_OTHER = {"other_bandwidth": BANDWIDTH, "other_flops": FLOPS, "other_length": LENGTH}
_MODEL = {"kv": KV, "params": PARAMS, "pair": ATTENTION}


def _kept(made: Setting[Any], length: Any, there: Setting[Any], other_length: Any, memory: Any = ONE) -> bool:
    """Whether the certificate's winner, made at the one point, does not lose at the other, if that is in the box."""
    certificate = certify(made, length)
    bandwidth = achieved_bandwidth(there, other_length)
    if not holds_at(certificate, bandwidth, there.device.peak_flops, memory, other_length):
        return True
    swap, again = swap_cost(there, other_length), recompute_cost(there, other_length)
    return bool(swap <= again if certificate.winner is Choice.SWAP else again <= swap)


def _riding(kv: Any, params: Any, pair: Any, bandwidth: Any, flops: Any, **how: Any) -> Setting[Any]:
    return Setting(shape(params, layers(kv, pair)), device(flops), transfer(link(bandwidth), **how), Run.PIGGYBACK)


def _alone(kv: Any, params: Any, pair: Any, weights: Any, bandwidth: Any, flops: Any, memory: Any) -> Setting[Any]:
    return Setting(
        shape(params, layers(kv, pair), weights=weights), device(flops, memory), transfer(link(bandwidth)), Run.ALONE
    )


def _here(setting: Setting[Any], length: Any) -> bool:
    """Whether a certificate holds at the very point it was made at."""
    bandwidth, memory = achieved_bandwidth(setting, length), setting.device.memory_bandwidth
    certificate = certify(setting, length)
    swaps = swap_cost(setting, length) < recompute_cost(setting, length)
    return (certificate.winner is Choice.SWAP) == swaps and holds_at(
        certificate, bandwidth, setting.device.peak_flops, memory, length
    )


def _riding_kept(
    kv: Any,
    params: Any,
    pair: Any,
    bandwidth: Any,
    flops: Any,
    length: Any,
    other_bandwidth: Any,
    other_flops: Any,
    other_length: Any,
) -> bool:
    return _kept(
        _riding(kv, params, pair, bandwidth, flops),
        length,
        _riding(kv, params, pair, other_bandwidth, other_flops),
        other_length,
    )


def _alone_kept(
    kv: Any,
    params: Any,
    pair: Any,
    weights: Any,
    bandwidth: Any,
    flops: Any,
    memory: Any,
    length: Any,
    other_bandwidth: Any,
    other_flops: Any,
    other_memory: Any,
    other_length: Any,
) -> bool:
    return _kept(
        _alone(kv, params, pair, weights, bandwidth, flops, memory),
        length,
        _alone(kv, params, pair, weights, other_bandwidth, other_flops, other_memory),
        other_length,
        other_memory,
    )


def _blocks_kept(
    params: Any, pair: Any, bandwidth: Any, length: Any, block: Any, other_bandwidth: Any, other_length: Any
) -> bool:
    """KV of a byte per token and 1 FLOP/s: every such setting is one of these, in other units."""
    how: dict[str, Any] = {"block": block, "whole_blocks": True}
    return _kept(
        _riding(ONE, params, pair, bandwidth, ONE, **how),
        length,
        _riding(ONE, params, pair, other_bandwidth, ONE, **how),
        other_length,
    )


def _padded(length: Any, block: Any) -> bool:
    """An integer lemma: whole blocks hold the request, with less than a block to spare."""
    return bool(length <= whole_block_tokens(length, block) <= length + block - 1)


def _windowed(kv: Any, params: Any, pair: Any, window: Any, bandwidth: Any) -> Setting[Any]:
    return Setting(
        shape(params, layers(kv, pair, window=window)), device(ONE), transfer(link(bandwidth)), Run.PIGGYBACK
    )


def _recurrent(kv: Any, params: Any, pair: Any, state: Any, bandwidth: Any) -> Setting[Any]:
    return Setting(
        Shape(params, params, (layers(kv, pair),), State(state, ONE)),
        device(ONE),
        transfer(link(bandwidth)),
        Run.PIGGYBACK,
    )


def _hit_kept(params: Any, pair: Any, hit: Any, bandwidth: Any, length: Any, other_bandwidth: Any) -> bool:
    """KV of a byte per token and 1 FLOP/s: every such setting is one of these, in other units."""
    made, there = (plain(ONE, params, pair, ONE, b, hit=hit) for b in (bandwidth, other_bandwidth))
    box = certify(made, length).length
    return equal(box.least, length) and equal(box.most, length) and _kept(made, length, there, length)


def _hit_kept_elsewhere(
    params: Any, hit: Any, weights: Any, flops: Any, memory: Any, length: Any, other_flops: Any, other_memory: Any
) -> bool:
    """Over a link of a token per second."""
    made, there = (
        Setting(shape(params, layers(ONE), weights=weights), device(f, m), transfer(link(ONE)), Run.ALONE, hit)
        for f, m in ((flops, memory), (other_flops, other_memory))
    )
    return _kept(made, length, there, length, other_memory)


def _corner(kv: Any, params: Any, pair: Any, bandwidth: Any, flops: Any, length: Any) -> bool:
    box = certify(_riding(kv, params, pair, bandwidth, flops), length).bandwidth
    bound = box.most if box.least is None else box.least
    there = _riding(kv, params, pair, bound, flops)
    return equal(swap_cost(there, length), recompute_cost(there, length))


def _wins_padded(params: Any, pair: Any, bandwidth: Any, block: Any, length: Any) -> bool:
    """Whether a swap of a block less a token more would still win."""
    smoothly = _riding(ONE, params, pair, bandwidth, ONE)
    return bool(swap_cost(smoothly, length + block - 1) < recompute_cost(smoothly, length))


def _padding_allowed(params: Any, pair: Any, bandwidth: Any, block: Any, length: Any) -> bool:
    setting = _riding(ONE, params, pair, bandwidth, ONE, block=block, whole_blocks=True)
    bound = certify(setting, length).bandwidth.least
    if bound is None:
        return False
    plainly = break_even_bandwidth(smooth(setting), length)
    return equal(bound * length, plainly * (length + block - 1))


THEOREMS = (
    Theorem(
        id="certificate/n77-holds-here",
        sentence="A certificate names the cheaper way, and its box has the point that it was made for.",
        parameters={**_MODEL, **_POINT, "weights": BYTES, "memory": MEMORY},
        claim=lambda kv, params, pair, weights, bandwidth, flops, memory, length: _here(
            _alone(kv, params, pair, weights, bandwidth, flops, memory), length
        ),
    ),
    Theorem(
        id="certificate/t78-riding-along",
        sentence="At every bandwidth, FLOP rate and length in a certificate's box its winner does not lose.",
        parameters={**_MODEL, **_POINT, **_OTHER},
        claim=_riding_kept,
    ),
    Theorem(
        id="certificate/t47-alone",
        sentence="A certificate holds everywhere in its box with a weight read too; the box then bounds memory "
        "bandwidth as well.",
        parameters={
            **_MODEL,
            "weights": BYTES,
            **_POINT,
            "memory": MEMORY,
            **_OTHER,
            "other_memory": MEMORY,
        },
        claim=_alone_kept,
    ),
    Theorem(
        id="certificate/n78-whole-blocks",
        sentence="A certificate holds everywhere in its box in whole blocks and for whole lengths too: it allows for "
        "the padding.",
        parameters={
            "params": PARAMS,
            "pair": ATTENTION,
            "bandwidth": BANDWIDTH,
            "length": TOKENS,
            "block": BLOCK,
            "other_bandwidth": BANDWIDTH,
            "other_length": TOKENS,
        },
        lemmas={
            "padding of the one": lambda length, block: _padded(length, block),
            "padding of the other": lambda other_length, block: _padded(other_length, block),
            "equal lengths fill equal blocks": lambda length, other_length, block: (
                not equal(length, other_length)
                or equal(whole_block_tokens(length, block), whole_block_tokens(other_length, block))
            ),
        },
        claim=_blocks_kept,
    ),
    Theorem(
        id="certificate/n79-window",
        sentence="A certificate holds everywhere in its box with a sliding window too.",
        parameters={
            **_MODEL,
            "window": WINDOW,
            "bandwidth": BANDWIDTH,
            "length": LENGTH,
            "other_bandwidth": BANDWIDTH,
            "other_length": LENGTH,
        },
        claim=lambda kv, params, pair, window, bandwidth, length, other_bandwidth, other_length: _kept(
            _windowed(kv, params, pair, window, bandwidth),
            length,
            _windowed(kv, params, pair, window, other_bandwidth),
            other_length,
        ),
    ),
    Theorem(
        id="certificate/n80-recurrent-state",
        sentence="A certificate holds everywhere in its box with layers that keep a state of constant size too.",
        parameters={
            **_MODEL,
            "state": BYTES,
            "bandwidth": BANDWIDTH,
            "length": LENGTH,
            "other_bandwidth": BANDWIDTH,
            "other_length": LENGTH,
        },
        claim=lambda kv, params, pair, state, bandwidth, length, other_bandwidth, other_length: _kept(
            _recurrent(kv, params, pair, state, bandwidth),
            length,
            _recurrent(kv, params, pair, state, other_bandwidth),
            other_length,
        ),
    ),
    Theorem(
        id="certificate/n118-prefix-hit",
        sentence="With a prefix hit a certificate's box has one length only, and there the winner does not lose.",
        parameters={
            "params": PARAMS,
            "pair": ATTENTION,
            "hit": share(),
            "bandwidth": BANDWIDTH,
            "length": LENGTH,
            "other_bandwidth": BANDWIDTH,
        },
        hypotheses={"the request has a token": lambda length: length >= 1},
        claim=_hit_kept,
    ),
    Theorem(
        id="certificate/n119-whole-blocks-here",
        sentence="In whole blocks too, a certificate names the cheaper way and its box has the point that it was made "
        "for.",
        parameters={
            "params": PARAMS,
            "pair": ATTENTION,
            "bandwidth": BANDWIDTH,
            "block": BLOCK,
            "length": TOKENS,
        },
        claim=lambda params, pair, bandwidth, block, length: _here(
            _riding(ONE, params, pair, bandwidth, ONE, block=block, whole_blocks=True), length
        ),
    ),
    Theorem(
        id="certificate/n120-corner",
        sentence="A certificate's bound on bandwidth cannot be bettered: on it both ways cost the same.",
        parameters={**_MODEL, **_POINT},
        claim=_corner,
    ),
    Theorem(
        id="certificate/n121-corner-of-blocks",
        sentence="In whole blocks the bandwidth that a certificate asks for swap allows for a block less a token of "
        "padding, and no more.",
        parameters={
            "params": PARAMS,
            "pair": ATTENTION,
            "bandwidth": BANDWIDTH,
            "block": BLOCK,
            "length": TOKENS,
        },
        hypotheses={"swap wins with the padding to spare": _wins_padded},
        claim=_padding_allowed,
    ),
    Theorem(
        id="certificate/n125-prefix-hit-other-gpu",
        sentence="With a prefix hit too, a certificate holds for every FLOP rate and memory bandwidth in its box.",
        parameters={
            "params": PARAMS,
            "hit": share(),
            "weights": BYTES,
            "flops": FLOPS,
            "memory": MEMORY,
            "length": LENGTH,
            "other_flops": FLOPS,
            "other_memory": MEMORY,
        },
        claim=_hit_kept_elsewhere,
    ),
)
