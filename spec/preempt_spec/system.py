"""The transition system: `check(state, event)` says which rules an event breaks, `apply(state, event)` what comes next.

Both are pure. They work in micro-events (`micro.expand`) and share one guard, `admissible`: an event that does not
even make sense (an unknown request, a frame out of order) is no violation but a malformed trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from attrs import frozen

from preempt_spec import SPEC_VERSION
from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.micro import Malformed
from preempt_spec.rules import Violation
from preempt_spec.rules.rule import Clause, advisory, edition
from preempt_spec.state import State
from preempt_spec.transition import apply_micro
from preempt_spec.view import Place, View


@frozen
class Outcome:
    """What one event showed: violations (all of the first micro-event that has any) and exercise counts per rule."""

    violations: tuple[Violation, ...]
    exercised: Mapping[str, int]
    state: State  # the next state; where it broke, if it broke
    advised: tuple[Violation, ...] = ()  # of advisory rules, in every micro-event: they end nothing


def clauses(observes: frozenset[str], spec: str = SPEC_VERSION) -> Mapping[type, tuple[tuple[str, Clause], ...]]:
    """The clauses that can be evaluated with these observations, per micro-event, in a version of the specification.

    Raises UnknownVersion.
    """
    table: dict[type, tuple[tuple[str, Clause], ...]] = {}
    for r in edition(spec):
        for micro, needs, clause in r.clauses:
            if needs <= observes:
                table[micro] = (*table.get(micro, ()), (r.id, clause))
    return table


def observable(observes: frozenset[str], spec: str = SPEC_VERSION) -> frozenset[str]:
    """Ids of the rules of a version of which at least one clause can be evaluated. Raises UnknownVersion."""
    return frozenset(r.id for r in edition(spec) if any(n <= observes for n in r.needs))


def run(
    state: State,
    event: ev.Event,
    active: Mapping[type, tuple[tuple[str, Clause], ...]],
    advice: frozenset[str] = frozenset(),
) -> Outcome:
    """Check and apply one event. Raises Malformed.

    `advice`: ids of the advisory rules (`rules.rule.advisory`). What they say is kept apart and the event goes on as if
    they were not there, which is how it went on before they came in.
    """
    count: Counter[str] = Counter()
    advised: list[Violation] = []
    for m in mi.expand(event, len(state.memory)):
        admissible(state, m)
        broken: list[Violation] = []
        for violation in judge(state, m, active, count):
            (advised if violation.rule in advice else broken).append(violation)
        if broken:
            return Outcome(tuple(broken), count, state, tuple(advised))
        state = apply_micro(state, m)
    return Outcome((), count, state, tuple(advised))


def judge(
    s: View, m: mi.Micro, active: Mapping[type, tuple[tuple[str, Clause], ...]], count: dict[str, int]
) -> list[Violation]:
    """Run the clauses of one micro-event, counting each time a rule is put to the test."""
    table = active.get(type(m), ())
    if isinstance(m, mi.Grant | ev.Load) and m.request not in s.live():
        # Granted after its abort: edge/abort says so, the others have nothing to look at.
        table = tuple(row for row in table if row[0] == "edge/abort")
    broken: list[Violation] = []
    for rule, clause in table:
        for message in clause(s, m):
            count[rule] = count.get(rule, 0) + 1
            if message is not None:
                broken.append(Violation(rule, message))
    return broken


def check(state: State, event: ev.Event, observes: frozenset[str]) -> tuple[Violation, ...]:
    """The violations of one event; empty if it is right. Advisory rules say nothing here. Raises Malformed."""
    return run(state, event, clauses(observes), advisory(SPEC_VERSION)).violations


def apply(state: State, event: ev.Event) -> State:
    """The state after an event that `check` found right. Raises Malformed."""
    for m in mi.expand(event, len(state.memory)):
        admissible(state, m)
        state = apply_micro(state, m)
    return state


# -- what makes sense -------------------------------------------------------------------------------------------------


def admissible(s: View, m: mi.Micro) -> None:
    """Raise Malformed if the micro-event cannot be understood in this state."""
    match m:
        case ev.CopyStart():
            if m.copy in s.copies:
                raise Malformed("copy", f"{m.copy} is in flight already")
            if m.before is not None and m.before <= s.last_frame:
                raise Malformed("before", f"frame {m.before} is dispatched: what is ordered before it comes first")
            _ends(s, "blocks", m.direction, m.blocks)
        case ev.CopyDone():
            if m.copy not in s.copies:
                raise Malformed("copy", f"{m.copy} is not in flight")
        case ev.Arrive():
            if m.request in s.live():
                raise Malformed("request", f"{m.request} is live already")
            if not m.prompt:
                raise Malformed("prompt", "is empty")
            if m.max_tokens < 1:
                raise Malformed("max_tokens", "is less than 1")
        case mi.Begin():
            if m.frame <= s.last_frame:
                raise Malformed("frame", f"{m.frame} follows {s.last_frame}: frames count upwards")
            if len(s.frames) >= s.limits.frames:
                most = f"limits.frames is {s.limits.frames}"
                raise Malformed("frame", f"{m.frame} is one too many: {min(s.frames)} is not delivered, and {most}")
        case ev.Deliver():
            if m.frame > s.last_frame:
                raise Malformed("frame", f"{m.frame} was not dispatched yet")
            frame = s.frames.get(m.frame, {})
            for r in m.requests:
                if r not in frame and r not in s.live() and m.frame in s.frames:
                    raise Malformed("requests", f"{r} is not known")
        case mi.Close():
            _close_makes_sense(s, m.step)
        case mi.Grant():
            if m.hit and any(group.kind == "recurrent" for group in s.groups):
                raise Malformed("hits", "are not judged together with a recurrent group")
            if m.drafts and any(group.kind == "recurrent" for group in s.groups):
                # Rejected drafts cannot be cut out of a state; engines keep one per draft, which is not modelled.
                raise Malformed("drafts", "are not judged together with a recurrent group")
            if m.request not in s.aborted:
                _live(s, "requests", m.request)
            for g, blocks in enumerate(m.blocks):
                _ids(s, "blocks", g, blocks)
        case mi.ControlDone():
            if m.kind not in ("reset", "pause", "resume"):
                raise Malformed("kind", f"{m.kind!r} is not judged by this version: reset, pause or resume")
        case mi.Dispatch() | ev.EngineError():
            pass
        case ev.Withdraw() | ev.Pin() | ev.Unpin() | ev.Unfence():
            _ids(s, "acts.blocks", m.group, m.blocks)
        case ev.Evict():
            _ends(s, "acts.blocks", "out", tuple((0, b, m.group) for b in m.blocks))
        case _:
            if not (isinstance(m, ev.Load) and m.request in s.aborted):
                _live(s, "request", m.request)
            if isinstance(m, ev.Release | ev.Finish | ev.Abort) and m.until is not None and m.until > s.last_frame:
                raise Malformed("until", f"frame {m.until} was not dispatched yet")
            if isinstance(m, ev.Publish | ev.Shed):
                _ids(s, "acts.blocks", m.group, m.blocks)
            elif isinstance(m, ev.Exchange):
                _ids(s, "acts.blocks", m.group, (*m.blocks, *m.instead))
                if len(m.blocks) != len(m.instead) or len({*m.blocks}) < len(m.blocks):
                    raise Malformed("acts.instead", f"{len(m.instead)} blocks for {len({*m.blocks})}")
            elif isinstance(m, ev.Swap):
                _ends(s, "acts.blocks", m.direction, m.blocks)
            elif isinstance(m, ev.Requeue):
                if m.queue not in ("waiting", "swapped"):
                    raise Malformed("acts.queue", f"{m.queue!r} is not a queue: waiting or swapped")
            elif isinstance(m, ev.Plan | ev.Load):
                for g, blocks in enumerate(m.blocks):
                    _ids(s, "acts.blocks", g, blocks)


def _live(s: View, field: str, request: str) -> None:
    if request not in s.live():
        raise Malformed(field, f"{request} is not live")


def _close_makes_sense(s: View, step: ev.Step) -> None:
    live, groups = s.live(), len(s.pages)
    for field, tables in (("blocks", step.blocks), ("sent", step.sent)):
        for x in tables:
            if x.request not in live:
                _live(s, field, x.request)
            if not 0 <= x.group < groups or (
                x.blocks and not (min(x.blocks) >= 0 and max(x.blocks) < s.extent(x.group))
            ):
                _ids(s, field, x.group, x.blocks)
    for hit in (*step.hits, *step.drafts):
        _live(s, "hits or drafts", hit.request)
    for back in step.resumed:
        _live(s, "resumed", back.request)
    for victim in s.plan.demoted if step.observed.waiting else ():
        # Not the engine's fault: it has the victim in its queue, and nobody told when it came there.
        if victim in live and s.request(victim).place is Place.LIMBO and victim in (step.observed.waiting or ()):
            raise Malformed("acts", f"{victim} was preempted and waits again; no requeue was told")


def _ends(s: View, field: str, direction: str, blocks: tuple[tuple[int, int, int], ...]) -> None:
    """Both ends of each copied block exist."""
    for *ends, g in blocks:
        _ids(s, field, g, (ends[direction == "in"],))
        host = ends[direction == "out"]
        if not 0 <= host < s.host_extent(g):
            raise Malformed(field, f"host block {host}: the host pool of group {g} has {s.host_extent(g)} blocks")


def _ids(s: View, field: str, group: int, blocks: tuple[int, ...]) -> None:
    if not 0 <= group < len(s.pages):
        raise Malformed(field, f"there is no group {group}")
    if blocks and not (min(blocks) >= 0 and max(blocks) < s.extent(group)):
        raise Malformed(field, f"{list(blocks)}: the pool of group {group} has {s.extent(group)} blocks")
