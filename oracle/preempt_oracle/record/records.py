"""What the engine's thread hands to the process beside it: columns, as they were read, and no events yet.

One record per call of the scheduler. `None` in a column means "as in the record before"; so a step in which nobody
comes or goes names nobody. Records are MessagePack arrays with their length in front. The two ends are always of one
installation, so this form has no version.
"""

from __future__ import annotations

from typing import Any

import msgspec

from preempt_oracle.trace import wire

LENGTH = 4  # bytes in front of each record, little-endian


class Begun(msgspec.Struct, array_like=True, tag=1):
    """What is recorded, and what is to be done with it."""

    header: wire.Header
    traits: list[str]
    page_size: int
    small: bool  # the pool is walked block by block
    priority: bool
    drafts: bool  # proposed behind each delivery
    online: bool
    directory: str | None
    part: int
    limit: int


class Arrived(msgspec.Struct, array_like=True, tag=2):
    """Behind `add_request`."""

    request: str
    prompt: list[int]
    max_tokens: int
    priority: int
    arrival: float
    salt: str


# -- what happened inside of a call, in real order ---------------------------------------------------------------------


class Withdrawn(msgspec.Struct, array_like=True, tag=11):
    """A block lost its hash."""

    block: int


class Published(msgspec.Struct, array_like=True, tag=12):
    """Blocks got a hash."""

    request: str
    blocks: list[int]


class Emptied(msgspec.Struct, array_like=True, tag=13):
    """Every hash is gone."""


class Freed(msgspec.Struct, array_like=True, tag=14):
    """Blocks went back with nobody preempted or finished."""

    blocks: list[int]


class Short(msgspec.Struct, array_like=True):
    """The allocation that failed, and what had been granted by then."""

    request: str
    length: int  # tokens that need slots
    owned: int  # blocks
    free: int  # blocks
    grows: bool  # it runs already
    planned: int  # grants made so far in this step
    place: int | None = None  # of the victim's own grant among them
    tokens: int = 0  # of that grant


class Demoted(msgspec.Struct, array_like=True, tag=15):
    """A preemption begins. `short`: why; nothing, if it is no allocation's sake."""

    request: str
    start: int  # its computed tokens, from which a grant of this step would start
    short: Short | None = None


class Requeued(msgspec.Struct, array_like=True, tag=16):
    """A preemption is over."""

    request: str
    freed: list[int]
    computed: int
    drafts: int
    known: int
    waiting: Waiting
    left: list[int] = []  # blocks that its table still names


Happened = Withdrawn | Published | Emptied | Freed | Demoted | Requeued


class Waiting(msgspec.Struct, array_like=True):
    """The queues as vLLM keeps them: the one in front, and the waiting one (a heap under PRIORITY)."""

    held: list[str]
    queue: list[str]


class Ended(msgspec.Struct, array_like=True):
    """A request is over."""

    request: str
    status: str
    freed: list[int]
    preemptions: int
    left: list[int] = []


class Small(msgspec.Struct, array_like=True):
    """A small pool, block by block."""

    tables: dict[str, list[int]]
    free_ids: list[int]
    refs: list[tuple[int, int]]
    hashed: list[int]


class Books(msgspec.Struct, array_like=True):
    """vLLM's own books behind a call."""

    free: int
    running: list[str] | bool | None = None  # True: whom the step grants something, in that order
    waiting: Waiting | None = None
    computed: list[tuple[str, int]] = []  # who waits with computed tokens
    small: Small | None = None


class Grown(msgspec.Struct, array_like=True):
    """A table that is another one than it was: blocks behind the first `kept`."""

    request: str
    kept: int
    blocks: list[int]


class New(msgspec.Struct, array_like=True):
    """A request that the worker is told of in full."""

    request: str
    computed: int
    blocks: list[int]
    known: int  # tokens it is sent


class Stepped(msgspec.Struct, array_like=True, tag=3):
    """Behind `schedule`."""

    names: list[str] | None
    counts: list[int] | None
    cached: list[str] | None  # who the worker knows; None: `names`
    starts: list[int]
    blocks: list[Any]  # for each of them None, or the blocks of each group
    books: Books
    preemptions: int | None = None
    happened: list[Happened] = []
    full: bool = False  # all tables were looked at; otherwise who grew by just what is in `blocks` is not in `grown`
    grown: list[Grown] = []
    gone: list[str] = []  # tables that are no more
    new: list[New] = []
    resumed: list[tuple[str, int | None]] = []
    drafts: list[tuple[str, int]] = []
    hits: dict[str, int] = {}
    cached_counts: list[tuple[str, int, int]] = []
    held_back: list[str] = []
    idle: bool = False  # no request is known
    paused: bool = False


class Landed(msgspec.Struct, array_like=True, tag=4):
    """Behind `update_from_output`."""

    frame: int
    tokens: list[int]  # sampled, request by request in the order of the frame
    counts: list[int] | None = None  # of those; None: one each
    shown: list[tuple[str, list[int]]] | None = None  # to the user; None: just that
    added: list[list[int]] | None = None  # to the requests; None: just that
    ended: list[Ended] = []
    happened: list[Happened] = []


class Drafted(msgspec.Struct, array_like=True, tag=5):
    """Behind `update_draft_token_ids`: drafts that the scheduler kept."""

    names: list[str]
    kept: list[int]


class Aborted(msgspec.Struct, array_like=True, tag=6):
    """Behind `finish_requests`."""

    ended: list[Ended]
    books: Books


class Cleared(msgspec.Struct, array_like=True, tag=7):
    """Behind a reset under running requests."""

    happened: list[Happened]
    grown: list[Grown]
    gone: list[str]
    small: Small | None


class Paused(msgspec.Struct, array_like=True, tag=8):
    """Behind `set_pause_state`."""

    kind: str


class Broke(msgspec.Struct, array_like=True, tag=9):
    """The engine raised: the last event there is."""

    told: dict[str, Any]


class Stop(msgspec.Struct, array_like=True, tag=10):
    """What comes now cannot be told."""

    why: str


class Bye(msgspec.Struct, array_like=True, tag=17):
    """The engine shuts down."""


Record = Arrived | Stepped | Landed | Drafted | Aborted | Cleared | Paused | Broke | Stop | Bye

ENCODER = msgspec.msgpack.Encoder()
DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Record)
FIRST: msgspec.msgpack.Decoder[Begun] = msgspec.msgpack.Decoder(Begun)
