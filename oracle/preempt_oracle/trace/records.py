"""The records inside events on the wire: pools and limits of the header, block deltas, the engine's own books."""

from __future__ import annotations

from typing import Final

from .fields import Blocks, Count, GroupBlocks, GroupKind, Int64, Positive, Record, Small, Tier


class Group(Record, frozen=True):
    """A KV-cache group."""

    name: str = "full"
    kind: GroupKind = "full"
    page_size: Positive = 16
    window: Count = 0


class Pool(Record, frozen=True):
    """The blocks of one tier and group."""

    tier: Tier = "device"
    group: Count = 0
    total: Count = 0
    reserved: Count = 0


class Limits(Record, frozen=True):
    """The configuration a policy reads."""

    max_running: Count
    budget: Count
    max_length: Count
    long_prefill: Count = 0
    chunked: bool = True
    caching: bool = False
    whole_fit: bool = True
    watermark: Count = 0
    frames: Positive = 1
    drafts: Count = 0
    lookahead: Count = 0
    threshold: Count = 0


class Delta(Small, frozen=True):
    """Blocks appended to a request's owned table: [request, group, [block, ...]]."""

    request: str
    group: Count
    blocks: Blocks


class Sent(Small, frozen=True):
    """What the worker was told of a table: [request, group, [block, ...], full]."""

    request: str
    group: Count
    blocks: Blocks
    full: bool = False


class Resumed(Small, frozen=True):
    """A request told to the worker in full after a preemption: [request, known tokens]."""

    request: str
    known: Count | None = None


class Hit(Small, frozen=True):
    """Tokens covered by a prefix hit, or drafts of a grant: [request, tokens]."""

    request: str
    tokens: Count


class Held(Small, frozen=True):
    """A request outside the running queue that holds memory: [request, blocks, computed tokens]."""

    request: str
    blocks: Int64
    computed: Int64


class Refs(Small, frozen=True):
    """A block whose reference count is neither 0 nor 1: [group, block, count]."""

    group: Count
    block: Count
    count: Int64


class Cached(Small, frozen=True):
    """Cached tokens of an admitted request, as the engine counts them: [request, tokens, external]."""

    request: str
    tokens: Int64
    external: Int64 = 0


class Observed(Record, frozen=True):
    """The engine's own books."""

    free: tuple[Int64, ...] | None = None
    free_ids: GroupBlocks | None = None
    running: tuple[str, ...] | None = None
    waiting: tuple[str, ...] | None = None
    held: tuple[Held, ...] | None = None
    refs: tuple[Refs, ...] | None = None
    swapped: tuple[str, ...] | None = None
    loading: tuple[str, ...] | None = None
    host_free: tuple[Int64, ...] | None = None
    preemptions: Int64 | None = None
    cached: tuple[Cached, ...] | None = None


#: The shared default: a step whose `observed` is this very object carries no observation.
NOTHING_OBSERVED: Final = Observed()
