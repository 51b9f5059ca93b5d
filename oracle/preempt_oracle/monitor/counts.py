"""What the clauses of a decode step count when all of them hold, read off the clauses by name."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from preempt_spec import micro as mi
from preempt_spec.rules import RULES
from preempt_spec.rules.rule import Clause

Active = Mapping[type, tuple[tuple[str, Clause], ...]]
Rules = tuple[str, ...]

#: Clauses that go over every grant at the end of a step: replaced by their counts where columns prove them.
_HEAVY = ("no_unexplained_skip", "not_left_to_starve", "reads_own_prefix", "moves")


@frozen
class Counts:
    """Rules exercised once each by …"""

    plain: Rules  # a grant of a running request
    growth: Rules  # the growth of its table
    grants: Rules  # the end of the step, per grant
    entered: Rules  # the end of the step, per request that ran when it began
    moves: Rules  # the end of the step, if anybody lives
    step: Rules  # the end of the step, moves included
    told: Rules  # the end of the step, per table that grew and was sent
    free: Rules  # … if the engine's free count was read
    held: Rules  # … if memory held outside the running queue was read, per waiting request
    refs: Rules  # … if reference counts were read
    queues: Rules  # … if both queues were read
    announced: Rules  # … if somebody resumed or was announced
    known: Rules  # … per announcement with a length
    victims: Rules  # … per victim
    reset: Rules  # … per victim that waits, if held was read
    places: Rules  # … per requeued victim, if the waiting queue was read
    light: Active  # the clauses of Close that are always run


def counts(active: Active) -> Counts:
    """The counts for a set of active clauses. KeyError if a clause named here is gone from the specification."""
    known = {clause.__name__ for r in RULES.values() for _, _, clause in r.clauses}
    rule_of: dict[tuple[type, str], str] = {
        (micro, clause.__name__): rule for micro in (mi.Grant, mi.Close) for rule, clause in active.get(micro, ())
    }

    def pick(micro: type, *names: str) -> Rules:
        for name in names:
            if name not in known:
                raise KeyError(name)
        return tuple(rule_of[micro, name] for name in names if (micro, name) in rule_of)

    for name in _HEAVY:
        pick(mi.Close, name)
    return Counts(
        plain=pick(mi.Grant, "grant_fits", "no_second_visit", "within_budget", "within_the_stream"),
        growth=pick(mi.Grant, "fresh_blocks_were_free", "enough_were_free"),
        grants=pick(mi.Close, "reads_own_prefix"),
        entered=pick(mi.Close, "no_unexplained_skip"),
        moves=pick(mi.Close, "moves"),
        step=pick(mi.Close, "moves", "step_returned"),
        told=pick(mi.Close, "sent_adds_up"),
        free=pick(mi.Close, "free_count_agrees"),
        held=pick(mi.Close, "waiting_holds_nothing"),
        refs=pick(mi.Close, "references_agree"),
        # queues_in_order compares two queues, and counts each.
        queues=pick(mi.Close, "queues_partition", "queues_in_order", "queues_in_order"),
        announced=pick(mi.Close, "resumed_are_told"),
        known=pick(mi.Close, "resumed_whole"),
        victims=pick(mi.Close, "in_no_map"),
        reset=pick(mi.Close, "victim_holds_nothing"),
        places=pick(mi.Close, "stays_at_its_place"),
        light={mi.Close: tuple((r, c) for r, c in active.get(mi.Close, ()) if c.__name__ not in _HEAVY)},
    )
