"""Whole blocks: what rounding to blocks keeps of the smooth model, what it breaks, and by how much at most."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from preempt_properties.theorems.settings import ONE, TWO, layers, link, plain, shape, transfer
from preempt_properties.theorems.theorem import (
    ATTENTION,
    BANDWIDTH,
    BLOCK,
    FLOPS,
    KV,
    PARAMS,
    SECONDS,
    TOKENS,
    Kind,
    Theorem,
    equal,
    nonnegative,
)
from preempt_spec.cost.decide import (
    Choice,
    Setting,
    best_cost,
    break_even_bandwidth,
    choose,
    recompute_cost,
    regret,
    regret_bound,
    smooth,
    swap_cost,
)
from preempt_spec.cost.swap import Copies, swap_time, whole_block_tokens

_PLAIN = {"kv": KV, "params": PARAMS, "pair": ATTENTION, "flops": FLOPS, "bandwidth": BANDWIDTH, "block": BLOCK}
#: In units in which a token has a byte of KV and the GPU does 1 FLOP/s.
_UNITS = {"params": PARAMS, "pair": ATTENTION, "bandwidth": BANDWIDTH, "block": BLOCK}
_LLAMA = {"kv": 131_072, "params": 8_030_000_000, "pair": 524_288, "flops": 494_500_000_000_000}
_LONGER = {"the second request is longer": lambda short, long: short < long}


def _blocked(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, block: Any) -> Setting[Any]:
    return plain(kv, params, pair, flops, bandwidth, block=block, whole_blocks=True)


def _in_units(params: Any, pair: Any, bandwidth: Any, block: Any) -> Setting[Any]:
    return _blocked(ONE, params, pair, ONE, bandwidth, block)


def _swap_wins(setting: Setting[Any], length: Any) -> bool:
    return choose(setting, length) is Choice.SWAP


def _recompute_wins(setting: Setting[Any], length: Any) -> bool:
    return bool(recompute_cost(setting, length) < swap_cost(setting, length))


def _copied(kv: Any, bandwidth: Any, overhead: Any, block: Any, length: Any) -> Any:
    """Seconds of a swap block by block, K and V apart."""
    how = transfer(link(bandwidth, overhead), block=block, copies=Copies.PER_TENSOR, whole_blocks=True)
    return swap_time(shape(ONE, layers(kv, tensors=TWO)), how, length)


def _halved(kv: Any, bandwidth: Any, overhead: Any, block: Any, length: Any) -> bool:
    """The lemma's fact on counts, which is all that the claim on seconds needs."""
    larger, one_block = _copied(kv, bandwidth, overhead, 2 * block, length), _copied(kv, bandwidth, 0, block, block)
    return bool(larger <= _copied(kv, bandwidth, overhead, block, length) + one_block)


def _in_band(params: Any, pair: Any, bandwidth: Any, block: Any, length: Any) -> bool:
    """Whether the smooth costs differ by no more than the swap of a block less a token."""
    plainly = smooth(_in_units(params, pair, bandwidth, block))
    difference = abs(swap_cost(plainly, length) - recompute_cost(plainly, length))
    return bool(difference <= (block - 1) * swap_cost(plainly, ONE))


def _agrees(params: Any, pair: Any, bandwidth: Any, block: Any, length: Any) -> bool:
    setting = _in_units(params, pair, bandwidth, block)
    return choose(setting, length) is choose(smooth(setting), length)


def _never_cheaper(params: Any, pair: Any, bandwidth: Any, block: Any, length: Any) -> bool:
    setting = _in_units(params, pair, bandwidth, block)
    return bool(swap_cost(smooth(setting), length) <= swap_cost(setting, length))


def _less_than_a_block(params: Any, pair: Any, bandwidth: Any, block: Any, length: Any) -> bool:
    setting = _in_units(params, pair, bandwidth, block)
    padding = swap_cost(setting, length) - swap_cost(smooth(setting), length)
    return bool(padding <= (block - 1) * swap_cost(smooth(setting), ONE))


def _no_padding(params: Any, pair: Any, bandwidth: Any, block: Any, count: Any) -> bool:
    setting = _in_units(params, pair, bandwidth, block)
    return equal(swap_cost(setting, count * block), swap_cost(smooth(setting), count * block))


def _wrong_bandwidth(params: Any, pair: Any, bandwidth: Any, block: Any, length: Any, believed: Any) -> bool:
    actual, estimate = _in_units(params, pair, bandwidth, block), _in_units(params, pair, believed, block)
    return bool(regret(actual, estimate, length) <= regret_bound(bandwidth, believed))


def _full(length: Any, block: Any) -> bool:
    return equal(whole_block_tokens(length + block, block), whole_block_tokens(length, block) + block)


def _padding(length: Any, block: Any) -> bool:
    return bool(length <= whole_block_tokens(length, block) <= length + block - 1)


_PADDED = {"padding is less than a block": _padding}

THEOREMS = (
    Theorem(
        id="blocks/i04-padding",
        sentence="Whole blocks hold the request and pad it by at most a block less a token.",
        parameters={"length": TOKENS, "block": BLOCK},
        claim=_padding,
    ),
    Theorem(
        id="blocks/n81-never-cheaper",
        sentence="Whole blocks never make a swap cheaper than counting parts of blocks as parts.",
        parameters={**_UNITS, "length": TOKENS},
        claim=_never_cheaper,
    ),
    Theorem(
        id="blocks/n82-less-than-a-block",
        sentence="Whole blocks add to a swap at most the time of a block less a token.",
        parameters={**_UNITS, "length": TOKENS},
        lemmas=_PADDED,
        claim=_less_than_a_block,
    ),
    Theorem(
        id="blocks/n83-no-padding",
        sentence="Where the request fills its blocks, the whole-block model and the smooth one are the same.",
        parameters={**_UNITS, "count": TOKENS},
        claim=_no_padding,
    ),
    Theorem(
        id="blocks/n84-break-even",
        sentence="Whole blocks never lower the break-even bandwidth.",
        parameters={**_UNITS, "length": TOKENS},
        claim=lambda params, pair, bandwidth, block, length: (
            break_even_bandwidth(smooth(setting := _in_units(params, pair, bandwidth, block)), length)
            <= break_even_bandwidth(setting, length)
        ),
    ),
    Theorem(
        id="blocks/i01-single-crossing",
        kind=Kind.FALSE,
        sentence="Rounding to whole blocks changes nothing: if swap wins at some length, it wins at every greater "
        "length.",
        parameters={**_PLAIN, "short": TOKENS, "long": TOKENS},
        hypotheses={
            **_LONGER,
            "swap wins at the shorter": lambda kv, params, pair, flops, bandwidth, block, short: _swap_wins(
                _blocked(kv, params, pair, flops, bandwidth, block), short
            ),
        },
        claim=lambda kv, params, pair, flops, bandwidth, block, long: _swap_wins(
            _blocked(kv, params, pair, flops, bandwidth, block), long
        ),
        at={**_LLAMA, "bandwidth": 4_000_000_000, "block": 16, "short": 62_368, "long": 62_369},
        shows={
            "swap, shorter": (
                lambda kv, params, pair, flops, bandwidth, block, short: swap_cost(
                    _blocked(kv, params, pair, flops, bandwidth, block), short
                ),
                "s",
            ),
            "recompute, shorter": (
                lambda kv, params, pair, flops, bandwidth, block, short: recompute_cost(
                    _blocked(kv, params, pair, flops, bandwidth, block), short
                ),
                "s",
            ),
            "swap, longer": (
                lambda kv, params, pair, flops, bandwidth, block, long: swap_cost(
                    _blocked(kv, params, pair, flops, bandwidth, block), long
                ),
                "s",
            ),
            "recompute, longer": (
                lambda kv, params, pair, flops, bandwidth, block, long: recompute_cost(
                    _blocked(kv, params, pair, flops, bandwidth, block), long
                ),
                "s",
            ),
        },
    ),
    Theorem(
        id="blocks/i07-single-crossing-of-full-blocks",
        sentence="Among requests that fill their blocks: if swap wins at some length, it wins at every greater length.",
        parameters={**_UNITS, "count": TOKENS, "more": TOKENS},
        hypotheses={
            "the second request has more blocks": lambda count, more: count < more,
            "swap wins with the fewer": lambda params, pair, bandwidth, block, count: _swap_wins(
                _in_units(params, pair, bandwidth, block), count * block
            ),
        },
        claim=lambda params, pair, bandwidth, block, more: _swap_wins(
            _in_units(params, pair, bandwidth, block), more * block
        ),
    ),
    Theorem(
        id="blocks/i08-one-block-less",
        sentence="If recompute wins at some length, it wins with one block less.",
        parameters={**_UNITS, "length": TOKENS},
        hypotheses={
            "recompute wins with a block more": lambda params, pair, bandwidth, block, length: _recompute_wins(
                _in_units(params, pair, bandwidth, block), length + block
            )
        },
        lemmas={"one block more": _full},
        claim=lambda params, pair, bandwidth, block, length: _recompute_wins(
            _in_units(params, pair, bandwidth, block), length
        ),
    ),
    Theorem(
        id="blocks/i09-neighbours",
        kind=Kind.FALSE,
        sentence="Two neighbouring lengths in the same block have the same winner.",
        parameters={**_PLAIN, "length": TOKENS},
        hypotheses={
            "both are in the same block": lambda length, block: equal(
                whole_block_tokens(length, block), whole_block_tokens(length + 1, block)
            )
        },
        claim=lambda kv, params, pair, flops, bandwidth, block, length: (
            _swap_wins(setting := _blocked(kv, params, pair, flops, bandwidth, block), length)
            == _swap_wins(setting, length + 1)
        ),
        at={**_LLAMA, "bandwidth": 4_000_000_000, "block": 16, "length": 62_365},
        shows={
            "swap, both": (
                lambda kv, params, pair, flops, bandwidth, block, length: swap_cost(
                    _blocked(kv, params, pair, flops, bandwidth, block), length
                ),
                "s",
            ),
            "recompute, shorter": (
                lambda kv, params, pair, flops, bandwidth, block, length: recompute_cost(
                    _blocked(kv, params, pair, flops, bandwidth, block), length
                ),
                "s",
            ),
            "recompute, longer": (
                lambda kv, params, pair, flops, bandwidth, block, length: recompute_cost(
                    _blocked(kv, params, pair, flops, bandwidth, block), length + 1
                ),
                "s",
            ),
        },
    ),
    Theorem(
        id="blocks/i10-band",
        sentence="Rounding turns the decision only where the smooth costs differ by no more than the swap of a block "
        "less a token.",
        parameters={**_UNITS, "length": TOKENS},
        hypotheses={
            "the smooth costs differ by more": lambda params, pair, bandwidth, block, length: (
                not _in_band(params, pair, bandwidth, block, length)
            )
        },
        lemmas=_PADDED,
        claim=_agrees,
    ),
    Theorem(
        id="blocks/n85-longer",
        sentence="In whole blocks too, a longer request is never cheaper to swap.",
        parameters={
            "kv": KV,
            "bandwidth": BANDWIDTH,
            "overhead": nonnegative("s", 1e-6, 2e-5),
            "block": BLOCK,
            "short": TOKENS,
            "long": TOKENS,
        },
        hypotheses=_LONGER,
        claim=lambda kv, bandwidth, overhead, block, short, long: (
            _copied(kv, bandwidth, overhead, block, short) <= _copied(kv, bandwidth, overhead, block, long)
        ),
    ),
    Theorem(
        id="blocks/n86-shorter-victim",
        sentence="In whole blocks too, the shorter victim is never the dearer one to bring back.",
        parameters={**_UNITS, "short": TOKENS, "long": TOKENS},
        hypotheses=_LONGER,
        lemmas={
            "no fewer blocks": lambda short, long, block: (
                whole_block_tokens(short, block) <= whole_block_tokens(long, block)
            )
        },
        claim=lambda params, pair, bandwidth, block, short, long: (
            best_cost(setting := _in_units(params, pair, bandwidth, block), short) <= best_cost(setting, long)
        ),
    ),
    Theorem(
        id="blocks/i03-per-token",
        kind=Kind.FALSE,
        sentence="In whole blocks a longer request costs no more per token to swap.",
        parameters={"kv": KV, "bandwidth": BANDWIDTH, "block": BLOCK, "short": TOKENS, "long": TOKENS},
        hypotheses=_LONGER,
        claim=lambda kv, bandwidth, block, short, long: (
            _copied(kv, bandwidth, 0, block, long) / long <= _copied(kv, bandwidth, 0, block, short) / short
        ),
        at={"kv": 131_072, "bandwidth": 4_000_000_000, "block": 16, "short": 16, "long": 17},
        shows={
            "per token, shorter": (
                lambda kv, bandwidth, block, short: _copied(kv, bandwidth, 0, block, short) / short,
                "s",
            ),
            "per token, longer": (
                lambda kv, bandwidth, block, long: _copied(kv, bandwidth, 0, block, long) / long,
                "s",
            ),
        },
    ),
    Theorem(
        id="blocks/i11-larger-blocks",
        kind=Kind.FALSE,
        sentence="Doubling the block halves the copies, so it never makes a swap slower.",
        parameters={"kv": KV, "bandwidth": BANDWIDTH, "overhead": SECONDS, "block": BLOCK, "length": TOKENS},
        claim=lambda kv, bandwidth, overhead, block, length: (
            _copied(kv, bandwidth, overhead, 2 * block, length) <= _copied(kv, bandwidth, overhead, block, length)
        ),
        at={
            "kv": 131_072,
            "bandwidth": 50_000_000_000,
            "overhead": Fraction(5, 1_000_000),
            "block": 256,
            "length": 256,
        },
        shows={
            "blocks as they are": (_copied, "s"),
            "doubled": (
                lambda kv, bandwidth, overhead, block, length: _copied(kv, bandwidth, overhead, 2 * block, length),
                "s",
            ),
        },
    ),
    Theorem(
        id="blocks/i12-larger-blocks-bounded",
        sentence="Doubling the block makes a swap slower by at most one block's crossing of the link, out and back.",
        parameters={
            "kv": KV,
            "bandwidth": BANDWIDTH,
            "overhead": nonnegative("s", 1e-6, 2e-5),
            "block": BLOCK,
            "length": TOKENS,
        },
        lemmas={
            "half the blocks, and one at most": lambda length, block: (
                whole_block_tokens(length, 2 * block) <= whole_block_tokens(length, block) + block
            ),
            "no more blocks": lambda length, block: (
                whole_block_tokens(length, 2 * block) <= 2 * whole_block_tokens(length, block)
            ),
        },
        claim=_halved,
    ),
    Theorem(
        id="blocks/n87-regret",
        sentence="In whole blocks too, a bandwidth wrong by some factor costs at most that factor.",
        parameters={**_UNITS, "length": TOKENS, "believed": BANDWIDTH},
        claim=_wrong_bandwidth,
    ),
)
