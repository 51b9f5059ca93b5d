"""The first diverging state of a failure: what the engine said, beside what the shadow state has.

A rule breaks at one micro-event, and the shadow state stands just before it. Only what the engine said *of that moment*
is set against it: its books are read at the end of a step, so that they appear when a rule broke there, and not when it
broke at an act or a grant inside the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from attrs import frozen

from preempt_oracle.monitor import Monitor
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.micro import Malformed
from preempt_spec.policies.admission import hit_limit
from preempt_spec.policies.blocks import shared_pages, table_room
from preempt_spec.policies.displacing import first_of_those_who_stay, leaving_key, next_displaced
from preempt_spec.policies.outputs import room_for_outputs
from preempt_spec.policies.policy import Memory, Release
from preempt_spec.policies.pressure import pressure
from preempt_spec.policies.queues import next_admitted, requeue_at
from preempt_spec.policies.victims import victim
from preempt_spec.rules import Violation
from preempt_spec.system import admissible, judge
from preempt_spec.view import HOLE, Fate, Place, View, with_holes

MANY = 16  # ids shown of a long list


@frozen
class Compared:
    """One line of the diff. `engine` None: the engine said nothing about it at this moment."""

    what: str
    engine: str | None
    shadow: str
    differs: bool = False


@frozen
class Divergence:
    """The state in which a rule broke. `moment`: at which micro-event, in words."""

    moment: str
    books: tuple[Compared, ...]


def diverged(monitor: Monitor, event: wire.Event, violation: Violation) -> Divergence | None:
    """The divergence behind a violation of `event`, asked for right after `feed`; None if it cannot be told."""
    shadow = monitor.shadow
    for m in mi.expand(to_spec(event), len(shadow.pages)):
        try:
            admissible(shadow, m)
        except Malformed:
            continue
        # Clauses are pure: asked again in the state in which they said no, they say so again.
        if violation in judge(shadow, m, monitor.active, Counter()):
            return Divergence(moment(m), tuple(_books(shadow, m)))
    return None


def moment(m: mi.Micro) -> str:
    """What happens in a micro-event, in a few words."""
    match m:
        case mi.Grant():
            return f"the grant of {m.tokens} tokens to {m.request}"
        case mi.Close():
            return f"the end of step {m.step.frame}"
        case ev.Deliver():
            return f"the delivery of frame {m.frame}"
        case ev.Demote():
            return f"the preemption of {m.request} for {', '.join(m.beneficiaries) or m.cause}"
        case mi.ControlDone():
            return f"the end of the {m.kind}"
        case ev.CopyStart():
            return f"the start of copy {m.copy}"
        case ev.CopyDone():
            return f"the end of copy {m.copy}"
        case ev.EngineError():
            return "an exception"
        case _:
            request = getattr(m, "request", "")
            return f"the {type(m).__name__.lower()}{f' of {request}' * bool(request)}"


def _compare(what: str, engine: object, shadow: object) -> Compared:
    """Equal or not, as data; shown shortened."""
    if engine is None:
        return Compared(what, None, _shown(shadow))
    return Compared(what, _shown(engine), _shown(shadow), engine != shadow)


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        value = [f"{k}:{v}" for k, v in sorted(value.items())]
    if isinstance(value, list | tuple):
        more = f" … {len(value)} in all" if len(value) > MANY else ""
        return f"[{' '.join(map(str, value[:MANY]))}{more}]"
    return str(value)


def _books(s: View, m: mi.Micro) -> Iterator[Compared]:
    match m:
        case mi.Grant():
            yield from _grant(s, m)
        case ev.Demote():
            yield from _demote(s, m)
        case ev.Load():
            slots = table_room(s.groups, m.blocks, m.computed)
            yield Compared(f"{m.request}: loads up to", str(m.computed), f"{slots} slots owned", slots < m.computed)
            if m.runs:
                most = min(s.best_hit(m.request), hit_limit(s, m.request))
                yield Compared(f"{m.request}: runs on a hit of", str(m.hit), f"{most} at most", m.hit > most)
        case ev.Release():
            yield from _released(s, m)
        case ev.Shed():
            yield _shed(s, m)
        case ev.Requeue():
            swapped = s.policy.memory is Memory.SWAP and s.request(m.request).computed > 0
            yield _compare(f"{m.request}: queue", m.queue, "swapped" if swapped else "waiting")
            yield _compare(f"{m.request}: index in {m.queue}", m.index, requeue_at(s, m.request, m.queue))
            yield _compare(f"{m.request}: known tokens", m.known, len(s.request(m.request).tokens))
        case ev.Finish() | ev.Abort():
            yield from _taken_back(s, m.request, m.blocks)
            for g, free in enumerate(m.observed.free or () if isinstance(m, ev.Abort) else ()):
                back = sum(b not in s.shared(g) for b in s.request(m.request).tables[g] if b != HOLE)
                yield _compare("free blocks afterwards", free, s.free(g) + (0 if m.until is not None else back))
        case ev.Deliver():
            yield from _delivered(s, m)
        case mi.Close():
            yield from _told(s, m)
    # Books are read at the end of a step. (Those of an abort come after it, and the shadow stands before it.)
    yield from _queues(s, m.step.observed if isinstance(m, mi.Close) else ev.Observed())
    for request in _subjects(s, m):
        r = s.request(request)
        known = f"{len(r.tokens)} known (prompt {r.prompt}, {len(r.tokens) - r.prompt} of {r.max_tokens} emitted)"
        state = r.place.value + (", preempted before" if r.preempted else "")
        known += f", {r.placeholders} promised" * bool(r.placeholders) + f", {r.drafts} drafts" * bool(r.drafts)
        tables = " | ".join(_shown(t) for t in r.tables)
        yield Compared(f"request {request}", None, f"{state}; {known}; {r.computed} computed; table {tables}")


def _shed(s: View, m: ev.Shed) -> Compared:
    r, group = s.request(m.request), s.groups[m.group]
    first = max(0, r.computed + 1 - group.window)
    pages = enumerate(r.tables[m.group])
    early = [b for i, b in pages if b in m.blocks and (i + 1) * group.page_size > first]
    return Compared(f"{m.request}: blocks shed", _shown(m.blocks), f"{_shown(early)} attended yet", bool(early))


def _released(s: View, m: ev.Release) -> Iterator[Compared]:
    r = s.request(m.request)
    if m.kept:
        yield _compare(f"{m.request}: computed tokens kept", m.kept, r.computed)
    yield _compare(f"{m.request}: computed tokens left", m.computed, m.kept)
    if m.drafts is not None:
        yield _compare(f"{m.request}: drafts left", m.drafts, 0)
    released = r.place is Place.LIMBO or (r.place is Place.WAITING and r.preempted)
    yield Compared(f"{m.request}: is", "released", r.place.value, not released)
    for number, copy in s.copies.items():
        moved = {(g, src if copy.direction == "out" else dst) for src, dst, g in copy.blocks}
        used = [b for g, table in enumerate(m.blocks or r.tables) for b in table if (g, b) in moved]
        if used:
            yield Compared(f"{m.request}: blocks given up", _shown(used), f"in use by copy {number}", True)
    yield from _taken_back(s, m.request, m.blocks)


def _delivered(s: View, m: ev.Deliver) -> Iterator[Compared]:
    """What became of each output, and what is to become of it."""
    frame = s.frames.get(m.frame)
    if frame is None:
        yield Compared(f"frame {m.frame}", "delivered", f"flying are {_shown(list(s.frames))}", True)
        return
    for i, name in enumerate(m.requests):
        state = m.disposition[i] if m.disposition is not None else "delivered"
        due = frame.get(name)
        if due is None:
            yield Compared(f"{name}: its output", state, f"frame {m.frame} owes it nothing", True)
            continue
        appended = due.fate in (Fate.LIVE, Fate.DELIVER) and name in s.live()
        expected = m.tokens[i][: room_for_outputs(s, s.request(name))] if appended else ()
        emitted = m.emitted[i] if m.emitted is not None else m.tokens[i][: len(expected)]
        yield _compare(f"{name}: emitted tokens", emitted if state == "delivered" else (), expected)
        wrong = bool(due.outputs) and (state == "delivered") != appended
        yield Compared(f"{name}: its output", state, due.fate.value, wrong)
    lost = [r for r, x in frame.items() if x.outputs and x.fate is Fate.LIVE and r not in m.requests]
    if lost:
        yield Compared("outputs not delivered", _shown(lost), _shown([]), True)


def _queues(s: View, told: ev.Observed) -> Iterator[Compared]:
    yield _compare("running", told.running, tuple(s.running))
    yield _compare("waiting", told.waiting, tuple(s.waiting))
    if s.swapped or told.swapped:
        yield _compare("swapped", told.swapped, tuple(s.swapped))
    if s.frames:
        yield Compared("flying", None, _shown(list(s.frames)))
    if told.preemptions is not None:
        yield _compare("preemptions", told.preemptions, s.preemptions)
    for g, free in enumerate(told.host_free or ()):
        yield _compare(f"free host blocks (group {g})", free, s.host_free(g))
    for g in range(len(s.pages)):
        group = f" (group {g})" if len(s.pages) > 1 else ""
        yield _compare(f"free blocks{group}", None if told.free is None else told.free[g], s.free(g))
        if told.free_ids is not None and (ids := sorted(told.free_ids[g])) != (mine := sorted(s.free_ids(g))):
            yield _compare(f"free list{group}", ids, mine)
        if told.refs is not None:
            refs = {r.block: r.count for r in told.refs if r.group == g}
            if refs != (shared := dict(s.shared(g))):
                yield _compare(f"shared blocks{group}", refs, shared)
    for h in told.held or ():
        if h.request in s.live():
            r = s.request(h.request)
            have = f"{sum(map(len, r.tables))} blocks, {r.computed} computed tokens"
            if h.request in s.plan.demoted and h.request in s.waiting and s.policy.release is Release.AT_ONCE:
                have = "nothing: it was preempted in this step"
            yield _compare(f"{h.request}: holds", f"{h.blocks} blocks, {h.computed} computed tokens", have)


def _told(s: View, m: mi.Close) -> Iterator[Compared]:
    """What the worker was told and what it will read, where that is not what the shadow has."""
    told, back_again = {x.request for x in m.step.resumed}, {r for r in s.plan.admitted if s.request(r).preempted}
    if m.step.sent and told != back_again:
        yield _compare("announced as resumed", sorted(told), sorted(back_again))
    for back in m.step.resumed:
        known = len(s.request(back.request).tokens)
        if back.known not in (None, known):
            yield _compare(f"{back.request}: resumes towards", back.known, known)
    sent = {(x.request, x.group): x for x in m.step.sent}
    for request in dict.fromkeys([*(x.request for x in m.step.sent), *(d.request for d in m.step.blocks)]):
        r = s.request(request)
        for g, owned in enumerate(r.tables):
            message = sent.get((request, g))
            had = () if message is not None and message.full else r.sent[g]
            told_blocks = message.blocks if message is not None else ()
            table = [*had, *with_holes(s.groups[g], s.reserved(g), told_blocks)]
            if m.step.sent and table != list(owned):
                yield _compare(f"{request}: the worker's table", table, list(owned))
    for v, w in s.plan.displaced:
        worst = first_of_those_who_stay(s)
        wrong = worst is not None and v in s.live() and leaving_key(s.request(worst)) > leaving_key(s.request(v))
        yield Compared(f"made way for {w}", v, f"{worst} stays", wrong)
    for request, (start, tokens) in s.plan.granted.items():
        end = start + tokens
        if (held := s.covered(request, start, end)) != end and any(s.request(request).tables):
            yield _compare(f"{request}: attends slots up to", end, f"{held} hold its own context")
        if request in s.plan.torn:
            yield Compared(f"{request}: reads the state behind token", str(start), "it holds something else", True)


def _grant(s: View, m: mi.Grant) -> Iterator[Compared]:
    if m.request in s.live():
        r = s.request(m.request)
        if r.place is Place.WAITING:
            yield _compare("admitted", m.request, next_admitted(s) or "nobody")
            most = min(s.best_hit(m.request), hit_limit(s, m.request))
            start = m.start if m.start is not None else m.hit
            yield Compared(f"{m.request}: starts at", _number(start), f"{most} at most", (start or 0) > most)
        else:
            yield _compare(f"{m.request}: starts at", m.start, r.computed)
            start = m.start if m.start is not None else r.computed
        end = (start or 0) + m.tokens
        slots = table_room(s.groups, [(*t, *new) for t, new in zip(r.tables, m.blocks, strict=True)], end)
        known = len(r.tokens) + r.placeholders + m.drafts
        wrong = end > min(known, slots)
        yield Compared(f"{m.request}: ends at", str(end), f"{known} known, {slots} slots owned", wrong)
    for g, blocks in enumerate(m.blocks):
        if blocks:
            fresh = blocks[shared_pages(s.groups[g], m.hit or 0) :]
            taken = [b for b in fresh if not s.is_free(g, b)]
            have = f"{s.free(g)} free" + "".join(f"; {s.owner(g, b)} holds {b}" for b in taken[:MANY])
            yield Compared(f"{m.request}: new blocks", _shown(blocks), have, bool(taken))
    yield Compared("budget spent", None, f"{s.plan.spent} of {s.limits.budget} tokens before this grant")


def _demote(s: View, m: ev.Demote) -> Iterator[Compared]:
    who = [b for b in m.beneficiaries if b in s.live() and s.request(b).place is Place.RUNNING]
    yield Compared("cause", m.cause, _shown(sorted(s.policy.causes)), m.cause not in s.policy.causes)
    if who:
        yield _compare("victim", m.request, victim(s, who[0]) or "nobody")
        need, supply = pressure(s, who)
        yield _compare(f"blocks needed by {', '.join(who)}", m.need, need)
        yield _compare("blocks free", m.supply, supply)
    for w in (b for b in m.beneficiaries if m.cause == "admission" and b in s.waiting):
        yield _compare(f"makes way for {w}", m.request, next_displaced(s, w) or "nobody")
    yield Compared("granted in this step", None, _shown(list(s.plan.granted)))


def _taken_back(s: View, request: str, blocks: tuple[tuple[int, ...], ...] | None) -> Iterator[Compared]:
    for g, table in enumerate(s.request(request).tables):
        told = tuple(sorted(blocks[g])) if blocks else None
        yield _compare(f"{request}: blocks taken back", told, tuple(sorted(b for b in table if b != HOLE)))


def _subjects(s: View, m: mi.Micro) -> list[str]:
    """The requests to show in full: those of the micro-event; at the end of a step, those its books disagree about."""
    if isinstance(m, mi.Close):
        names = [h.request for h in m.step.observed.held or ()]
        names += [*s.plan.demoted, *(r for r in s.plan.entered if r not in s.plan.granted)]
    elif isinstance(m, ev.Deliver):
        names = [*m.requests]
    else:
        names = [getattr(m, "request", "")]
    return [r for r in dict.fromkeys(names) if r in s.live()][:3]


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)
