"""Prefix hits: what they save of a recompute, and what their two meanings for the swap do to the decision."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from preempt_properties.theorems.settings import ONE, plain
from preempt_properties.theorems.theorem import (
    ATTENTION,
    BANDWIDTH,
    BLOCK,
    FLOPS,
    KV,
    LENGTH,
    PARAMS,
    TOKENS,
    Kind,
    Parameter,
    Theorem,
    equal,
    nonnegative,
    positive,
    share,
    whole,
)
from preempt_spec.cost.decide import Setting, break_even_bandwidth, recompute_cost, swap_cost
from preempt_spec.cost.recompute import cached_tokens, causal_pairs, compute_time, counted_pairs, recompute_time
from preempt_spec.cost.swap import (
    Hit,
    batches,
    moved_bytes,
    moved_tokens,
    one_way_time,
    swap_bandwidth,
    swap_time,
)

RATIO = Parameter(unit="", above=Fraction(0), usual=(0.3, 1.5))

_PLAIN = {"kv": KV, "params": PARAMS, "pair": ATTENTION, "flops": FLOPS, "ratio": RATIO, "length": LENGTH}
_GROWS = {
    "the second hit is larger": lambda hit, larger: hit < larger,
    "the larger leaves a token": lambda larger, length: larger * length <= length - 1,
}
_BLOCKED = {
    "kv": KV,
    "params": PARAMS,
    "flops": FLOPS,
    "bandwidth": BANDWIDTH,
    "block": BLOCK,
    "length": TOKENS,
    "hit": share(),
}


def _setting(
    kv: Any, params: Any, pair: Any, flops: Any, ratio: Any, hit: Any, means: Hit = Hit.KEEPS_BYTES
) -> Setting[Any]:
    return plain(kv, params, pair, flops, ONE, attention=ratio, hit=hit, hit_means=means)


def _break_even(
    kv: Any, params: Any, pair: Any, flops: Any, ratio: Any, length: Any, hit: Any, means: Hit = Hit.KEEPS_BYTES
) -> Any:
    return break_even_bandwidth(_setting(kv, params, pair, flops, ratio, hit, means), length)


def _blocked(kv: Any, params: Any, flops: Any, bandwidth: Any, block: Any, hit: Any, means: Hit) -> Setting[Any]:
    return plain(kv, params, ONE, flops, bandwidth, block=block, whole_blocks=True, hit=hit, hit_means=means)


def _saving_costs_no_more(kv: Any, params: Any, flops: Any, bandwidth: Any, block: Any, length: Any, hit: Any) -> bool:
    saves = _blocked(kv, params, flops, bandwidth, block, hit, Hit.SAVES_BYTES)
    keeps = _blocked(kv, params, flops, bandwidth, block, hit, Hit.KEEPS_BYTES)
    return bool(swap_cost(saves, length) <= swap_cost(keeps, length))


def _hit_harms_neither(kv: Any, params: Any, flops: Any, bandwidth: Any, block: Any, length: Any, hit: Any) -> bool:
    with_hit = _blocked(kv, params, flops, bandwidth, block, hit, Hit.SAVES_BYTES)
    without = plain(kv, params, ONE, flops, bandwidth, block=block, whole_blocks=True)
    return bool(
        swap_cost(with_hit, length) <= swap_cost(without, length)
        and recompute_cost(with_hit, length) <= recompute_cost(without, length)
    )


def _last_token(kv: Any, params: Any, pair: Any, flops: Any, ratio: Any, length: Any) -> bool:
    full = _setting(kv, params, pair, flops, ratio, ONE)
    return equal(recompute_cost(full, length), compute_time(full.shape, full.device, length, length - 1))


def _recomputed(length: Any, hit: Any, block: Any = None) -> Any:
    """Tokens left to recompute."""
    return length - cached_tokens(length, hit, block)


def _whole_blocks(length: Any, hit: Any, block: Any) -> bool:
    found = cached_tokens(length, hit, block)
    exact = cached_tokens(length, hit)
    return bool(found <= exact < found + block)


_TWO_PREFIXES = {
    "length": TOKENS,
    "block": BLOCK,
    "prefix": whole("tokens", 0, 1e6, least=0),
    "longer": whole("tokens", 0, 1e6, least=0),
}
_LONGER_PREFIX = {
    "the second cached prefix is longer": lambda prefix, longer: prefix < longer,
    "it is a part of the request": lambda longer, length: longer <= length,
}


def _nothing_cached(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any) -> bool:
    setting = plain(kv, params, pair, flops, bandwidth, hit_means=Hit.SAVES_BYTES)
    model, gpu, how = setting.shape, setting.device, setting.transfer
    pairs: tuple[tuple[Any, Any], ...] = (
        (counted_pairs(length), counted_pairs(length, 0)),
        (causal_pairs(length), causal_pairs(length, 0)),
        (compute_time(model, gpu, length), compute_time(model, gpu, length, 0)),
        (recompute_time(model, gpu, length), recompute_time(model, gpu, length, 0)),
        (moved_tokens(model.layers[0], how, length), moved_tokens(model.layers[0], how, length, 0)),
        (moved_bytes(model, how, length), moved_bytes(model, how, length, 0)),
        (batches(model, how, length)[0].size, batches(model, how, length, 0)[0].size),
        (one_way_time(model, how, how.out, length), one_way_time(model, how, how.out, length, 0)),
        (swap_time(model, how, length), swap_time(model, how, length, 0)),
        (swap_bandwidth(model, how, 2 * length), swap_bandwidth(model, how, 2 * length, 0)),
    )
    return all(equal(unsaid, said) for unsaid, said in pairs)


THEOREMS = (
    Theorem(
        id="hits/t30-larger-hit",
        sentence="A larger prefix hit makes a recompute strictly shorter, as long as a token is left.",
        parameters={**_PLAIN, "hit": share(), "larger": share()},
        hypotheses=_GROWS,
        claim=lambda kv, params, pair, flops, ratio, length, hit, larger: (
            recompute_cost(_setting(kv, params, pair, flops, ratio, larger), length)
            < recompute_cost(_setting(kv, params, pair, flops, ratio, hit), length)
        ),
    ),
    Theorem(
        id="hits/t31-bytes-stay",
        sentence="If the swap moves all bytes nevertheless, a larger hit raises the break-even bandwidth: it argues "
        "for recompute.",
        parameters={**_PLAIN, "hit": share(), "larger": share()},
        hypotheses=_GROWS,
        claim=lambda kv, params, pair, flops, ratio, length, hit, larger: (
            _break_even(kv, params, pair, flops, ratio, length, hit)
            < _break_even(kv, params, pair, flops, ratio, length, larger)
        ),
    ),
    Theorem(
        id="hits/t33-bytes-saved",
        sentence="If the cached tokens are not moved either, a larger hit lowers the break-even bandwidth: the tokens "
        "that are left are the dear ones to recompute.",
        parameters={**_PLAIN, "hit": share(), "larger": share()},
        hypotheses=_GROWS,
        claim=lambda kv, params, pair, flops, ratio, length, hit, larger: (
            _break_even(kv, params, pair, flops, ratio, length, larger, Hit.SAVES_BYTES)
            < _break_even(kv, params, pair, flops, ratio, length, hit, Hit.SAVES_BYTES)
        ),
    ),
    Theorem(
        id="hits/n37-meanings-in-order",
        sentence="A swap that leaves the cached tokens out never takes longer than one that moves all, in whole "
        "blocks too.",
        parameters=_BLOCKED,
        claim=_saving_costs_no_more,
    ),
    Theorem(
        id="hits/n38-harms-neither",
        sentence="A prefix hit makes neither the recompute nor the swap longer, in whole blocks too.",
        parameters=_BLOCKED,
        claim=_hit_harms_neither,
    ),
    Theorem(
        id="hits/t62-last-token",
        sentence="A full prefix hit still costs the last token, which sees all the others.",
        parameters=_PLAIN,
        claim=_last_token,
    ),
    Theorem(
        id="hits/n39-never-free",
        sentence="No prefix hit makes a recompute free: its cost is always above zero.",
        parameters={**_PLAIN, "hit": share()},
        hypotheses={"the request has a token": lambda length: length >= 1},
        claim=lambda kv, params, pair, flops, ratio, length, hit: (
            recompute_cost(_setting(kv, params, pair, flops, ratio, hit), length) > 0
        ),
    ),
    Theorem(
        id="hits/n40-whole-blocks",
        sentence="Counting hits in whole blocks loses less than one block of the hit.",
        parameters={"length": TOKENS, "hit": share(), "block": BLOCK},
        claim=_whole_blocks,
    ),
    Theorem(
        id="hits/i05-longer-prefix",
        kind=Kind.FALSE,
        sentence="A longer cached prefix always means fewer tokens to recompute.",
        parameters=_TWO_PREFIXES,
        hypotheses=_LONGER_PREFIX,
        claim=lambda length, block, prefix, longer: (
            _recomputed(length, longer / length, block) < _recomputed(length, prefix / length, block)
        ),
        at={"length": 4_096, "block": 16, "prefix": 2_048, "longer": 2_063},
        shows={
            "recomputed with the shorter": (
                lambda length, block, prefix: _recomputed(length, prefix / length, block),
                "tokens",
            ),
            "recomputed with the longer": (
                lambda length, block, longer: _recomputed(length, longer / length, block),
                "tokens",
            ),
        },
    ),
    Theorem(
        id="hits/i06-longer-prefix-never-more",
        sentence="A longer cached prefix never means more tokens to recompute.",
        parameters={
            "length": LENGTH,
            "block": positive("tokens", 1, 1_024),
            "prefix": nonnegative("tokens", 0, 1e6),
            "longer": nonnegative("tokens", 0, 1e6),
        },
        hypotheses={"the second cached prefix is longer": lambda prefix, longer: prefix < longer},
        claim=lambda length, block, prefix, longer: (
            _recomputed(length, longer / length, block) <= _recomputed(length, prefix / length, block)
        ),
    ),
    Theorem(
        id="hits/n128-none-unless-said",
        sentence="Where nothing is said of a prefix hit, nothing is cached.",
        parameters={
            "kv": KV,
            "params": PARAMS,
            "pair": ATTENTION,
            "flops": FLOPS,
            "bandwidth": BANDWIDTH,
            "length": LENGTH,
        },
        claim=_nothing_cached,
    ),
)
