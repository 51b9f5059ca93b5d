"""victim/*: who is preempted, when, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator

from preempt_spec.events import Demote, Release, Requeue, Unplan
from preempt_spec.micro import Close, ControlDone, Grant
from preempt_spec.policies.displacing import (
    ample,
    displaceable,
    displaces,
    first_of_those_who_stay,
    leaving_key,
    slots,
)
from preempt_spec.policies.policy import Memory
from preempt_spec.policies.policy import Release as When
from preempt_spec.policies.pressure import fits, makes_room_for_one, pressure
from preempt_spec.policies.victims import eligible, excused, victim
from preempt_spec.rules.rule import Kind, on, rule
from preempt_spec.view import Place, View

TRIGGER = rule("victim/trigger", Kind.POLICY, "Someone is preempted only for a cause the profile declares.")


@on(TRIGGER, Demote, "demote trigger")
def declared_cause(s: View, e: Demote) -> Iterator[str | None]:
    """The cause is one of the profile's, and pressure names whom it serves: one, where requests grow one by one."""
    if e.cause in ("reset", "pause"):
        # The operator's, between steps: under this name nobody is preempted inside a plan.
        inside = e.request in s.plan.entered or e.request in s.plan.admitted
        yield f"{e.request} was preempted for {e.cause!r} inside a step" if inside else None
    elif e.cause not in s.policy.causes:
        yield f"{e.request} was preempted for {e.cause!r}; {s.policy.name} declares {sorted(s.policy.causes)}"
    elif e.cause == "growth" and not e.beneficiaries:
        yield f"{e.request} was preempted for growth of nobody"
    elif len(e.beneficiaries) > 1 and makes_room_for_one(s.policy):
        # Their needs together may exceed a supply that is enough for each in its turn.
        yield f"{e.request} was preempted for {len(e.beneficiaries)} at once; {s.policy.name} makes room for one"
    elif e.cause == "admission" and _waits(s, e) is None:
        yield f"{e.request} was preempted for the admission of {list(e.beneficiaries)}: one that waits"
    else:
        yield None


def _waits(s: View, e: Demote) -> str | None:
    """The waiting request for whose admission this victim makes way; None where the policy has no such victims."""
    who = e.beneficiaries if e.cause == "admission" and displaces(s.policy) else ()
    return who[0] if len(who) == 1 and who[0] in s.waiting else None


@on(TRIGGER, Close, "demote trigger")
def takes_its_place(s: View, e: Close) -> Iterator[str | None]:
    """Who is preempted for an admission is so for one that takes place, in that step."""
    for v, w in s.plan.displaced:
        yield None if w in s.plan.admitted else f"{v} was preempted for the admission of {w}, which was not admitted"


def _pressure(s: View, e: Demote) -> tuple[int, int] | None:
    """Need of the beneficiaries and supply (blocks), when both can be told."""
    live = s.live()
    who = [b for b in e.beneficiaries if b in live and s.request(b).place is Place.RUNNING]
    if e.cause != "growth" or not who:
        return None
    return pressure(s, who)


NECESSITY = rule(
    "victim/necessity",
    Kind.POLICY,
    "Under pressure, before the first victim of a trigger the need of its beneficiaries exceeds the supply.",
)


@on(NECESSITY, Demote, "demote trigger counts")
def needed(s: View, e: Demote) -> Iterator[str | None]:
    """Nobody is preempted while the requester fits."""
    if (p := _pressure(s, e)) and s.plan.served != e.beneficiaries:
        yield (
            None
            if p[0] > p[1]
            else f"{e.request} was preempted: {e.beneficiaries[0]} needs {p[0]} blocks, {p[1]} are free"
        )


@on(NECESSITY, Demote, "demote trigger")
def no_slot_was_free(s: View, e: Demote) -> Iterator[str | None]:
    """Nobody is displaced for a request that a slot is free for, those before it served."""
    if (w := _waits(s, e)) and s.plan.served != e.beneficiaries:
        need, supply = slots(s, w)
        yield (
            None
            if need > supply
            else f"{e.request} was preempted for the admission of {w}: the {need}. in line, and {supply} slots are free"
        )


MINIMAL = rule(
    "victim/minimal",
    Kind.POLICY,
    "Preemption stops once the need is at most the supply.",
)


@on(MINIMAL, Demote, "demote trigger counts")
def no_further_victim(s: View, e: Demote) -> Iterator[str | None]:
    """A further victim of the same trigger is still needed."""
    if (p := _pressure(s, e)) and s.plan.served == e.beneficiaries and not s.plan.fenced:
        yield (
            None
            if p[0] > p[1]
            else f"a further victim, {e.request}: {e.beneficiaries[0]} needs {p[0]} blocks, {p[1]} are free already"
        )


@on(MINIMAL, Demote, "demote trigger counts")
def nobody_further_makes_way(s: View, e: Demote) -> Iterator[str | None]:
    """A further victim of the same admission is still needed."""
    # Those of one admission may be told in any order; whoever goes behind all that go before it can be judged at once.
    # What is kept free for outputs is an estimate (`Gate`): only a victim that no estimate asks for is one too many.
    if (w := _waits(s, e)) and s.plan.served == e.beneficiaries:
        key = leaving_key(s.request(e.request))
        if all(leaving_key(s.request(v)) > key for v, _ in s.plan.displaced):
            yield (
                f"a further victim, {e.request}: {w} has a slot, and room for all that anybody may emit"
                if ample(s, w)
                else None
            )


YIELD = rule(
    "victim/yield",
    Kind.MUST,
    "If a victim's release was fenced there is no further victim for the same trigger: wait.",
    lacks={
        "alone": "in a few workloads the victims taken too many keep each other from getting anywhere, which "
        "live/progress notices many steps later; in the others nobody but this rule does",
    },
)


@on(YIELD, Demote, "demote trigger")
def wait_for_the_fence(s: View, e: Demote) -> Iterator[str | None]:
    """A fenced release gives nothing yet; another victim would not either."""
    if e.beneficiaries and s.plan.served == e.beneficiaries:
        last = s.plan.demoted[-1]
        yield f"{e.request} was preempted while the blocks of {last} are still fenced" if s.plan.fenced else None


DUTY = rule(
    "victim/duty",
    Kind.POLICY,
    "When the trigger holds and an eligible victim exists, somebody is preempted, or a declared guard says why not; a "
    "reset preempts everybody who runs.",
)


@on(DUTY, Demote, "demote trigger")
def done(s: View, e: Demote) -> Iterator[str | None]:
    """A preemption under pressure is this duty done."""
    if e.cause == "growth":
        yield None


@on(DUTY, ControlDone, "demote")
def reset_preempts_all(s: View, e: ControlDone) -> Iterator[str | None]:
    """After a reset nobody runs on KV of before."""
    if e.kind == "reset":
        yield f"{s.running[0]} still runs after a reset" if s.running else None


@on(DUTY, Close, "counts demote")
def not_left_to_starve(s: View, e: Close) -> Iterator[str | None]:
    """A running request that cannot grow is not just passed over."""
    for r in (*s.plan.entered, *s.plan.admitted):
        if _unserved(s, r) and not fits(s, r) and eligible(s, r):
            need, supply = pressure(s, (r,))
            yield f"{r} needs {need} blocks, {supply} are free, and nobody was preempted for it"


def _unserved(s: View, r: str) -> bool:
    """It ran when the step began, or by a hit alone, still runs, got nothing, and no declared guard explains it."""
    if r in s.plan.granted or r in s.plan.demoted or s.request(r).place is not Place.RUNNING:
        return False
    return not excused(s, r)


CHOICE = rule(
    "victim/choice",
    Kind.POLICY,
    "The victim is the arg-max of the policy's total order over the eligible requests, position included.",
)


@on(CHOICE, Demote, "demote trigger")
def the_right_one(s: View, e: Demote) -> Iterator[str | None]:
    """Membership of the policy's arg-max."""
    if e.cause != "growth" or not e.beneficiaries or e.beneficiaries[0] not in s.live():
        return
    best = victim(s, e.beneficiaries[0])
    if e.request == best:
        yield None
    else:
        who = f"{s.policy.name} takes {best or 'nobody'} ({s.policy.victim.value})"
        yield f"{e.request} was preempted for {e.beneficiaries[0]}; {who}; running are {list(s.running)}"


@on(CHOICE, Demote, "demote trigger")
def may_make_way(s: View, e: Demote) -> Iterator[str | None]:
    """Who is displaced is of worse priority than who comes, by more than the threshold."""
    if w := _waits(s, e):
        mine, theirs, least = s.request(e.request).priority, s.request(w).priority, s.limits.threshold
        yield (
            None
            if e.request in displaceable(s, w)
            else f"{e.request} (priority {mine}) was preempted for the admission of {w} (priority {theirs}): "
            f"only who entered before this step, and is worse by more than {least}, makes way"
        )


@on(CHOICE, Close, "demote trigger")
def nobody_worse_stays(s: View, e: Close) -> Iterator[str | None]:
    """Nobody who goes before a victim of an admission runs on: a decision names several at once, in no order."""
    for v, w in s.plan.displaced:
        worst = first_of_those_who_stay(s)
        if v in s.live() and s.request(v).place is not Place.RUNNING and worst is not None:
            right = leaving_key(s.request(worst)) < leaving_key(s.request(v))
            yield None if right else f"{v} was preempted for the admission of {w}, and {worst} goes before it"


RESET = rule(
    "victim/reset",
    Kind.POLICY,
    "At demotion step-local state is cleared (drafts, placeholders); at release the table is empty and the computed "
    "tokens are 0 (recompute) or all that were computed (swap).",
)


@on(RESET, Release, "reset")
def computed_is_zero(s: View, e: Release) -> Iterator[str | None]:
    """KV that was given back is not counted as computed, unless all of it was swapped."""
    if e.kept:
        swaps = s.policy.memory is Memory.SWAP and e.kept == s.request(e.request).computed
        yield None if swaps else f"{e.request} keeps {e.kept} of {s.request(e.request).computed} computed tokens"
    if e.computed is not None and e.until is None:
        yield None if e.computed == e.kept else f"{e.request} was released and keeps {e.computed} computed tokens"
    if e.drafts is not None:
        yield None if e.drafts == 0 else f"{e.request} was released and keeps {e.drafts} drafts"


@on(RESET, Close, "held")
def victim_holds_nothing(s: View, e: Close) -> Iterator[str | None]:
    """A victim that waits holds no block and no computed token; under a lazy release, just what it is left with."""
    if e.step.observed.held is None:
        return
    held = {h.request: h for h in e.step.observed.held}
    for v in s.plan.demoted:
        if v in s.waiting:
            h, r = held.get(v), s.request(v)
            left = (sum(map(len, r.tables)), r.computed) if s.policy.release is When.LAZY else (0, 0)
            has = (0, 0) if h is None else (h.blocks, h.computed)
            yield None if has == left else f"{v} was preempted and holds {has[0]} blocks and {has[1]} computed tokens"


KEEP_TOKENS = rule(
    "victim/keep-tokens",
    Kind.POLICY,
    "A victim's prompt and emitted outputs survive; it resumes towards its prompt and ALL outputs.",
)


@on(KEEP_TOKENS, Requeue, "known")
def nothing_forgotten(s: View, e: Requeue) -> Iterator[str | None]:
    """What is requeued is as long as what was emitted."""
    if e.known is not None:
        known = len(s.request(e.request).tokens)
        yield None if e.known == known else f"{e.request} was requeued with {e.known} tokens; {known} are known"


@on(KEEP_TOKENS, Close, "known")
def resumed_whole(s: View, e: Close) -> Iterator[str | None]:
    """What is resumed is as long as what was emitted."""
    for told in e.step.resumed:
        if told.known is not None and told.request in s.live():
            known = len(s.request(told.request).tokens)
            yield (
                None
                if told.known == known
                else f"{told.request} resumes towards {told.known} tokens; {known} are known"
            )


UNPLAN = rule(
    "victim/unplan",
    Kind.MUST,
    "Nobody demoted inside a plan keeps a grant in that plan, in any map; its budget is returned.",
)


@on(UNPLAN, Grant, "demote")
def not_granted_again(s: View, e: Grant) -> Iterator[str | None]:
    """A victim of this step gets no grant in it."""
    if e.request in s.plan.demoted:
        yield f"{e.request} was preempted in this step and is granted {e.tokens} tokens in it"


@on(UNPLAN, Demote, "demote")
def not_granted_before(s: View, e: Demote) -> Iterator[str | None]:
    """A grant that stands in the plan does not belong to a victim."""
    if s.plan.granted or s.plan.pending:
        yield f"{e.request} was preempted and keeps its grant in this step" if e.request in s.plan.granted else None


@on(UNPLAN, Unplan, "demote")
def all_of_it_back(s: View, e: Unplan) -> Iterator[str | None]:
    """What goes back to the budget is what the grant had taken."""
    _, tokens = s.plan.pending.get(e.request, (0, 0))
    yield None if e.tokens == tokens else f"{e.tokens} tokens went back for {e.request}, which had {tokens}"


@on(UNPLAN, Close, "demote")
def in_no_map(s: View, e: Close) -> Iterator[str | None]:
    """No map of the step names a victim, and no grant was left half taken back."""
    step = e.step
    for v in s.plan.demoted:
        maps = {"sent": step.sent, "hits": step.hits, "resumed": step.resumed, "drafts": step.drafts}
        kept = [name for name, entries in maps.items() if any(x.request == v for x in entries)]  # type: ignore[attr-defined]
        if kept:
            yield f"{v} was preempted in this step and is still in its {kept[0]}"
        elif v in s.plan.pending:
            yield f"{v} was preempted in this step and its grant was not taken back"
        else:
            yield None
