"""Swapping: the KV crosses the host link out and back in, in seconds per request on one GPU.

A `Transfer` says how: the law of each direction, in which pieces, in whole blocks or not, and what of it is counted.
"""

from __future__ import annotations

from enum import Enum
from typing import Generic

from attrs import frozen

from preempt_spec.cost.copies import Law, copy_time, covers
from preempt_spec.cost.number import N, round_up
from preempt_spec.cost.shape import Layers, Shape


class Copies(Enum):
    """In which pieces the KV of a request is copied."""

    PER_TENSOR = "one copy per block, per layer, per K or V"
    PER_BLOCK = "one copy per block: all layers of a block lie together, or are gathered"
    GATHERED = "one copy for the whole request"


class Trip(Enum):
    """What of the trip is paid because of the preemption."""

    ROUND_TRIP = "out at preemption, back in at resume"
    WRITE_THROUGH = "back in only: the blocks were written out as they filled, preemption or not"


class Directions(Enum):
    """What the two directions of the link do to each other."""

    SERIAL = "one after the other"
    OVERLAPPED = "duplex: while one request goes out another comes in, so that the slower direction alone counts"


class Hit(Enum):
    """What a prefix hit means for the swap."""

    KEEPS_BYTES = "the swap moves all bytes nevertheless"
    SAVES_BYTES = "the cached tokens are moved in neither direction"


@frozen
class Transfer(Generic[N]):
    """How the KV of a request moves between device and host."""

    out: Law[N]
    """The law of one copy from device to host."""
    back: Law[N]
    """The law of one copy from host to device."""
    block: N
    """Tokens per block."""
    copies: Copies = Copies.PER_TENSOR
    whole_blocks: bool = True
    """Whether a partly filled block is moved whole, and prefix hits are whole blocks. False: the smooth model, in which
    a part of a block is a part of a copy."""
    trip: Trip = Trip.ROUND_TRIP
    directions: Directions = Directions.SERIAL
    hit: Hit = Hit.KEEPS_BYTES


@frozen
class Batch(Generic[N]):
    """Copies of one size."""

    count: N
    """Number of copies."""
    size: N
    """bytes of each."""


def whole_block_tokens(tokens: N, block: N) -> N:
    """Return the tokens of the whole blocks that hold `tokens`."""
    return round_up(tokens / block) * block


def moved_tokens(layers: Layers[N], transfer: Transfer[N], length: N, cached: N | int = 0) -> N:
    """Return the tokens of a request of `length` whose KV of these layers crosses the link (once)."""
    tokens = length - cached if transfer.hit is Hit.SAVES_BYTES else length
    if layers.window is not None:
        tokens = min(tokens, layers.window)
    if transfer.whole_blocks:
        return whole_block_tokens(tokens, transfer.block)
    return tokens


def moved_bytes(shape: Shape[N], transfer: Transfer[N], length: N, cached: N | int = 0) -> N:
    """Return the bytes that cross the link in ONE direction, padding of whole blocks included."""
    kv = (layers.kv_bytes * moved_tokens(layers, transfer, length, cached) for layers in shape.layers)
    constant = 0 * length if shape.state is None else shape.state.state_bytes
    return sum(kv, start=constant)


def batches(shape: Shape[N], transfer: Transfer[N], length: N, cached: N | int = 0) -> tuple[Batch[N], ...]:
    """Return the copies of ONE direction."""
    if transfer.copies is Copies.GATHERED:
        return (Batch(0 * length + 1, moved_bytes(shape, transfer, length, cached)),)
    found = []
    for layers in shape.layers:
        blocks = moved_tokens(layers, transfer, length, cached) / transfer.block
        found.append(_pieces(transfer.copies, blocks, layers.kv_bytes * transfer.block, layers.tensors))
    if shape.state is not None:
        found.append(_pieces(transfer.copies, 0 * length + 1, shape.state.state_bytes, shape.state.tensors))
    return tuple(found)


def _pieces(copies: Copies, count: N, size: N, tensors: N) -> Batch[N]:
    """Things of `size` bytes, each in as many pieces as the tensors it is spread over."""
    if copies is Copies.PER_TENSOR:
        return Batch(count * tensors, size / tensors)
    return Batch(count, size)


def one_way_time(shape: Shape[N], transfer: Transfer[N], law: Law[N], length: N, cached: N | int = 0) -> N:
    """Return the seconds of one direction under `law` (`transfer.out` or `transfer.back`)."""
    parts = (b.count * copy_time(law, b.size) for b in batches(shape, transfer, length, cached))
    return sum(parts, start=0 * length)


def swap_time(shape: Shape[N], transfer: Transfer[N], length: N, cached: N | int = 0) -> N:
    """Return the seconds on the link for a request of `length` tokens, of which a prefix hit gives `cached` back."""
    back = one_way_time(shape, transfer, transfer.back, length, cached)
    if transfer.trip is Trip.WRITE_THROUGH:
        return back
    out = one_way_time(shape, transfer, transfer.out, length, cached)
    if transfer.directions is Directions.OVERLAPPED:
        return max(out, back)
    return out + back


def extrapolated_sizes(shape: Shape[N], transfer: Transfer[N], length: N, cached: N | int = 0) -> tuple[N, ...]:
    """Return the sizes (bytes) of this swap's copies that lie outside of what a measured law covers."""
    laws = (transfer.back,) if transfer.trip is Trip.WRITE_THROUGH else (transfer.out, transfer.back)
    sizes = (b.size for b in batches(shape, transfer, length, cached))
    return tuple(size for size in sizes if not all(covers(law, size) for law in laws))


def crossings(transfer: Transfer[N]) -> int:
    """Return how many times the bytes count against one direction's bandwidth: 2, or 1 if one way is free."""
    if transfer.trip is Trip.WRITE_THROUGH or transfer.directions is Directions.OVERLAPPED:
        return 1
    return 2


def swap_bandwidth(shape: Shape[N], transfer: Transfer[N], length: N, cached: N | int = 0) -> N:
    """Return the effective bytes/s per direction of the whole swap: the harmonic mean of the two, if serial."""
    counted = crossings(transfer) * moved_bytes(shape, transfer, length, cached)
    return counted / swap_time(shape, transfer, length, cached)


def repeated_swap_time(shape: Shape[N], transfer: Transfer[N], length: N, times: N) -> N:
    """Return the seconds of `times` preemptions of one request whose host copy is kept: out once, back each time."""
    back = times * one_way_time(shape, transfer, transfer.back, length)
    if transfer.trip is Trip.WRITE_THROUGH:
        return back
    return one_way_time(shape, transfer, transfer.out, length) + back
