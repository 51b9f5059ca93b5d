"""Parameter counts of a model, to the last norm: what a recompute multiplies by (active) and reads (total)."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from attrs import frozen

from .facts import Attention, DeltaNet, Experts, Latent, Mamba, Mlp, Model

# One byte per weight of FP8; MXFP4 is 4 bits and a scale of 8 bits for every 32.
_MXFP4: Final = Fraction(17, 32)
_PLAIN: Final = {"bf16": 2, "fp16": 2, "fp32": 4}


@frozen
class Parameters:
    """Numbers of parameters. The embedding counts once if it is tied to the output head, and is in the other two."""

    total: int
    active: int  # without the routed experts that a token does not visit
    embedding: int  # of the tokens; a lookup, no multiplication
    routed: int  # in all routed experts

    def weight_width(self, model: Model) -> Fraction:
        """Bytes per parameter, on average over all of them, in the format they are stored in.

        With FP8, embedding, output head and everything else that is no projection stay at two bytes; only the first two
        are large enough to be counted so.
        """
        if model.weights == "mxfp4-experts":
            return 2 - (2 - _MXFP4) * Fraction(self.routed, self.total)
        if model.weights == "fp8":
            wide = self.embedding * (1 if model.tied else 2)
            return 1 + Fraction(wide, self.total)
        return Fraction(_PLAIN[model.weights])


def count(model: Model) -> Parameters:
    """Every weight and bias of the language model; no vision tower, no extra layers for multi-token prediction."""
    hidden = model.hidden
    embedding = model.vocab * hidden
    norm = hidden * (2 if model.norm_bias else 1)
    total = embedding * (1 if model.tied else 2) + model.vocab * model.head_bias + model.positions * hidden
    total += (model.layers * model.norms + 1) * norm
    if model.attention:
        total += model.attention.layers * _attention(model.attention, hidden)
    if model.latent:
        total += model.latent.layers * _latent(model.latent, hidden)
    if model.delta_net:
        total += model.delta_net.layers * _delta_net(model.delta_net, hidden)
    if model.mamba:
        total += model.mamba.layers * _mamba(model.mamba, hidden)
    if model.mlp:
        total += model.mlp.layers * _network(model.mlp, hidden)
    routed = idle = 0
    if model.experts:
        e = model.experts
        one = _network(e, hidden)
        routed = e.layers * e.experts * one
        idle = e.layers * (e.experts - e.topk) * one
        total += routed + e.layers * _beside_experts(e, hidden)
    return Parameters(total, total - idle, embedding, routed)


def _attention(a: Attention, hidden: int) -> int:
    q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    queries = q * (2 if a.output_gate else 1)
    matrices = hidden * (queries + 2 * kv) + q * hidden
    biases = a.qkv_bias * (queries + 2 * kv) + a.out_bias * hidden
    return matrices + biases + a.qk_norm * 2 * a.head_dim + a.sinks * a.heads


def _latent(a: Latent, hidden: int) -> int:
    q = a.heads * (a.nope_dim + a.rope_dim)
    # Both compressions end in a norm.
    queries = hidden * q if a.q_rank is None else hidden * a.q_rank + a.q_rank + a.q_rank * q
    latents = hidden * (a.kv_rank + a.rope_dim) + a.kv_rank + a.kv_rank * a.heads * (a.nope_dim + a.value_dim)
    return queries + latents + a.heads * a.value_dim * hidden


def _delta_net(d: DeltaNet, hidden: int) -> int:
    keys, values = d.key_heads * d.key_dim, d.value_heads * d.value_dim
    # Query, key, value, output gate; two scalars per value head. Then a depthwise convolution, decay with bias, a norm.
    into = hidden * (2 * keys + 2 * values) + hidden * 2 * d.value_heads
    return into + (2 * keys + values) * d.conv + 2 * d.value_heads + d.value_dim + values * hidden


def _mamba(m: Mamba, hidden: int) -> int:
    inner = m.heads * m.head_dim
    if m.dt_rank is not None:
        # Mamba-1: step, B and C are projected from the channels, and normed (as in Jamba).
        steps = inner * (m.dt_rank + 2 * m.state) + m.dt_rank * inner + inner + m.dt_rank + 2 * m.state
        return hidden * 2 * inner + inner * (m.conv + 1) + steps + inner * m.state + inner + inner * hidden
    mixed = inner + 2 * m.groups * m.state
    return hidden * (inner + mixed + m.heads) + mixed * (m.conv + 1) + 3 * m.heads + inner + inner * hidden


def _network(n: Mlp | Experts, hidden: int) -> int:
    """One dense network, or one routed expert."""
    wide = n.intermediate * (2 if n.gated else 1)
    return wide * hidden + n.intermediate * hidden + n.bias * (wide + hidden)


def _beside_experts(e: Experts, hidden: int) -> int:
    """Router and shared experts of one layer."""
    shared = (3 if e.gated else 2) * hidden * e.shared
    return hidden * e.experts + e.router_bias * e.experts + shared + e.shared_gate * hidden
