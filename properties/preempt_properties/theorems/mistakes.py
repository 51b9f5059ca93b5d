"""The common mistakes: by how much each errs, and between which bandwidths its decision is the wrong one."""

from __future__ import annotations

from typing import Any

from preempt_properties.cost_mistakes import Bidirectional, NoAttention, NoHits, OneWay, Right, ScaledHits
from preempt_properties.theorems.settings import ONE, device, layers, link, plain, shape, transfer
from preempt_properties.theorems.theorem import (
    ATTENTION,
    BANDWIDTH,
    FLOPS,
    KV,
    LENGTH,
    PARAMS,
    SECONDS,
    Kind,
    Theorem,
    equal,
    positive,
    share,
)
from preempt_spec.cost.decide import Choice, Setting, break_even_bandwidth, recompute_cost, swap_cost
from preempt_spec.cost.recompute import Run, attention_flops, attention_rate, compute_time

RATIO = positive("", 0.3, 1.5)

_PLAIN = {"kv": KV, "params": PARAMS, "pair": ATTENTION, "flops": FLOPS, "bandwidth": BANDWIDTH, "length": LENGTH}
_HIT = {**_PLAIN, "hit": share()}
_LEFT = {"the hit leaves a token": lambda hit, length: hit * length <= length - 1}
_LLAMA = {"kv": 131_072, "params": 8_030_000_000, "pair": 524_288, "flops": 494_500_000_000_000}


def _flips(mistake: Right, setting: Setting[Any], length: Any, to: Choice) -> bool:
    """Whether the mistake decides for `to`, and the truth for the other."""
    return mistake.choose(setting, length) is to and Right().choose(setting, length) is not to


def _halves(mistake: Right, kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any) -> bool:
    """The decision goes wrong exactly between half of the break-even bandwidth and all of it, and towards swap."""
    setting = plain(kv, params, pair, flops, bandwidth)
    there = break_even_bandwidth(setting, length)
    if _flips(mistake, setting, length, Choice.RECOMPUTE):
        return False
    return bool(_flips(mistake, setting, length, Choice.SWAP) == (there / 2 < bandwidth <= there))


def _no_attention(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any) -> bool:
    setting = plain(kv, params, pair, flops, bandwidth)
    there, thought = break_even_bandwidth(setting, length), NoAttention().break_even(setting, length)
    if _flips(NoAttention(), setting, length, Choice.SWAP):
        return False
    return bool(_flips(NoAttention(), setting, length, Choice.RECOMPUTE) == (there < bandwidth <= thought))


def _no_hits(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any, hit: Any) -> bool:
    setting = plain(kv, params, pair, flops, bandwidth, hit=hit)
    there, thought = break_even_bandwidth(setting, length), NoHits().break_even(setting, length)
    if _flips(NoHits(), setting, length, Choice.RECOMPUTE):
        return False
    return bool(_flips(NoHits(), setting, length, Choice.SWAP) == (thought < bandwidth <= there))


def _scaled_band(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any, hit: Any) -> bool:
    setting = plain(kv, params, pair, flops, bandwidth, hit=hit)
    there, thought = break_even_bandwidth(setting, length), ScaledHits().break_even(setting, length)
    if _flips(ScaledHits(), setting, length, Choice.SWAP):
        return False
    return bool(_flips(ScaledHits(), setting, length, Choice.RECOMPUTE) == (there < bandwidth <= thought))


def _missing_attention(params: Any, pair: Any, flops: Any, ratio: Any, length: Any) -> bool:
    setting = plain(ONE, params, pair, flops, ONE, attention=ratio)
    missing = recompute_cost(setting, length) - NoAttention().recompute(setting, length)
    return equal(missing, attention_flops(setting.shape, length) / attention_rate(setting.device))


def _missing_hit(params: Any, pair: Any, flops: Any, ratio: Any, length: Any, hit: Any) -> bool:
    setting = plain(ONE, params, pair, flops, ONE, attention=ratio, hit=hit)
    added = NoHits().recompute(setting, length) - recompute_cost(setting, length)
    return equal(added, compute_time(setting.shape, setting.device, hit * length))


def _scaled(params: Any, pair: Any, flops: Any, ratio: Any, length: Any, hit: Any) -> bool:
    setting = plain(ONE, params, pair, flops, ONE, attention=ratio, hit=hit)
    missing = recompute_cost(setting, length) - ScaledHits().recompute(setting, length)
    return equal(missing, hit * (1 - hit) * attention_flops(setting.shape, length) / attention_rate(setting.device))


def _with_fixed_cost(kv: Any, bandwidth: Any, overhead: Any) -> Setting[Any]:
    return Setting(shape(ONE, layers(kv)), device(ONE), transfer(link(bandwidth, overhead)), Run.PIGGYBACK)


def _less_than_half_off(kv: Any, bandwidth: Any, overhead: Any, length: Any) -> bool:
    setting = _with_fixed_cost(kv, bandwidth, overhead)
    return bool(swap_cost(setting, length) / 2 < Bidirectional().swap(setting, length) < swap_cost(setting, length))


THEOREMS = (
    Theorem(
        id="mistakes/t25-one-way",
        sentence="Counting the swap one way decides wrongly, for swap, exactly between half of the break-even "
        "bandwidth and the whole.",
        parameters=_PLAIN,
        claim=lambda kv, params, pair, flops, bandwidth, length: _halves(
            OneWay(), kv, params, pair, flops, bandwidth, length
        ),
    ),
    Theorem(
        id="mistakes/t25e-one-way-for-real",
        kind=Kind.WITNESS,
        sentence="For Llama-3.1-8B on an H100, counting one way decides wrongly over copies that reach 5 GB/s.",
        parameters=_PLAIN,
        claim=lambda kv, params, pair, flops, bandwidth, length: _flips(
            OneWay(), plain(kv, params, pair, flops, bandwidth), length, Choice.SWAP
        ),
        at={**_LLAMA, "bandwidth": 5_000_000_000, "length": 4_096},
        shows={
            "swap": (
                lambda kv, params, pair, flops, bandwidth, length: swap_cost(
                    plain(kv, params, pair, flops, bandwidth), length
                ),
                "s",
            ),
            "swap, one way": (
                lambda kv, params, pair, flops, bandwidth, length: OneWay().swap(
                    plain(kv, params, pair, flops, bandwidth), length
                ),
                "s",
            ),
            "recompute": (
                lambda kv, params, pair, flops, bandwidth, length: recompute_cost(
                    plain(kv, params, pair, flops, bandwidth), length
                ),
                "s",
            ),
        },
    ),
    Theorem(
        id="mistakes/n88-one-way-half",
        sentence="Counting one way is short of the swap by exactly the way out.",
        parameters={"kv": KV, "out": BANDWIDTH, "back": BANDWIDTH, "length": LENGTH},
        claim=lambda kv, out, back, length: equal(
            swap_cost(
                setting := Setting(shape(ONE, layers(kv)), device(ONE), transfer(link(out), link(back)), Run.PIGGYBACK),
                length,
            )
            - OneWay().swap(setting, length),
            kv * length / out,
        ),
    ),
    Theorem(
        id="mistakes/t26-bidirectional-is-one-way",
        sentence="Taking the bidirectional figure for one direction is the same error as counting one way.",
        parameters={"kv": KV, "bandwidth": BANDWIDTH, "length": LENGTH},
        claim=lambda kv, bandwidth, length: equal(
            Bidirectional().swap(setting := plain(kv, ONE, ONE, ONE, bandwidth), length),
            OneWay().swap(setting, length),
        ),
    ),
    Theorem(
        id="mistakes/t26-bidirectional-band",
        sentence="Taking the bidirectional figure decides wrongly, for swap, exactly between half of the break-even "
        "bandwidth and the whole.",
        parameters=_PLAIN,
        claim=lambda kv, params, pair, flops, bandwidth, length: _halves(
            Bidirectional(), kv, params, pair, flops, bandwidth, length
        ),
    ),
    Theorem(
        id="mistakes/n89-bidirectional-with-fixed-cost",
        sentence="With a fixed cost per copy the bidirectional figure errs by less than half: doubling a link does "
        "not halve the fixed cost.",
        parameters={"kv": KV, "bandwidth": BANDWIDTH, "overhead": SECONDS, "length": LENGTH},
        claim=_less_than_half_off,
    ),
    Theorem(
        id="mistakes/t27-no-attention",
        sentence="Leaving attention out decides wrongly, for recompute, exactly between the true break-even bandwidth "
        "and that of products alone.",
        parameters=_PLAIN,
        claim=_no_attention,
    ),
    Theorem(
        id="mistakes/t27-no-attention-error",
        sentence="Leaving attention out underestimates the recompute by exactly the time of attention.",
        parameters={"params": PARAMS, "pair": ATTENTION, "flops": FLOPS, "ratio": RATIO, "length": LENGTH},
        claim=_missing_attention,
    ),
    Theorem(
        id="mistakes/n90-no-attention-unbounded",
        sentence="Leaving attention out errs without bound: for every factor there is a length at which recompute "
        "takes more than so many times its products alone.",
        parameters={
            "params": PARAMS,
            "pair": ATTENTION,
            "flops": FLOPS,
            "times": positive("", 1, 100),
        },
        claim=lambda params, pair, flops, times: (
            recompute_cost(setting := plain(ONE, params, pair, flops, ONE), length := 4 * times * params / pair)
            > times * NoAttention().recompute(setting, length)
        ),
    ),
    Theorem(
        id="mistakes/n91-no-hits",
        sentence="Ignoring a prefix hit decides wrongly, for swap, exactly between the break-even bandwidth without "
        "the hit and that with it (the swap moving all bytes).",
        parameters=_HIT,
        hypotheses=_LEFT,
        claim=_no_hits,
    ),
    Theorem(
        id="mistakes/n92-no-hits-error",
        sentence="Ignoring a prefix hit overestimates the recompute by exactly the prefill of the cached tokens.",
        parameters={
            "params": PARAMS,
            "pair": ATTENTION,
            "flops": FLOPS,
            "ratio": RATIO,
            "length": LENGTH,
            "hit": share(),
        },
        hypotheses=_LEFT,
        claim=_missing_hit,
    ),
    Theorem(
        id="mistakes/t32-scaled-hits",
        sentence="Scaling a recompute by 1 − h for a hit of h falls short by exactly h (1 − h) times its attention.",
        parameters={
            "params": PARAMS,
            "pair": ATTENTION,
            "flops": FLOPS,
            "ratio": RATIO,
            "length": LENGTH,
            "hit": share(),
        },
        hypotheses=_LEFT,
        claim=_scaled,
    ),
    Theorem(
        id="mistakes/n106-scaled-hits-band",
        sentence="Scaling a recompute by 1 − h decides wrongly, for recompute, exactly between the true break-even "
        "bandwidth and its own.",
        parameters=_HIT,
        hypotheses=_LEFT,
        claim=_scaled_band,
    ),
    Theorem(
        id="mistakes/n107-break-even-of-the-right",
        sentence="The right model's break-even bandwidth, read off its speed-up, is the shipped one.",
        parameters=_HIT,
        hypotheses={"the request has a token": lambda length: length >= 1},
        claim=lambda kv, params, pair, flops, bandwidth, length, hit: equal(
            Right().break_even(setting := plain(kv, params, pair, flops, bandwidth, hit=hit), length),
            break_even_bandwidth(setting, length),
        ),
    ),
)
