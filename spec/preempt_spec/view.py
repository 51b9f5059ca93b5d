"""What a rule may ask of the shadow state: the same questions for the pure state and for the monitor's fast one.

Rules are written against these protocols, so that the clause a reader reads is the clause that runs in production.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from attrs import frozen

from preempt_spec.events import Group, Limits

if TYPE_CHECKING:
    from preempt_spec.policies.policy import Policy

#: Stands in a table of a sliding group for a block that the window has passed.
HOLE: Final = -1


def with_holes(group: Group, reserved: int, blocks: Sequence[int]) -> tuple[int, ...]:
    """Blocks of a table as told: a sliding group has a reserved block for each page that the window has passed."""
    return tuple(HOLE if b < reserved else b for b in blocks) if group.kind == "sliding" else tuple(blocks)


class Place(Enum):
    """Where a live request is. LIMBO: demoted and not yet requeued. LOADING: copies fill its blocks."""

    WAITING = "waiting"
    RUNNING = "running"
    LIMBO = "limbo"
    SWAPPED = "swapped"
    LOADING = "loading"


class Fate(Enum):
    """What becomes of an output when its frame is delivered. All but LIVE were fixed while the frame still flew."""

    LIVE = "appended, and its placeholder resolved"
    DELIVER = "appended, and nothing else: the request was preempted meanwhile"
    DROP = "dropped: the request was preempted meanwhile, and may compute it anew"
    GONE = "dropped: the request is over"


@frozen
class Due:
    """What a flying frame owes a request it granted `tokens` tokens.

    `outputs`: most tokens it can bring: 0 if it ends before the last known token, else one and its drafts. `position`:
    where the first of them stands in the stream. `after`: the frame that brings the token before it, if that one flies.
    """

    tokens: int
    position: int
    outputs: int
    after: int | None = None
    fate: Fate = Fate.LIVE


@frozen
class Copy:
    """A copy in flight: (source, destination, group) each. `before`: the frame it is ordered before."""

    direction: str
    blocks: tuple[tuple[int, int, int], ...]
    before: int | None


@frozen
class Cycle:
    """For live/no-thrash, while nothing progresses: a past state, its age in steps, and the age at which to replace it.

    Brent's search: one state is kept, replaced at ages of powers of two, so that memory stays constant.
    """

    state: object
    preemptions: int  # up to then
    age: int = 0
    until: int = 1


class RequestView(Protocol):
    """A live request. Lengths in tokens."""

    @property
    def id(self) -> str:
        """The engine's id."""

    @property
    def prompt(self) -> int:
        """Length of the prompt."""

    @property
    def tokens(self) -> Sequence[int]:
        """Known tokens: prompt and emitted outputs."""

    @property
    def max_tokens(self) -> int:
        """Outputs it may emit."""

    @property
    def priority(self) -> int:
        """Smaller is better."""

    @property
    def arrival(self) -> int:
        """Orders requests; ties allowed."""

    @property
    def place(self) -> Place:
        """Where it is."""

    @property
    def computed(self) -> int:
        """Tokens whose KV is resident in every group."""

    @property
    def placeholders(self) -> int:
        """Outputs promised by flying frames."""

    @property
    def drafts(self) -> int:
        """Draft tokens proposed for its next grant."""

    @property
    def last(self) -> int:
        """The frame that brought its last token; -1 if that is the prompt's."""

    @property
    def goal(self) -> int:
        """Known tokens when it was last admitted: it prefills until those are computed, and decodes from then on."""

    @property
    def since(self) -> tuple[int, int]:
        """The step that last admitted it, and how many that had admitted before it."""

    @property
    def peak(self) -> int:
        """The most computed tokens it ever had: the high-water mark of live/progress."""

    @property
    def preempted(self) -> bool:
        """It ran before and waits to resume."""

    @property
    def tables(self) -> Sequence[Sequence[int]]:
        """Owned blocks per group, in table order; HOLE for one that a sliding window has passed."""

    @property
    def sent(self) -> Sequence[Sequence[int]]:
        """Blocks per group as the worker was told since the last full description."""


class PlanView(Protocol):
    """The step being planned."""

    @property
    def entered(self) -> Collection[str]:
        """Requests running when the step began."""

    @property
    def granted(self) -> Mapping[str, tuple[int, int]]:
        """(start, tokens) of each standing grant, in order."""

    @property
    def pending(self) -> Mapping[str, tuple[int, int]]:
        """Grants made in this step and not (yet) standing: a `plan` act without its `unplan`."""

    @property
    def drafts(self) -> Mapping[str, int]:
        """How many tokens of each standing grant are drafts; absent: none."""

    @property
    def spent(self) -> int:
        """Tokens of the step's budget in use."""

    @property
    def spent_running(self) -> int:
        """The part of `spent` that went to requests which were running already."""

    @property
    def admitted(self) -> Collection[str]:
        """Requests that this step admitted."""

    @property
    def anew(self) -> int:
        """How many of them a second pass of this step looks at with those who ran before."""

    @property
    def swept(self) -> bool:
        """Findable pages were given up in this step."""

    @property
    def restored(self) -> Sequence[str]:
        """Those of them that were swapped."""

    @property
    def torn(self) -> Collection[str]:
        """Requests whose recurrent state was not theirs when this step's pass read it."""

    @property
    def demoted(self) -> Sequence[str]:
        """Victims of this step, in order."""

    @property
    def displaced(self) -> Sequence[tuple[str, str]]:
        """Those of them that were preempted for an admission, each with the waiting request it made way for."""

    @property
    def requeued(self) -> Collection[str]:
        """Victims that are back in a queue."""

    @property
    def skipped(self) -> Mapping[str, str]:
        """Guard per request that the engine itself said it passed over."""

    @property
    def served(self) -> tuple[str, ...]:
        """Beneficiaries of the latest victim."""

    @property
    def fenced(self) -> bool:
        """The latest victim's release gave no blocks yet."""

    @property
    def self_preempted(self) -> bool:
        """Some request preempted itself in this step."""

    @property
    def published(self) -> Sequence[tuple[int, int]]:
        """(group, block) made findable since the last step ended and not withdrawn since."""


class View(Protocol):
    """The shadow state, as rules and policies see it."""

    @property
    def policy(self) -> Policy:
        """What the engine may decide."""

    @property
    def limits(self) -> Limits:
        """Its configuration."""

    @property
    def groups(self) -> Sequence[Group]:
        """The KV-cache groups."""

    @property
    def pages(self) -> Sequence[int]:
        """Tokens per block, per group."""

    @property
    def running(self) -> Sequence[str]:
        """Ids in running order."""

    @property
    def waiting(self) -> Sequence[str]:
        """Ids in queue order."""

    @property
    def swapped(self) -> Sequence[str]:
        """Ids of victims whose KV the host tier holds, in queue order."""

    @property
    def paused(self) -> bool:
        """The operator paused the scheduler."""

    @property
    def ahead(self) -> bool:
        """Whether the engine ever granted a token that still flew."""

    @property
    def aborted(self) -> Collection[str]:
        """Requests aborted since the last step ended."""

    @property
    def stall(self) -> int:
        """Steps since the last progress."""

    @property
    def plan(self) -> PlanView:
        """The step being planned; an idle one between steps."""

    @property
    def last_frame(self) -> int:
        """The latest frame; -1 before the first."""

    @property
    def frames(self) -> Mapping[int, Mapping[str, Due]]:
        """Undelivered frames, in the order of their dispatch: what they owe their requests."""

    @property
    def copies(self) -> Mapping[int, Copy]:
        """Copies in flight."""

    def loosed(self, group: int, block: int) -> int | None:
        """The frame that may still write this block for a request which gave it up while that frame flew."""

    @property
    def preemptions(self) -> int:
        """Demotions since the start."""

    @property
    def recomputed(self) -> int:
        """Tokens granted again, below a high-water mark, since the start."""

    @property
    def delivered(self) -> int:
        """Tokens appended since the start."""

    @property
    def cycle(self) -> Cycle | None:
        """A past state to compare with; None while something progresses."""

    def fingerprint(self) -> object:
        """All that decides what a scheduler without cache and hidden state does next, as a value; block ids apart."""

    def reserved(self, group: int) -> int:
        """Blocks of the group that are never handed out: the lowest ids."""

    def extent(self, group: int) -> int:
        """All blocks of the group, reserved ones included: ids are below it."""

    @property
    def gated(self) -> bool:
        """Whether a request was preempted since one last finished, or nobody ran."""

    def live(self) -> Collection[str]:
        """Ids of all live requests, in the order in which they came."""

    def request(self, request: str) -> RequestView:
        """A live request."""

    def total(self, group: int) -> int:
        """Blocks of the group that may be owned: total less reserved."""

    def free(self, group: int) -> int:
        """Blocks nobody owns, pins, fences or fills; evictable ones count as free."""

    def is_free(self, group: int, block: int) -> bool:
        """Whether this block may be handed out."""

    def idle(self, group: int) -> int:
        """How many of the free blocks are findable."""

    def arriving(self, group: int, block: int) -> bool:
        """Whether an unordered copy in flight fills this block: it is then not free, whoever owns it."""

    def pinned(self, group: int, block: int) -> int:
        """Pins on this block."""

    def fence(self, group: int, block: int) -> int | None:
        """The frame this block's fence waits for."""

    def overdue(self) -> Sequence[tuple[int, int]]:
        """(block, frame) of each fence whose frame came back before this step."""

    def free_ids(self, group: int) -> set[int]:
        """The blocks `free` counts."""

    def shared(self, group: int) -> Mapping[int, int]:
        """References of each block that more than one holder (tables and pins) names."""

    def owner(self, group: int, block: int) -> str:
        """Who holds the block, in words."""

    def covered(self, request: str, start: int, upto: int) -> int:
        """How far a pass over [start, upto) finds this request's prefix in every slot it attends, in every group."""

    def findable(self) -> bool:
        """Whether any block is published."""

    def best_hit(self, request: str) -> int:
        """Longest page-aligned prefix of the request that resident full blocks hold, in every group."""

    def resident(self, request: str, upto: int, look: Sequence[Sequence[int]]) -> bool:
        """Whether best_hit is at least `upto`; `look`: blocks per group that most likely hold it."""

    def holds_page(self, group: int, block: int) -> bool:
        """A published block holds, in every slot, the prefix it was published for."""

    # -- the host tier ------------------------------------------------------------------------------------------------

    def host_free(self, group: int) -> int:
        """Host blocks not in use."""

    def host_used(self, group: int, block: int) -> bool:
        """Whether a host block is in use."""

    def host_extent(self, group: int) -> int:
        """All host blocks of the group."""

    def hosted(self, request: str, start: int, upto: int) -> bool:
        """Whether host blocks hold what it takes, from position `start` on, to go on after `upto` tokens."""

    def host_holds(self, request: str, group: int, block: int, page: int, upto: int) -> bool:
        """Whether a host block holds page `page` of the request's prefix, as far as `upto` tokens go."""
