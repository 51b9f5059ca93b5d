"""Facts of a model -> what the cost functions take."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from preempt_spec.cost.checked import checked
from preempt_spec.cost.shape import Architecture, Attention, Recurrent

from . import facts, parameters

#: Bytes per element of what is no recurrent state: the short past that a convolution looks at.
_ACTIVATION: Final = 2
#: Tensors of one layer with a state: the convolution's past and the state.
_TENSORS: Final = 2


def architecture(model: facts.Model) -> Architecture[Fraction]:
    """The model as the cost functions see it: counts over all GPUs; parameters as `parameters.count` counts them."""
    count = parameters.count(model)
    return checked(
        Architecture(
            params_total=Fraction(count.total),
            params_active=Fraction(count.active),
            attention=_attention(model),
            recurrent=_recurrent(model),
            max_length=None if model.max_position is None else Fraction(model.max_position),
        )
    )


def _attention(model: facts.Model) -> tuple[Attention[Fraction], ...]:
    """Full attention, sliding attention, latents: each kind that the model has."""
    kinds = []
    if model.attention:
        a = model.attention
        for layers, window in ((a.layers - a.sliding_layers, None), (a.sliding_layers, a.window)):
            if layers:
                kinds.append(_kind(layers, a.heads, a.kv_heads, a.head_dim, a.head_dim, window, None))
    if model.latent:
        m = model.latent
        kinds.append(_kind(m.layers, m.heads, 1, m.nope_dim + m.rope_dim, m.value_dim, None, m.kv_rank + m.rope_dim))
    return tuple(kinds)


def _kind(
    layers: int, heads: int, kv_heads: int, key_dim: int, value_dim: int, window: int | None, latent: int | None
) -> Attention[Fraction]:
    return Attention(
        layers=Fraction(layers),
        heads=Fraction(heads),
        kv_heads=Fraction(kv_heads),
        key_dim=Fraction(key_dim),
        value_dim=Fraction(value_dim),
        window=None if window is None else Fraction(window),
        latent=None if latent is None else Fraction(latent),
    )


def _recurrent(model: facts.Model) -> Recurrent[Fraction] | None:
    """Layers with a state: the state itself, and what the convolution keeps (its kernel less the current token)."""
    if model.delta_net:
        d = model.delta_net
        mixed = 2 * d.key_heads * d.key_dim + d.value_heads * d.value_dim
        state = d.value_heads * d.key_dim * d.value_dim * d.state_bytes
        layers, conv = d.layers, d.conv
    elif model.mamba:
        m = model.mamba
        inner = m.heads * m.head_dim
        mixed = inner if m.dt_rank is not None else inner + 2 * m.groups * m.state
        state = inner * m.state * m.state_bytes
        layers, conv = m.layers, m.conv
    else:
        return None
    kept = state + mixed * (conv - 1) * _ACTIVATION
    return Recurrent(layers=Fraction(layers), state_bytes=Fraction(kept), tensors=Fraction(_TENSORS))
