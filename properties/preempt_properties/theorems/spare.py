"""Spare compute: what rides along in a memory-bound decode step, counted four ways from hopeful to careful."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from preempt_properties.theorems.settings import HALF, ONE, TWO, device, layers, link, shape, transfer
from preempt_properties.theorems.theorem import (
    ATTENTION,
    BANDWIDTH,
    BYTES,
    FLOPS,
    KV,
    LENGTH,
    MEMORY,
    PARAMS,
    SECONDS,
    Kind,
    Parameter,
    Theorem,
    equal,
    positive,
)
from preempt_spec.cost.recompute import compute_time
from preempt_spec.cost.shape import Shape, State
from preempt_spec.cost.spare import (
    decode_step_time,
    piggyback_break_even,
    piggyback_time,
    spare_tokens,
    spare_tokens_by_kernel,
    spare_tokens_with_attention,
    token_time,
)
from preempt_spec.cost.swap import swap_time

BATCH = positive("requests", 1, 512)
RATIO = Parameter(unit="", above=Fraction(0), usual=(0.3, 1.5))
SPARE = positive("tokens", 1, 2_000)

_STEP = {"params": PARAMS, "flops": FLOPS, "step": SECONDS, "batch": BATCH}
_DECODE = {
    "kv": KV,
    "params": PARAMS,
    "flops": FLOPS,
    "memory": MEMORY,
    "batch": BATCH,
    "context": LENGTH,
}
_CHARGED = {
    **_STEP,
    "pair": ATTENTION,
    "ratio": RATIO,
    "context": LENGTH,
    "attended": LENGTH,
}


def _plain(params: Any, flops: Any, step: Any, batch: Any) -> Any:
    return spare_tokens(shape(params), device(flops), step, batch)


def _bf16(kv: Any, params: Any) -> Shape[Any]:
    """A dense model at two bytes per parameter."""
    return shape(params, layers(kv), weights=TWO * params)


def _decode(kv: Any, params: Any, flops: Any, memory: Any, batch: Any, context: Any) -> Any:
    """Spare tokens of a decode step that takes as long as it reads."""
    model, gpu = _bf16(kv, params), device(flops, memory)
    return spare_tokens(model, gpu, decode_step_time(model, gpu, batch, context), batch)


def _by_kernel(kv: Any, params: Any, flops: Any, memory: Any, batch: Any) -> Any:
    return spare_tokens_by_kernel(_bf16(kv, params), device(flops, memory), batch)


def _charged(params: Any, flops: Any, step: Any, batch: Any, pair: Any, ratio: Any, context: Any, attended: Any) -> Any:
    return spare_tokens_with_attention(
        shape(params, layers(ONE, pair)), device(flops, attention=ratio), step, batch, context, attended
    )


def _fewer(params: Any, flops: Any, step: Any, batch: Any, pair: Any, ratio: Any, context: Any, attended: Any) -> bool:
    charged = _charged(params, flops, step, batch, pair, ratio, context, attended)
    return bool(charged < _plain(params, flops, step, batch))


THEOREMS = (
    Theorem(
        id="spare/t37-longer-step",
        sentence="A longer memory-bound step has strictly more spare tokens.",
        parameters={**_STEP, "longer": SECONDS},
        hypotheses={"the second step is longer": lambda step, longer: step < longer},
        claim=lambda params, flops, step, longer, batch: (
            _plain(params, flops, step, batch) < _plain(params, flops, longer, batch)
        ),
    ),
    Theorem(
        id="spare/t37-faster-gpu",
        sentence="A GPU with more FLOP/s has strictly more spare tokens in a step of the same time.",
        parameters={**_STEP, "faster": FLOPS},
        hypotheses={"the second GPU is faster": lambda flops, faster: flops < faster},
        claim=lambda params, flops, faster, step, batch: (
            _plain(params, flops, step, batch) < _plain(params, faster, step, batch)
        ),
    ),
    Theorem(
        id="spare/t37-larger-model",
        sentence="A model with more active parameters has strictly fewer spare tokens in a step of the same time.",
        parameters={**_STEP, "more": PARAMS},
        hypotheses={"the second model has more": lambda params, more: params < more},
        claim=lambda params, more, flops, step, batch: (
            _plain(more, flops, step, batch) < _plain(params, flops, step, batch)
        ),
    ),
    Theorem(
        id="spare/n54-fills-the-step",
        sentence="The spare tokens and the batch together keep the products busy for exactly the step.",
        parameters={**_STEP, "ratio": RATIO},
        claim=lambda params, flops, ratio, step, batch: equal(
            (spare_tokens(shape(params), device(flops, attention=ratio), step, batch) + batch) * 2 * params / flops,
            step,
        ),
    ),
    Theorem(
        id="spare/t38-larger-batch",
        sentence="A larger batch leaves more spare tokens exactly if reading one request's KV takes longer than "
        "computing one token; with short contexts batching uses the spare compute up.",
        parameters={**_DECODE, "larger": BATCH},
        hypotheses={"the second batch is larger": lambda batch, larger: batch < larger},
        claim=lambda kv, params, flops, memory, batch, larger, context: (
            (_decode(kv, params, flops, memory, batch, context) < _decode(kv, params, flops, memory, larger, context))
            == (context * kv / memory > 2 * params / flops)
        ),
    ),
    Theorem(
        id="spare/t39-by-kernel",
        sentence="Counted kernel by kernel there is strictly less to spare than counted over the whole step.",
        parameters=_DECODE,
        claim=lambda kv, params, flops, memory, batch, context: (
            _by_kernel(kv, params, flops, memory, batch) < _decode(kv, params, flops, memory, batch, context)
        ),
    ),
    Theorem(
        id="spare/t39-ridge",
        sentence="Counted kernel by kernel, a dense model at two bytes a weight spares the GPU's FLOP/s over its "
        "bytes/s less the batch, whatever the model.",
        parameters={"kv": KV, "params": PARAMS, "flops": FLOPS, "memory": MEMORY, "batch": BATCH},
        claim=lambda kv, params, flops, memory, batch: equal(
            _by_kernel(kv, params, flops, memory, batch), flops / memory - batch
        ),
    ),
    Theorem(
        id="spare/t76-attention-charged",
        sentence="Charging attention leaves strictly fewer spare tokens than charging products alone, if those are "
        "any.",
        parameters=_CHARGED,
        hypotheses={
            "products alone leave some": lambda params, flops, step, batch: _plain(params, flops, step, batch) > 0
        },
        claim=_fewer,
    ),
    Theorem(
        id="spare/t77-attention-charged-always",
        kind=Kind.FALSE,
        sentence="Charging attention leaves strictly fewer spare tokens also where there are none: a step over-full "
        "by products alone is more so with attention.",
        parameters=_CHARGED,
        claim=_fewer,
        at={
            "params": 8_030_000_000,
            "flops": 494_500_000_000_000,
            "step": Fraction(1, 100),
            "batch": 512,
            "pair": 524_288,
            "ratio": 1,
            "context": 128,
            "attended": 65_536,
        },
        shows={
            "spare with attention": (_charged, "tokens"),
            "spare by products alone": (_plain, "tokens"),
        },
    ),
    Theorem(
        id="spare/t57-riding-along",
        sentence="Riding along brings a request back before a swap does exactly below the bandwidth that is given for "
        "it.",
        parameters={"kv": KV, "spare": SPARE, "step": SECONDS, "bandwidth": BANDWIDTH, "length": LENGTH},
        claim=lambda kv, spare, step, bandwidth, length: (
            (
                piggyback_time(length, spare, step)
                < swap_time(model := shape(ONE, layers(kv)), transfer(link(bandwidth)), length)
            )
            == (bandwidth < piggyback_break_even(model, spare, step))
        ),
    ),
    Theorem(
        id="spare/n55-more-spare",
        sentence="The more tokens ride along in a step, the sooner the request is back, and the more bandwidth a swap "
        "needs to be sooner.",
        parameters={"kv": KV, "spare": SPARE, "more": SPARE, "step": SECONDS, "length": LENGTH},
        hypotheses={"the second step spares more": lambda spare, more: spare < more},
        claim=lambda kv, spare, more, step, length: (
            piggyback_time(length, more, step) < piggyback_time(length, spare, step)
            and piggyback_break_even(shape(ONE, layers(kv)), spare, step)
            < piggyback_break_even(shape(ONE, layers(kv)), more, step)
        ),
    ),
    Theorem(
        id="spare/n56-weights-dominate",
        sentence="A decode step never takes less than reading the weights, and each further request adds its KV's "
        "reading.",
        parameters={**_DECODE, "more": BATCH},
        claim=lambda kv, params, flops, memory, batch, more, context: equal(
            decode_step_time(model := _bf16(kv, params), gpu := device(flops, memory), batch + more, context)
            - decode_step_time(model, gpu, batch, context),
            more * kv * context / memory,
        ),
    ),
    Theorem(
        id="spare/n99-window",
        sentence="A sliding window bounds the KV that a decode step reads: beyond it, a longer context takes no "
        "longer.",
        parameters={
            "kv": KV,
            "memory": MEMORY,
            "batch": BATCH,
            "context": LENGTH,
            "window": LENGTH,
        },
        claim=lambda kv, memory, batch, context, window: equal(
            decode_step_time(shape(ONE, layers(kv, window=window), weights=ONE), device(ONE, memory), batch, context),
            decode_step_time(shape(ONE, layers(kv), weights=ONE), device(ONE, memory), batch, min(context, window)),
        ),
    ),
    Theorem(
        id="spare/n100-state",
        sentence="A state of constant size is read once per request and step, whatever the context.",
        parameters={"state": BYTES, "memory": MEMORY, "batch": BATCH, "context": LENGTH},
        claim=lambda state, memory, batch, context: equal(
            decode_step_time(Shape(ONE, ONE, (), State(state, ONE)), device(ONE, memory), batch, context),
            (1 + batch * state) / memory,
        ),
    ),
    Theorem(
        id="spare/n110-charged-fills-the-step",
        sentence="With attention charged, the spare tokens and the batch together keep the GPU busy for exactly the "
        "step.",
        parameters=_CHARGED,
        claim=lambda params, flops, step, batch, pair, ratio, context, attended: equal(
            _charged(params, flops, step, batch, pair, ratio, context, attended)
            * token_time(model := shape(params, layers(ONE, pair)), gpu := device(flops, attention=ratio), attended)
            + batch * token_time(model, gpu, context),
            step,
        ),
    ),
    Theorem(
        id="spare/n111-token-of-a-prefill",
        sentence="A token that sees n others costs what a prefill spends on the stretch of one token around n.",
        parameters={"params": PARAMS, "flops": FLOPS, "pair": ATTENTION, "ratio": RATIO, "attended": LENGTH},
        claim=lambda params, flops, pair, ratio, attended: equal(
            token_time(model := shape(params, layers(ONE, pair)), gpu := device(flops, attention=ratio), attended),
            compute_time(model, gpu, attended + HALF, attended - HALF),
        ),
    ),
)
