"""The monitor fed steady lines as what is new in them judges as it does when it is fed whole events.

Runs go on for as long as a table of many requests decodes, in traces that are written and read back, so that the reader
decides what is steady; then an event is changed at random. Whatever is changed, both judges say the same.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest

from preempt_oracle.equality import readable, state_of
from preempt_oracle.monitor import Monitor
from preempt_oracle.monitor.cohort import Cohort
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec, to_wire
from preempt_oracle.trace.reader import read, read_steadily
from preempt_oracle.trace.steady import Steady
from preempt_oracle.trace.writer import create
from preempt_properties.corruption import corrupt
from preempt_properties.crowd import crowded
from preempt_properties.play import header, play
from preempt_spec import events as ev
from preempt_spec.micro import Malformed
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import Reference

LIES = 12


def written(head: ev.Header, events: Iterable[ev.Event]) -> bytes:
    out = io.BytesIO()
    with create(out, head) as to:
        for event in events:
            to.write(to_wire(event))
    return out.getvalue()


def judged(content: bytes, reader: Callable[..., Iterable[tuple[int, wire.Line | Steady]]]) -> tuple[Any, ...]:
    """What a monitor says of a trace, and where it stands then."""
    lines = [line for _, line in reader(io.BytesIO(content))]
    assert isinstance(lines[0], wire.Header)
    monitor, fault, fed = Monitor(to_spec(lines[0]), PROFILES[lines[0].policy].contract), "", 0
    for line in lines[1:-1]:
        fed += 1
        assert not isinstance(line, wire.Header | wire.Footer)
        try:
            if monitor.feed(line):
                break
        except Malformed as e:
            fault = str(e)
            break
    broken = sorted((v.rule, v.message) for v in monitor.violations)
    state = None if fault else state_of(monitor.shadow)
    return broken, fault, fed, monitor.exercised, monitor.steps, monitor.grants, state


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[Any]:
    """How often each short cut for steady lines was taken."""
    found: Counter[Any] = Counter()

    def count(name: str) -> None:
        method = getattr(Cohort, name)

        def counted(self: Any, event: Any) -> Any:
            result = method(self, event)
            found[name, result is not None] += 1
            return result

        monkeypatch.setattr(Cohort, name, counted)

    count("steady_step")
    count("steady_deliver")
    return found


@pytest.mark.profiles
@pytest.mark.parametrize("policy", PROFILES)
def test_crowds_valid_and_with_a_lie(policy: str):
    broken: Counter[Any] = Counter()
    for seed in range(2):
        random, scenario = Random(seed), crowded(Random(seed), policy)
        head = header(scenario.config)
        events = tuple(play(scenario, Reference(head, PROFILES[policy].contract)))
        valid = written(head, events)
        assert judged(valid, read_steadily) == judged(valid, read)
        assert not judged(valid, read)[0]
        form = readable(head)
        for _ in range(LIES):
            lying = written(head, corrupt(random, events, form))
            found = judged(lying, read)
            assert judged(lying, read_steadily) == found
            broken[found[0][0][0] if found[0] else found[1] and "malformed"] += 1
    assert len(broken) >= 5, broken


def steady(observes: frozenset[str], steps: int, changed: Callable[[list[wire.Event]], None]) -> bytes:
    """Three requests that decode in a pool that has room, one token each a step, and a change of that."""
    limits = ev.Limits(4, 64, 512)
    head = ev.Header("demo", "1", "vllm-fcfs", limits, (ev.Group(),), (ev.Pool("device", 0, 60),), observes)
    names = ("a", "b", "c")
    events: list[wire.Event] = [wire.Arrive(r, (1,) * 15, 200, arrival=i) for i, r in enumerate(names)]
    tables = dict.fromkeys(names, 1)
    for i in range(steps):
        blocks, start = [], 0 if not i else 14 + i
        for k, r in enumerate(names):
            if not i:
                blocks.append(wire.Delta(r, 0, (k,)))
            elif start + 1 > 16 * tables[r]:
                blocks.append(wire.Delta(r, 0, (3 * tables[r] + k,)))
                tables[r] += 1
        sent = tuple(wire.Sent(d.request, 0, d.blocks, not i) for d in blocks)
        free = (60 - sum(tables.values()),)
        counts = (15,) * 3 if not i else (1,) * 3
        observed = wire.Observed(free=free)
        events.append(wire.Step(i, names, counts, (start,) * 3, tuple(blocks), sent, observed=observed))
        events.append(wire.Deliver(i, names, ((i,),) * 3))
    changed(events)
    return written(head, map(to_spec, events))


def edit(frame: int, kind: type[wire.Step | wire.Deliver], /, **fields: Any) -> Callable[[list[wire.Event]], None]:
    """That frame's step, or its delivery, with other fields."""

    def apply(events: list[wire.Event]) -> None:
        for i, e in enumerate(events):
            if isinstance(e, kind) and e.frame == frame:
                events[i] = kind(**{f: getattr(e, f) for f in kind.__struct_fields__} | fields)

    return apply


def at(frame: int, event: wire.Event) -> Callable[[list[wire.Event]], None]:
    """An event in front of that frame's step."""

    def apply(events: list[wire.Event]) -> None:
        where = next(i for i, e in enumerate(events) if type(e) is wire.Step and e.frame == frame)
        events.insert(where, event)

    return apply


def grow(frame: int, *grown: tuple[str, tuple[int, ...]], free: int) -> Callable[[list[wire.Event]], None]:
    """In that frame these tables grow, as the worker is told."""
    blocks = tuple(wire.Delta(r, 0, some) for r, some in grown)
    sent = tuple(wire.Sent(r, 0, some) for r, some in grown)
    return edit(frame, wire.Step, blocks=blocks, sent=sent, observed=wire.Observed(free=(free,)))


OBSERVES = frozenset({"blocks", "sent", "start", "free", "counts", "known", "queues", "emitted"})


@pytest.mark.parametrize(
    ("changed", "rules"),
    [
        (lambda events: None, set()),
        (edit(20, wire.Step, start=(35, 34, 34)), {"frame/once", "output/stream"}),
        (edit(20, wire.Step, frame=19), {"malformed"}),
        (edit(20, wire.Step, observed=wire.Observed(free=(5,))), {"pool/conserve"}),
        (edit(20, wire.Deliver, tokens=((1,), (2, 3), (4,))), {"output/stream"}),
        (edit(20, wire.Deliver, requests=("a", "c", "b")), set()),
        (grow(18, ("a", (6,)), ("b", (7,)), ("c", (8,)), free=51), set()),
        (grow(18, ("a", (50,)), ("b", (51,)), ("c", (52,)), free=51), set()),
        (grow(18, ("c", (8,)), ("b", (7,)), ("a", (6,)), free=51), set()),
        (grow(18, ("a", (6,)), ("b", (7,)), ("c", (8,)), free=50), {"pool/conserve"}),
        (grow(18, ("a", (6,)), ("b", (6,)), ("c", (8,)), free=51), {"pool/conserve"}),
        (grow(18, ("a", (6,)), ("b", (0,)), ("c", (8,)), free=51), {"pool/conserve"}),
        (grow(18, ("a", (6,)), ("b", (7,)), free=52), None),
        (grow(18, ("a", (6,)), ("b", (7,)), ("c", ()), free=52), None),
        (grow(18, ("a", (6,)), ("b", (7,)), ("c", (8, 9)), free=50), None),
        (grow(18, ("a", (6,)), ("b", (7,)), ("a", (8,)), free=51), None),
        (grow(18, ("a", (6,)), ("b", (7,)), ("d", (8,)), free=51), None),
        (grow(20, ("a", (50,)), free=50), None),
        (at(20, wire.Abort("b", blocks=((1, 4, 7),))), None),
        (at(20, wire.Control("pause")), None),
        (at(20, wire.Arrive("d", (1, 2, 3), 5, arrival=9)), None),
        (at(20, wire.CopyStart(1, "out", ())), None),
    ],
)
def test_a_change_amid_steady_lines(changed: Callable[[list[wire.Event]], None], rules: set[str] | None):
    content = steady(OBSERVES, 60, changed)
    found = judged(content, read)
    assert judged(content, read_steadily) == found
    if rules is not None:
        assert {rule for rule, _ in found[0]} | ({"malformed"} if found[1] else set()) == rules


@pytest.mark.as_written
def test_nearly_all_of_a_steady_run_takes_the_short_cut(taken: Counter[Any]):
    assert judged(steady(OBSERVES, 90, lambda events: None), read_steadily)[0] == []
    assert taken["steady_step", True] >= 80
    assert taken["steady_deliver", True] >= 88
    assert taken["steady_step", False] <= 3


@pytest.mark.as_written
def test_where_no_starts_are_told_none_are_taken_for_told(taken: Counter[Any]):
    def untold(events: list[wire.Event]) -> None:
        for i, e in enumerate(events):
            if type(e) is wire.Step:
                events[i] = wire.Step(e.frame, e.requests, e.tokens, None, e.blocks, e.sent, observed=e.observed)

    content = steady(OBSERVES - {"start"}, 40, untold)
    assert judged(content, read_steadily) == judged(content, read)
    assert taken["steady_step", True] == 0
    assert taken["steady_deliver", True] > 30
