"""The monitor and the pure system, fed the same streams: violations, exercise counts, malformed traces, and the state.

Needs the extra `properties`, like the streams: for tests, and for those who test the tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, cast

import msgspec
from attrs import evolve

from preempt_oracle.monitor import Monitor
from preempt_oracle.monitor.content import Held
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_wire
from preempt_oracle.trace.errors import Fault
from preempt_oracle.trace.structure import Structure
from preempt_properties.corruption import Accept, corrupt
from preempt_properties.crowd import crowded
from preempt_properties.play import header, play
from preempt_properties.strategies import Stream, stream
from preempt_properties.workload import workload
from preempt_spec import events as ev
from preempt_spec.memory import Ahead, Slot
from preempt_spec.micro import Malformed
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import Reference
from preempt_spec.state import State, initial
from preempt_spec.system import clauses, run
from preempt_spec.view import HOLE, View


def readable(header: ev.Header) -> Accept:
    """Events that a trace can hold: what the reader would refuse never reaches either judge."""
    structure = Structure(to_wire(header))

    def accept(event: ev.Event) -> bool:
        try:
            structure.check(cast(wire.Event, wire.DECODER.decode(wire.ENCODER.encode(to_wire(event)))))
        except (Fault, msgspec.MsgspecError, TypeError, ValueError, OverflowError):
            return False
        return True

    return accept


def state_of(s: View) -> dict[str, Any]:
    """What both must agree on after an event."""
    groups = range(len(s.pages))
    return {
        "running": [*s.running],
        "waiting": [*s.waiting],
        "swapped": [*s.swapped],
        "aborted": [*s.aborted],
        "free": [s.free(g) for g in groups],
        "free ids": [s.free_ids(g) for g in groups],
        "shared": [dict(s.shared(g)) for g in groups],
        "stall": s.stall,
        "cycle": s.cycle,
        "paused": s.paused,
        "gated": s.gated,
        "ahead": s.ahead,
        "counters": (s.preemptions, s.recomputed, s.delivered),
        "last frame": s.last_frame,
        "frames": {frame: dict(flight) for frame, flight in s.frames.items()},
        "copies": dict(s.copies),
        "host": [{b for b in range(s.host_extent(g)) if s.host_used(g, b)} for g in groups],
        "fences": [{b: s.fence(g, b) for b in range(s.extent(g))} for g in groups],
        "pins": [{b: s.pinned(g, b) for b in range(s.extent(g))} for g in groups],
        "published": [*s.plan.published],
        "requests": {
            r.id: (
                [*r.tokens],
                r.computed,
                r.peak,
                r.goal,
                r.since,
                r.preempted,
                r.place,
                [[*t] for t in r.tables],
                [[*t] for t in r.sent],
                r.placeholders,
                r.drafts,
                r.last,
            )
            for r in map(s.request, s.live())
        },
    }


def slots_of(monitor: Monitor) -> dict[str, Any]:
    """What each slot holds in the monitor, and what each block is published as. It notes what it would put off."""
    shadow = monitor.shadow
    writers = {id(r.tokens): r.id for r in shadow.requests.values()}

    def spelled(held: Held, count: int) -> tuple[Slot, ...]:
        out: list[Slot] = []
        for slot in range(count):
            what: Slot = None
            for tokens, salt, index, lo, hi in held:
                at = index * count + slot
                if lo <= at < hi:
                    writer = writers.get(id(tokens))
                    ahead = Ahead(writer, at + 1) if writer else None
                    what = (salt, tuple(tokens[: at + 1])) if at < len(tokens) else ahead
                    break
            out.append(what)
        return tuple(out)

    found: dict[str, Any] = {}
    for g, m in enumerate(shadow.memory):
        for b in range(m.total):
            found[f"block {b} of {g}"] = spelled(shadow.held(g, b), m.slots)
            told = m.published.get(b)
            found[f"hash of {b} of {g}"] = told and (told[1], tuple(told[0][: told[2]]))
    for g, h in enumerate(shadow.host):
        for b, held in h.blocks.items():
            found[f"host block {b} of {g}"] = spelled(held, h.slots)
    return found


def pure_slots(state: State) -> dict[str, Any]:
    """The same of the pure system; of the host tier, all blocks."""
    found: dict[str, Any] = {}
    for g, memory in enumerate(state.memory):
        for b in range(state.extent(g)):
            found[f"block {b} of {g}"] = memory.block(b).slots
            found[f"hash of {b} of {g}"] = memory.block(b).published
    for g, memory in enumerate(state.host):
        for b in range(state.host_extent(g)):
            found[f"host block {b} of {g}"] = memory.block(b).slots
    return found


#: A method of `View`, and what it is asked.
Question = tuple[str, tuple[Any, ...]]


def questions(random: Random, s: View, tracks: bool) -> Iterator[Question]:
    """What a clause might ask of a state, drawn at random. `tracks`: of the content of blocks, too."""
    live, groups = [*s.live()], range(len(s.pages))
    blocks = [(g, random.randrange(s.extent(g))) for g in groups]
    hosts = all(map(s.host_extent, groups))
    # Without a host tier no copy fills a block, and nobody asks who may still write it.
    for name in ("is_free", "arriving", "owner", *["loosed"] * hosts):
        yield from ((name, place) for place in blocks)
    for name in ("free", "idle", "total", "reserved", "extent", "host_free", "host_extent"):
        yield from ((name, (g,)) for g in groups)
    yield from ((name, ()) for name in ("overdue", "findable", "fingerprint"))
    if not tracks or not live:
        return
    yield from (("holds_page", place) for place in blocks)
    name = random.choice(live)
    r, other = s.request(name), s.request(random.choice(live))
    known = len(r.tokens)
    upto = random.randint(0, known)
    start = random.randint(0, upto)
    yield from (("best_hit", (name,)), ("carries", (name, upto)), ("covered", (name, start, upto)))
    tables = [random.choice((table, theirs, table[1:])) for table, theirs in zip(r.tables, other.tables, strict=True)]
    yield "resident", (name, upto, [[b for b in table if b != HOLE] for table in tables])
    if not hosts:
        return
    yield "hosted", (name, start, upto)
    for g in groups:
        block, page = random.randrange(s.host_extent(g)), random.randrange(known // s.pages[g] + 1)
        yield "host_holds", (name, g, block, page, random.randint(min(page * s.pages[g] + 1, known), known))


def judged(state: State, event: ev.Event, active: Any) -> tuple[str, Any]:
    """What the pure system says: why an event makes no sense, or what comes of it."""
    try:
        return "", run(state, event, active)
    except Malformed as e:
        return str(e), None


def fed(monitor: Monitor, event: ev.Event) -> tuple[str, Any]:
    """What the monitor says of it."""
    try:
        return "", monitor.feed(to_wire(event))
    except Malformed as e:
        return str(e), None


def lockstep(s: Stream, slots: bool = False, ask: Random | None = None) -> str:
    """Both judge the stream. Returns how it ended: conforms, malformed, or the id of the first rule broken.

    `slots`: compare what is known of every slot, too, which makes the monitor note what it would put off. `ask`: where
    to draw questions from that both are asked behind every other event.
    """
    state, monitor, active = initial(s.header, s.policy), Monitor(s.header, s.policy), clauses(s.header.observes)
    for n, event in enumerate(s.events):
        before = Counter(monitor.exercised)
        malformed, outcome = judged(state, event, active)
        fault, broken = fed(monitor, event)
        assert fault == malformed, (n, event)
        if malformed:
            return "malformed"
        assert sorted(map(str, broken)) == sorted(map(str, outcome.violations)), (n, event)
        assert monitor.exercised - before == Counter(outcome.exercised), (n, event)
        if broken:
            return str(broken[0].rule)
        state = outcome.state
        assert state_of(monitor.shadow) == state_of(state), (n, event)
        if ask is not None and ask.random() < 0.5:
            for method, args in questions(ask, state, monitor.shadow.tracks):
                ours, theirs = (getattr(view, method)(*args) for view in (monitor.shadow, state))
                same = ours == theirs or (isinstance(ours, list) and tuple(ours) == theirs)
                assert same, (n, event, method, args, ours, theirs)
        if slots and monitor.shadow.tracks:
            pure = pure_slots(state)
            for where, ours in slots_of(monitor).items():
                assert ours == pure[where], (n, event, where)
    return "conforms"


def quiet(policy: str, seeds: Iterable[int]) -> Iterator[Stream]:
    """Valid streams as engines show them: without the ids in the free list, which no engine keeps in a set."""
    for seed in seeds:
        scenario = workload(Random(seed), policy)
        head, contract = header(scenario.config), PROFILES[policy].contract
        played = play(scenario, Reference(head, contract))
        yield Stream(scenario, head, contract, tuple(map(unlisted, played)), "Reference", 0)


def unlisted(e: ev.Event) -> ev.Event:
    """The event without the ids in the free list, which would send every step to the clauses."""
    return evolve(e, observed=evolve(e.observed, free_ids=None)) if isinstance(e, ev.Step) else e


def crowds(policy: str, seeds: Iterable[int], lies: int = 0, after: int = 5) -> Iterator[Stream]:
    """Valid streams of crowds; and of each, `lies` that are corrupted once and end so many events behind that."""
    contract = PROFILES[policy].contract
    for seed in seeds:
        random = Random(seed)
        scenario = crowded(random, policy)
        head = header(scenario.config)
        form, events = readable(head), tuple(map(unlisted, play(scenario, Reference(head, contract))))
        yield Stream(scenario, head, contract, events, "Reference", 0)
        for _ in range(lies):
            lying = corrupt(random, events, form)
            first = next((i for i, (a, b) in enumerate(zip(lying, events, strict=False)) if a is not b), len(lying))
            yield Stream(scenario, head, contract, tuple(lying[: first + after]), "Reference", 1)


def drawn(policy: str, seeds: Iterable[int]) -> Iterator[Stream]:
    """Streams by seed: for counting, where Hypothesis would draw what it likes."""
    for seed in seeds:
        yield stream(Random(seed), policy, readable)
