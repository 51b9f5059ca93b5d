"""Refuses nonsense, at the edge: the formulas never look, so that a solver can run them on symbols.

`checked(value)` returns the value, or raises ValueError that begins with the field ("kv_heads: …"). It is for concrete
numbers (fractions, floats): it asks whether they are finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import attrs

from preempt_spec.cost.copies import Tabulated
from preempt_spec.cost.decide import Setting
from preempt_spec.cost.fit import Point
from preempt_spec.cost.number import N
from preempt_spec.cost.recompute import Device
from preempt_spec.cost.shape import Architecture, Attention, Shape

T = TypeVar("T")

#: Fields that may be zero; every other number must be above it.
_MAY_BE_ZERO = frozenset({("Affine", "overhead"), ("Setting", "hit")})
#: Fields that count things.
_WHOLE = frozenset({"heads", "kv_heads", "key_dim", "value_dim", "latent", "window", "block", "tensors", "max_length"})


def checked(value: T) -> T:
    """Return a value of this package (an Architecture, a Device, a Transfer, a Setting …) if its fields make sense.

    Raises ValueError that names the field (with the path to it, `transfer.out.bandwidth`) and the reason.
    """
    _check(value, "")
    return value


def _check(value: Any, path: str) -> None:
    for field in attrs.fields(type(value)):
        _check_field(type(value).__name__, field.name, getattr(value, field.name), f"{path}{field.name}")
    for kind, rule in _RULES:
        if isinstance(value, kind):
            rule(value, path)


def _check_field(owner: str, name: str, value: Any, path: str) -> None:
    if attrs.has(type(value)):
        _check(value, f"{path}.")
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            _check_field(owner, name, item, f"{path}[{i}]")
    elif isinstance(value, int) and not isinstance(value, bool):
        raise TypeError(f"{path}: an int divides into floats; give a Fraction or a float")
    elif hasattr(value, "__ceil__") and not isinstance(value, bool):
        check_number(path, value, zero=(owner, name) in _MAY_BE_ZERO)
        if name in _WHOLE and value > math.floor(value):
            raise ValueError(f"{path}: {_show(value)} is no whole number")


def check_number(name: str, value: Any, *, zero: bool = False) -> None:
    """Raise ValueError naming the field unless the value is finite and above 0 (or, with `zero`, not below it)."""
    try:
        finite = math.isfinite(value)
    except OverflowError:
        raise ValueError(f"{name}: too large for any quantity meant here") from None
    if not finite:
        raise ValueError(f"{name}: {_show(value)} is not a finite number")
    if value < 0 or (value <= 0 and not zero):
        raise ValueError(f"{name}: {_show(value)} is not {'0 or more' if zero else 'above 0'}")


def check_length(length: N, max_length: N | None = None) -> N:
    """Return a request's length in tokens if it is whole, 1 or more, and no longer than the model's context."""
    check_number("length", length)
    if _not_whole(length):
        raise ValueError(f"length: {_show(length)} is no whole number of tokens")
    if max_length is not None and length > max_length:
        raise ValueError(f"length: {_show(length)} tokens are more than the model's context of {_show(max_length)}")
    return length


def check_ranks(architecture: Architecture[N], ranks: N) -> N:
    """Return the degree of tensor parallelism if it divides the model's heads and fits its KV heads."""
    check_number("ranks", ranks)
    for i, attention in enumerate(architecture.attention):
        if not _divides(ranks, attention.heads):
            raise ValueError(f"ranks: {_show(ranks)} do not divide attention[{i}].heads = {_show(attention.heads)}")
        kv = attention.kv_heads
        if attention.latent is None and not _divides(ranks, kv) and not _divides(kv, ranks):
            raise ValueError(
                f"ranks: neither of {_show(ranks)} and attention[{i}].kv_heads = {_show(kv)} divides the other"
            )
    if _not_whole(ranks):
        raise ValueError(f"ranks: {_show(ranks)} is no whole number of GPUs")
    return ranks


def check_sizes(sizes: Sequence[N], name: str = "sizes") -> None:
    """Raise ValueError unless the sizes increase strictly."""
    for i in range(1, len(sizes)):
        if sizes[i] <= sizes[i - 1]:
            raise ValueError(f"{name}[{i}]: {_show(sizes[i])} is not above {_show(sizes[i - 1])} before it")


def check_points(points: Sequence[Point[N]]) -> Sequence[Point[N]]:
    """Return measured points if a law can be fitted: two or more, sensible, in strictly increasing order of size."""
    if len(points) < 2:
        raise ValueError(f"points: {len(points)} given, a law needs 2 or more")
    for i, point in enumerate(points):
        _check(point, f"points[{i}].")
    check_sizes([point.size for point in points])
    return points


def _show(value: Any) -> str:
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e15 else f"{number:g}"


def _not_whole(value: Any) -> bool:
    return bool(value > math.floor(value))


def _divides(part: Any, whole: Any) -> bool:
    return not _not_whole(whole / part)


def _architecture(a: Architecture[N], path: str) -> None:
    if not a.attention and a.recurrent is None:
        raise ValueError(f"{path}attention: no attention layers and no recurrent ones; nothing would be kept")
    if a.params_active > a.params_total:
        raise ValueError(
            f"{path}params_active: {_show(a.params_active)} is above params_total = {_show(a.params_total)}"
        )


def _attention(a: Attention[N], path: str) -> None:
    if a.kv_heads > a.heads:
        raise ValueError(f"{path}kv_heads: {_show(a.kv_heads)} is above heads = {_show(a.heads)}")
    if not _divides(a.kv_heads, a.heads):
        raise ValueError(f"{path}kv_heads: {_show(a.kv_heads)} does not divide heads = {_show(a.heads)}")


def _device(d: Device[N], path: str) -> None:
    for name in ("gemm_efficiency", "attention_efficiency"):
        share = getattr(d, name)
        if share > 1:
            raise ValueError(f"{path}{name}: {_show(share)} is above 1")


def _shape(s: Shape[N], path: str) -> None:
    if not s.layers and s.state is None:
        raise ValueError(f"{path}layers: neither layers nor a state; nothing would be moved")


def _setting(s: Setting[N], path: str) -> None:
    if s.hit is not None and s.hit > 1:
        raise ValueError(f"{path}hit: {_show(s.hit)} is not within [0, 1]")


def _tabulated(law: Tabulated[N], path: str) -> None:
    if len(law.sizes) != len(law.seconds):
        raise ValueError(f"{path}seconds: {len(law.seconds)} times for {len(law.sizes)} sizes")
    if not law.sizes:
        raise ValueError(f"{path}sizes: no points")
    check_sizes(law.sizes, f"{path}sizes")


def _point(p: Point[N], path: str) -> None:
    if not p.shortest <= p.seconds <= p.longest:
        raise ValueError(f"{path}seconds: {_show(p.seconds)} is not within its error")


_RULES: tuple[tuple[type, Any], ...] = (
    (Architecture, _architecture),
    (Attention, _attention),
    (Device, _device),
    (Shape, _shape),
    (Setting, _setting),
    (Tabulated, _tabulated),
    (Point, _point),
)
