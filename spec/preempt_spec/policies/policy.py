"""A policy: what an engine may decide for itself, as named values of a few knobs.

Each knob is an enum; `functions` gives each value its meaning as a small pure function over the view. A scheduler
takes the arg-max of such a function; a rule tests membership.
"""

from __future__ import annotations

from enum import Enum

from attrs import frozen


class Victim(Enum):
    """Who is preempted when a running request cannot grow."""

    LAST_RUNNING = "the last position in the running queue, the requester included"
    WORST_PRIORITY = "the worst (priority, arrival); of equals, the earliest position"
    LAST_UNPLANNED = "the last running request not yet considered in this step; the requester if there is none"
    LATEST_UNPLANNED = "the latest arrival not yet considered in this step; the requester if there is none"
    ITSELF_NEWEST_FIRST = "the requester itself; who runs is looked at from the last position to the first"
    ITSELF_OLDEST_FIRST = "the requester itself; who runs is looked at from the first position to the last"
    FEWEST_OUTPUTS = "the fewest outputs; of equals the longest prompt, then the last position; never the only one"
    LAST_STARVED = (
        "behind a whole pass, the last of those it found no room for, until the others fit together in the next step; "
        "never the only one that runs"
    )


class Order(Enum):
    """How the waiting queue is ordered: who is next, and where an arrival goes."""

    ARRIVAL = "as queued: arrivals go to the back"
    PRIORITY = "sorted by (priority, arrival, id)"
    PRIORITY_EACH_STEP = "sorted by priority, equals as queued, when a step begins; meanwhile all go to the back"


class Requeue(Enum):
    """Where a victim re-enters the waiting queue."""

    FRONT = "front"
    BACK = "back"
    PRIORITY = "its sorted place"
    ARRIVED = "before those who came after it"


class Lineup(Enum):
    """In which order the running queue stands."""

    ADMISSION = "as admitted"
    SORTED = (
        "as admitted; whenever somebody is preempted for growth, those who stay are sorted: who would be last to go "
        "is first"
    )


class Memory(Enum):
    """What becomes of a victim's KV."""

    RECOMPUTE = "dropped, and computed again"
    SWAP = "copied to the host tier, all of it or, if that is full, none; who is swapped comes back before who waits"


class Release(Enum):
    """When a victim's blocks go back."""

    AT_ONCE = "before it is requeued"
    LAZY = "when somebody needs them; a victim that comes back first keeps what it has"


class Return(Enum):
    """When a victim is requeued."""

    AT_ONCE = "in the step that preempts it"
    ACK = "once the worker acknowledged"


class Stale(Enum):
    """What becomes of an output that still flies when its request is preempted. After a reset it is dropped."""

    DELIVER = "appended; the request does not resume before"
    DROP = "dropped; the request may resume at once, and computes it anew"


class Fence(Enum):
    """What a request that flies gives up of its blocks at once."""

    NONE = "all: later frames come behind the flying ones"
    HOST = "with a host tier, whose copies no frame is ordered behind, nothing: it is no victim, and the pass ends"


class Publish(Enum):
    """When a full page becomes findable."""

    SCHEDULE = "when the pass that fills it is planned"
    COMMIT = "once the pass that filled it came back"


class Twins(Enum):
    """What becomes of a page that two requests have computed, both of them unaware of the other."""

    KEPT = "both stay"
    MERGED = "when the second would become findable, the first takes its place"


class Idle(Enum):
    """When the room of findable pages that nobody holds can be had."""

    ON_DEMAND = "at once: they count as free"
    STARVED = "behind a whole pass that somebody starved in, or nobody was served: all of them, and then they are lost"


class Hits(Enum):
    """Whom a prefix hit admits."""

    FITTING = "who fits with what lies behind the hit, too"
    ALL = "everybody: who does not fit behind its hit runs all the same, without a token, and starves like others"


class Reads(Enum):
    """How much KV one step may read."""

    ANY = "all that its requests hold"
    POOL = "no more tokens than the pool has; those of a shared page count for each who reads them"


class Need(Enum):
    """How many free blocks a running request must see before it is granted tokens."""

    GROWTH = "the blocks its next grant lacks"
    ONE_FREE = "one, whether or not its table grows"
    TOGETHER = "what the next grants of all running requests lack: all of them are granted tokens, or one has to go"
    AHEAD = "none while its table has room for one token behind those known; else those that `lookahead` more lack"


class Gate(Enum):
    """Whether who would fit may be left waiting."""

    OPEN = "no gate but those of the configuration"
    CONSERVATIVE = "room is kept, by an estimate, for what running requests may still emit; live/progress bounds it"


class Phase(Enum):
    """What one step may mix."""

    MIXED = "running requests first, then admissions"
    PREFILL_FIRST = "admissions if any fits, and then nothing else; otherwise the running requests"
    TURNS = "admissions or the running requests, in turns of the engine's; those too, if a turn admits nobody"
    DECODE_FIRST = (
        "who decodes, then who still prefills, then admissions, a swapped request and another in turn; who does not "
        "fit is passed over"
    )
    CHUNKS_FIRST = "as DECODE_FIRST, but who still prefills comes before who decodes"


class AfterPreemption(Enum):
    """Whether a step that preempted may still admit."""

    CLOSED = "no admission in a preempting step; who is preempted for an admission makes way, and closes nothing"
    OPEN = "admission goes on"
    UNTIL_FINISH = "no admission until a request finishes, or nobody runs"


class AfterSelf(Enum):
    """What a step does once a request preempted itself."""

    STOP = "ends its pass over the running queue"
    CONTINUE = "goes on with the next running request"


class Slots(Enum):
    """What `max_running` bounds."""

    RUNNING = "the running queue"
    BATCH = "the requests of one step"


class FullHit(Enum):
    """How far a prefix hit may reach at admission."""

    LEAVE_ONE = "at most known tokens - 1: the last token is computed again, to sample from it"


class Oversize(Enum):
    """Who refuses a request that can never fit."""

    SCHEDULER = "the scheduler, when it arrives"
    FRONT_END = "a layer above the scheduler: such requests never reach it"


class Progress(Enum):
    """What bounds K of live/progress."""

    CHUNKED = "refills share the step budget"
    EVERY_BATCH = "every non-empty step yields a token"


@frozen
class Policy:
    """One value per knob."""

    name: str
    victim: Victim
    requeue: Requeue
    order: Order
    need: Need
    phase: Phase
    after_preemption: AfterPreemption
    after_self: AfterSelf
    slots: Slots
    full_hit: FullHit
    oversize: Oversize
    progress: Progress
    causes: frozenset[str] = frozenset({"growth"})  # "admission": what that means is in `displacing`
    memory: Memory = Memory.RECOMPUTE
    release: Release = Release.AT_ONCE
    returns: Return = Return.AT_ONCE
    stale: Stale = Stale.DELIVER
    publish: Publish = Publish.SCHEDULE
    fence: Fence = Fence.NONE
    lineup: Lineup = Lineup.ADMISSION
    gate: Gate = Gate.OPEN
    twins: Twins = Twins.KEPT
    idle: Idle = Idle.ON_DEMAND
    hits: Hits = Hits.FITTING
    reads: Reads = Reads.ANY
    hidden: bool = False  # whether anything but queues, tables and cache decides: timers, random choices
    tax: int | None = None  # most tokens computed again per token delivered; None: reported only
