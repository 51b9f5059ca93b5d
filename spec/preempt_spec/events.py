"""What can be observed of a scheduler: the header, the events, and the acts inside a step.

One class per entity of trace v1; `preempt_oracle.trace.wire` holds the same fields for the wire and a test keeps the
two alike. Token counts are tokens, block counts are blocks (pages of one group), ids are the engine's own.
Nothing here decides whether an event is right: see `preempt_spec.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from preempt_spec.acts import (
    Act,
    Demote,
    Evict,
    Exchange,
    Load,
    Pin,
    Plan,
    Publish,
    Release,
    Requeue,
    Shed,
    Skip,
    Swap,
    Unfence,
    Unpin,
    Unplan,
    Withdraw,
)

__all__ = [
    "DEVICE",
    "HOST",
    "OBSERVABLE",
    "Abort",
    "Act",
    "Arrive",
    "Cached",
    "Control",
    "CopyDone",
    "CopyStart",
    "Deliver",
    "Delta",
    "Demote",
    "EngineError",
    "Event",
    "Evict",
    "Exchange",
    "Finish",
    "Footer",
    "Group",
    "Header",
    "Held",
    "Hit",
    "Limits",
    "Load",
    "Observed",
    "Pin",
    "Plan",
    "Pool",
    "Publish",
    "Refs",
    "Reject",
    "Release",
    "Requeue",
    "Resumed",
    "Sent",
    "Shed",
    "Skip",
    "Step",
    "Swap",
    "Unfence",
    "Unpin",
    "Unplan",
    "Withdraw",
]

DEVICE = "device"
HOST = "host"

#: What an engine or adapter may declare that it lets us observe. A rule lists what it needs; without it the rule is
#: "not observable", never a pass.
OBSERVABLE: Mapping[str, str] = {
    "counts": "how many blocks each request gets in each step",
    "blocks": "which blocks: true ids from the engine's allocator, not ids made up by the adapter",
    "free": "the engine's own count of free blocks at the end of each step and after each abort",
    "free-ids": "the ids in the engine's free list",
    "refs": "every block whose reference count in the engine is neither 0 nor 1",
    "queues": "the engine's running and waiting queues, in order",
    "demote": "each preemption as it happens, in order, relative to the grants",
    "trigger": "on whose behalf a preemption happened, and its cause",
    "release": "which blocks the engine's allocator really took back from a victim",
    "reset": "the victim's computed tokens after its release, as the engine holds them",
    "held": "every request outside the running queue that still holds blocks or computed tokens",
    "place": "the index at which a victim re-enters its queue",
    "known": "how many tokens the engine keeps for a victim, and presents at its resume",
    "start": "the position at which each grant starts, as told to the worker",
    "sent": "the block table as told to the worker, read apart from the allocator's table",
    "hits": "how many tokens a prefix hit covered at admission",
    "publish": "when a block's hash becomes findable, and when it is withdrawn",
    "emitted": "the tokens the engine itself appended when a frame was delivered",
    "copies": "every copy of blocks between tiers: when it starts, from where to where, and when it is done",
    "host": "the engine's own count of free host blocks at the end of each step",
    "stats": "the engine's own counters of preemptions and of cached tokens",
    "reject": "whether the engine refuses a request when it arrives",
}


@frozen
class Group:
    """A KV-cache group: layers that share one block table. `kind`: full, sliding or recurrent.

    A recurrent group keeps one state per request in one block, for the whole prefix behind it.
    """

    name: str = "full"
    kind: str = "full"
    page_size: int = 16  # tokens per block
    window: int = 0  # sliding: how many tokens, its own included, a token attends


@frozen
class Pool:
    """The blocks of one tier and group. `reserved` blocks (vLLM's null block) are counted in `total`, never owned."""

    tier: str = DEVICE
    group: int = 0
    total: int = 0  # blocks
    reserved: int = 0  # blocks


@frozen
class Limits:
    """The configuration a policy reads. Tokens unless said otherwise."""

    max_running: int  # requests that may run at once (vLLM max_num_seqs)
    budget: int  # tokens granted in one step (vLLM max_num_batched_tokens)
    max_length: int  # longest admissible sequence, prompt and outputs (vLLM max_model_len)
    long_prefill: int = 0  # cap on one grant while several requests live; 0 = none
    chunked: bool = True  # a prefill may be split over steps
    caching: bool = False  # freed full blocks stay findable by prefix
    whole_fit: bool = True  # admission needs room for the whole known sequence (vLLM scheduler_reserve_full_isl)
    watermark: int = 0  # blocks kept free by admission while something runs
    frames: int = 1  # frames that may fly at once; 1: each is delivered before the next step
    drafts: int = 0  # drafts that follow every sampling grant unasked, because its frame still flies
    lookahead: int = 0  # tokens of room behind those known that a table gets when it grows (LMDeploy prefill_interval)
    threshold: int = 0  # by more than this a priority must be better to displace who runs (SGLang)


@frozen
class Header:
    """The first line of a trace."""

    engine: str
    version: str
    policy: str  # name of a profile
    limits: Limits
    groups: tuple[Group, ...] = (Group(),)
    pools: tuple[Pool, ...] = ()
    observes: frozenset[str] = frozenset()
    assumes: tuple[str, ...] = ()
    content: str = "plain"  # tokens are "plain" ids, or "hashed": one salted prefix hash per position
    trace: int = 1


# -- events ---------------------------------------------------------------------------------------------------------


@frozen
class Delta:
    """Blocks appended to a request's owned table, in table order."""

    request: str
    group: int
    blocks: tuple[int, ...]


@frozen
class Sent:
    """What the worker was told of a table: all of it (`full`), or blocks to append."""

    request: str
    group: int
    blocks: tuple[int, ...]
    full: bool = False


@frozen
class Resumed:
    """A request told to the worker in full after a preemption, `known` tokens long."""

    request: str
    known: int | None = None


@frozen
class Hit:
    """Tokens a prefix hit covered when the request was admitted in this step."""

    request: str
    tokens: int


@frozen
class Held:
    """A request outside the running queue that holds memory."""

    request: str
    blocks: int
    computed: int


@frozen
class Refs:
    """A block whose reference count is neither 0 nor 1."""

    group: int
    block: int
    count: int


@frozen
class Cached:
    """Cached tokens of an admitted request as the engine counts them; `external`: those a connector brought."""

    request: str
    tokens: int
    external: int = 0


@frozen
class Observed:
    """The engine's own books. Compared with the shadow state, never believed. Absent fields were not read."""

    free: tuple[int, ...] | None = None  # free blocks per group, evictable ones included
    free_ids: tuple[tuple[int, ...], ...] | None = None  # the free list per group
    running: tuple[str, ...] | None = None
    waiting: tuple[str, ...] | None = None
    held: tuple[Held, ...] | None = None
    refs: tuple[Refs, ...] | None = None
    swapped: tuple[str, ...] | None = None  # victims whose KV the host tier holds, in queue order
    loading: tuple[str, ...] | None = None  # who waits for an asynchronous load
    host_free: tuple[int, ...] | None = None  # free host blocks per group
    preemptions: int | None = None  # since the start
    cached: tuple[Cached, ...] | None = None  # per request admitted in this step


@frozen
class Arrive:
    """A request enters the waiting queue. `arrival` orders requests (ties allowed); smaller `priority` is better."""

    request: str
    prompt: tuple[int, ...]
    max_tokens: int
    priority: int = 0
    arrival: int = 0
    salt: str = ""


@frozen
class Reject:
    """The engine refuses a request that arrived."""

    request: str
    reason: str = ""


@frozen
class Abort:
    """The user cancels a request. `blocks`: what the allocator really took back. `until`: a frame, if fenced.

    `acts`: what else became of blocks meanwhile, in order, before its own go back: pin, unpin, publish, withdraw,
    unfence. Who loads may keep its table until the copy is over: it is pinned here, and unpinned when that is.
    """

    request: str
    reason: str = ""
    blocks: tuple[tuple[int, ...], ...] | None = None
    observed: Observed = Observed()
    until: int | None = None
    acts: tuple[Act, ...] = ()


@frozen
class Finish:
    """The engine ends a request: `length` (max tokens emitted) or `stop`. `until`: a frame, if blocks are fenced."""

    request: str
    reason: str = "length"
    blocks: tuple[tuple[int, ...], ...] | None = None
    until: int | None = None


@frozen
class Control:
    """reset, pause or resume: the operator acts on the scheduler between steps. (caps: reserved, not judged.)

    A reset preempts everybody who runs and drops all KV on the device.
    """

    kind: str
    acts: tuple[Act, ...] = ()


@frozen
class Step:
    """One scheduling decision, dispatched as `frame`.

    `requests`, `tokens` and `start` are parallel: the i-th grant gives `tokens[i]` tokens from position `start[i]`
    (absent: from the computed tokens). They are arrays, not an object keyed by id, so that a duplicate grant shows.
    """

    frame: int
    requests: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    start: tuple[int, ...] | None = None
    blocks: tuple[Delta, ...] = ()
    sent: tuple[Sent, ...] = ()
    resumed: tuple[Resumed, ...] = ()
    hits: tuple[Hit, ...] = ()
    drafts: tuple[Hit, ...] = ()
    acts: tuple[Act, ...] = ()
    reason: str = ""  # why the step is empty
    observed: Observed = Observed()


@frozen
class Deliver:
    """A frame's outputs reach the scheduler: `tokens[i]` for `requests[i]`.

    `disposition[i]`: delivered, empty or dropped (absent: all delivered). `emitted[i]`: what the engine itself
    appended. Where the header observes "emitted", an absent `emitted` says that it was read and equals `tokens`, so it
    is written only where it differs; what exceeds the request's length is cut off by both (stop tokens are not
    modelled: a harness samples none). Of a frame with drafts, `tokens[i]` are the accepted ones and the one sampled
    behind them. `proposed[i]`: drafts for the next grant of `requests[i]` (absent: none). `acts`: what else the engine
    did meanwhile, in order: publish, withdraw, unpin, unfence, exchange.
    """

    frame: int
    requests: tuple[str, ...] = ()
    tokens: tuple[tuple[int, ...], ...] = ()
    accepted: tuple[int, ...] | None = None
    disposition: tuple[str, ...] | None = None
    emitted: tuple[tuple[int, ...], ...] | None = None
    proposed: tuple[int, ...] | None = None
    acts: tuple[Act, ...] = ()


@frozen
class CopyStart:
    """Blocks begin to move between tiers, asynchronously: (source, destination, group) each.

    A copy that is ordered before a frame takes effect when that frame is dispatched, and has no `CopyDone`.
    """

    copy: int
    direction: str  # out: device to host; in: host to device
    blocks: tuple[tuple[int, int, int], ...]
    before: int | None = None  # the frame this copy is ordered before


@frozen
class CopyDone:
    """A copy ended. Not `ok`: nothing can be said of what its destinations hold; what came in part is told in parts.

    A copy that the worker finishes before it runs some frame (a flush decided behind its start) is told done before
    that frame's step, and not again when the worker reports it.
    """

    copy: int
    ok: bool = True


@frozen
class EngineError:
    """An exception. `origin`: whose code raised it in its innermost frame: engine, adapter or protocol."""

    origin: str
    kind: str
    message: str = ""
    where: str = ""


@frozen
class Footer:
    """The last line: counts by which a cut-off trace is recognised. `lost`: events missing behind it, at least."""

    lines: int
    steps: int
    grants: int
    preemptions: int
    lost: int = 0  # a recorder could not write them: the disk was full, or it was too slow


Event = Arrive | Reject | Abort | Finish | Control | Step | Deliver | CopyStart | CopyDone | EngineError
