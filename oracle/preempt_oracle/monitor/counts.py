"""What the clauses count when all of them hold, read off the clauses by name.

The short cuts prove that clauses hold without running them; here stands which ones, so that a clause nobody has thought
of (or one that is gone) is an error when a monitor is made, not a silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Final

from attrs import frozen

from preempt_oracle.trace import wire
from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.rules import RULES
from preempt_spec.rules.rule import Clause

Active = Mapping[type, tuple[tuple[str, Clause], ...]]

#: What is counted together: the micro-event, and the clauses that are exercised once each by …
_TOGETHER: Mapping[str, tuple[type, str]] = {
    "plain": (mi.Grant, "grant_fits no_second_visit within_budget within_the_stream"),  # a running request's grant
    "continued": (mi.Grant, "goes_on_where_it_was"),  # … whose start was told
    "growth": (mi.Grant, "fresh_blocks_were_free enough_were_free"),  # the growth of its table
    "admitted": (mi.Grant, "nobody_overtaken gates_open no_more_than_resident"),  # an admission, apart from both above
    "uncached": (mi.Grant, "nothing_to_hit"),  # … where nothing can be hit
    "sized": (mi.Grant, "never_started"),  # an admission, where the scheduler refuses what cannot fit
    "demoted": (ev.Demote, "declared_cause done the_right_one was_running"),  # a victim
    "first": (ev.Demote, "needed"),  # the first victim of its trigger
    "further": (ev.Demote, "no_further_victim wait_for_the_fence"),  # another one
    "amid": (ev.Demote, "not_granted_before"),  # a victim behind grants
    "released": (ev.Release, "one_release_each"),  # its release
    "returned": (ev.Release, "release_is_whole released_once"),  # … if its blocks were read
    "zeroed": (ev.Release, "computed_is_zero"),  # … per figure of its that was read
    "requeued": (ev.Requeue, "was_out"),  # its requeue
    "placed": (ev.Requeue, "at_its_place"),  # … if the index was read
    "remembered": (ev.Requeue, "nothing_forgotten"),  # … if the length was read
    "grants": (mi.Close, "reads_own_prefix"),  # the end of the step, per grant
    "entered": (mi.Close, "no_unexplained_skip"),  # the end of the step, per request that ran when it began
    "moves": (mi.Close, "moves"),  # the end of the step, if anybody lives
    "step": (mi.Close, "step_returned"),  # the end of the step
    "told": (mi.Close, "sent_adds_up"),  # the end of the step, per table that grew and was sent
    "free": (mi.Close, "free_count_agrees"),  # … if the engine's free count was read
    "held": (mi.Close, "waiting_holds_nothing"),  # … if held was read, per waiting request
    "refs": (mi.Close, "references_agree"),  # … if reference counts were read
    "queues": (mi.Close, "queues_partition queues_in_order queues_in_order"),  # … if both queues were read
    "emptied": (mi.Close, "nobodys_copies_are_gone"),  # … if victims go to the host, and none is there
    "host": (mi.Close, "host_count_agrees"),  # … per group, if free host blocks were counted
    "stats": (mi.Close, "counts_its_preemptions"),  # … if preemptions were counted
    "cached": (mi.Close, "counts_what_was_cached"),  # … per admission whose cached tokens were counted
    "published": (mi.Close, "published_is_written"),  # … per page that became findable
    "announced": (mi.Close, "resumed_are_told"),  # … if somebody resumed or was announced
    "known": (mi.Close, "resumed_whole"),  # … per announcement with a length
    "victims": (mi.Close, "in_no_map"),  # … per victim
    "reset": (mi.Close, "victim_holds_nothing"),  # … per victim that waits, if held was read
    "places": (mi.Close, "stays_at_its_place"),  # … per requeued victim, if the waiting queue was read
    "finished": (ev.Finish, "release_is_whole released_once"),  # the end of a request whose blocks were read
    "publishes": (ev.Publish, "publishes_its_own"),  # pages that become findable, per act
    "delivered": (ev.Deliver, "each_once as_was_fixed in_its_context"),  # a token of a frame
}
#: Clauses that are not exercised where a short cut is taken.
_SILENT: Final[tuple[str, ...]] = (
    "not_granted_again",
    "granted_nothing",
    "nobody_who_fits_overtaken",
    "no_blocks_without_a_grant",
    "not_left_to_starve",
    "out_of_every_queue",
    "free_list_agrees",
    "fences_drain",
    "goes_in_no_circle",
    "taxed_moderately",
    "went_out",
    "swaps_while_there_is_room",
    "in_its_queue",
    "carries_own_state",
    "is_there",
    "not_in_transit",
    "not_before_its_commit",
    "comes_back_whole",
    "waits_for_a_frame_that_flies",
    # Of a preemption for an admission, which no short cut is taken for.
    "takes_its_place",
    "no_slot_was_free",
    "nobody_further_makes_way",
    "may_make_way",
    "nobody_worse_stays",
)
#: Clauses that go over every grant at the end of a step: replaced by their counts where columns prove them.
_HEAVY: Final[tuple[str, ...]] = ("no_unexplained_skip", "not_left_to_starve", "reads_own_prefix", "moves")
#: Clauses of a finish that are always run.
_ENDING: Final[tuple[str, ...]] = ("ends_at_its_length",)


@frozen
class Counts:
    """Rules that are exercised together, and the clauses that are run even where a short cut is taken."""

    rules: Mapping[str, tuple[str, ...]]
    closing: Active  # at the end of a step whose grants are known to be right
    ending: Active  # when a request finishes and its blocks are known to be right


class Ledger:
    """How many times each of `Counts.rules` was exercised, in plain integers until somebody asks.

    Its attributes are the names in _TOGETHER, no more and no fewer (a test keeps them alike).
    """

    def __init__(self) -> None:
        """All zero."""
        self.plain = self.continued = self.growth = self.admitted = self.uncached = self.sized = 0
        self.demoted = self.first = self.further = self.amid = 0
        self.released = self.returned = self.zeroed = self.requeued = self.placed = self.remembered = 0
        self.grants = self.entered = self.moves = self.step = 0
        self.told = self.free = self.held = self.refs = 0
        self.queues = self.emptied = self.host = self.stats = self.cached = 0
        self.published = self.announced = self.known = self.victims = self.reset = self.places = 0
        self.finished = self.publishes = self.delivered = 0

    def flush(self, counts: Counts, into: Counter[str]) -> None:
        """Add everything to the exercise counts."""
        for name, rules in counts.rules.items():
            if n := getattr(self, name):
                for rule in rules:
                    into[rule] += n
                setattr(self, name, 0)


def counts(active: Active) -> Counts:
    """The counts for a set of active clauses. KeyError if they and the specification's clauses differ."""
    _same_clauses()

    def pick(micro: type, names: str) -> tuple[str, ...]:
        return tuple(rule for name in names.split() for rule, c in active.get(micro, ()) if c.__name__ == name)

    return Counts(
        rules={field: pick(micro, names) for field, (micro, names) in _TOGETHER.items()},
        closing={mi.Close: tuple((r, c) for r, c in active.get(mi.Close, ()) if c.__name__ not in _HEAVY)},
        ending={wire.Finish: tuple((r, c) for r, c in active.get(ev.Finish, ()) if c.__name__ in _ENDING)},
    )


@cache
def _same_clauses() -> None:
    there = {(micro, c.__name__) for r in RULES.values() for micro, _, c in r.clauses}
    named = {(micro, name) for micro, names in _TOGETHER.values() for name in names.split()}
    judged = {micro for micro, _ in _TOGETHER.values()}
    named |= {(micro, name) for micro, name in there if micro in judged and name in _SILENT + _ENDING}
    if wrong := named ^ {(micro, name) for micro, name in there if micro in judged}:
        raise KeyError(f"clauses and short cuts differ: {sorted((m.__name__, n) for m, n in wrong)}")
