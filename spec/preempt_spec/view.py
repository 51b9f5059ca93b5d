"""What a rule may ask of the shadow state: the same questions for the pure state and for the monitor's fast one.

Rules are written against these protocols, so that the clause a reader reads is the clause that runs in production.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from preempt_spec.events import Limits

if TYPE_CHECKING:
    from preempt_spec.policies.policy import Policy


class Place(Enum):
    """Where a live request is. LIMBO: demoted and not yet requeued."""

    WAITING = "waiting"
    RUNNING = "running"
    LIMBO = "limbo"


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
    def peak(self) -> int:
        """The most computed tokens it ever had: the high-water mark of live/progress."""

    @property
    def preempted(self) -> bool:
        """It ran before and waits to resume."""

    @property
    def tables(self) -> Sequence[Sequence[int]]:
        """Owned blocks per group, in table order."""

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
    def spent(self) -> int:
        """Tokens of the step's budget in use."""

    @property
    def spent_running(self) -> int:
        """The part of `spent` that went to requests which were running already."""

    @property
    def admitted(self) -> Collection[str]:
        """Requests that this step admitted."""

    @property
    def demoted(self) -> Sequence[str]:
        """Victims of this step, in order."""

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
        """(group, block) made findable in this step and not withdrawn since."""


class View(Protocol):
    """The shadow state, as rules and policies see it."""

    @property
    def policy(self) -> Policy:
        """What the engine may decide."""

    @property
    def limits(self) -> Limits:
        """Its configuration."""

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
    def frames(self) -> Mapping[int, Mapping[str, bool]]:
        """Undelivered frames: their requests; True if the frame reached the end of the request's known tokens."""

    def extent(self, group: int) -> int:
        """All blocks of the group, reserved ones included: ids are below it."""

    def live(self) -> Collection[str]:
        """Ids of all live requests."""

    def request(self, request: str) -> RequestView:
        """A live request."""

    def total(self, group: int) -> int:
        """Blocks of the group that may be owned: total less reserved."""

    def free(self, group: int) -> int:
        """Blocks nobody owns, pins or fences; evictable ones count as free."""

    def is_free(self, group: int, block: int) -> bool:
        """Whether this block may be handed out."""

    def free_ids(self, group: int) -> set[int]:
        """The blocks `free` counts."""

    def shared(self, group: int) -> Mapping[int, int]:
        """References of each block that more than one holder (tables and pins) names."""

    def owner(self, group: int, block: int) -> str:
        """Who holds the block, in words."""

    def covered(self, request: str, upto: int) -> int:
        """How many leading slots of [0, upto) hold exactly this request's prefix, in every group."""

    def best_hit(self, request: str) -> int:
        """Longest page-aligned prefix of the request that resident full blocks hold, in every group."""

    def resident(self, request: str, upto: int, look: Sequence[Sequence[int]]) -> bool:
        """Whether best_hit is at least `upto`; `look`: blocks per group that most likely hold it."""

    def holds_page(self, group: int, block: int) -> bool:
        """A published block holds, in every slot, the prefix it was published for."""
