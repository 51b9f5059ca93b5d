"""What the shadow state answers as the pure one does, in states to which the search for a difference rarely comes."""

from __future__ import annotations

from preempt_oracle.monitor import Monitor
from preempt_oracle.trace.convert import to_wire
from preempt_spec import events as ev
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES
from preempt_spec.state import initial
from preempt_spec.system import clauses, run
from preempt_spec.view import View

FULL = ev.Group("full", "full", 2)
POLICY = PROFILES["vllm-fcfs"].contract


def views(groups: tuple[ev.Group, ...], frames: int, *events: ev.Event) -> tuple[View, View]:
    """The shadow and the pure state behind some events, in which all is well."""
    pools = tuple(ev.Pool(ev.DEVICE, g, 16) for g in range(len(groups)))
    limits = ev.Limits(4, 16, 12, caching=True, frames=frames)
    header = ev.Header("test", "", "vllm-fcfs", limits, groups, pools, OBSERVES - {"sent", "publish"})
    state, monitor = initial(header, POLICY), Monitor(header, POLICY)
    for event in events:
        outcome = run(state, event, clauses(header.observes))
        assert monitor.feed(to_wire(event)) == [] == [*outcome.violations]
        state = outcome.state
    return monitor.shadow, state


def step(
    frame: int, request: str, start: int, tokens: int, *blocks: tuple[int, ...], acts: tuple[ev.Act, ...] = ()
) -> ev.Step:
    """One grant, with new blocks of each group."""
    deltas = tuple(ev.Delta(request, g, new) for g, new in enumerate(blocks) if new)
    return ev.Step(frame, (request,), (tokens,), (start,), deltas, acts=acts)


def test_a_page_is_there_if_each_group_has_it():
    """The blocks of one group were given to somebody else, and written."""
    for view in views(
        (FULL, FULL),
        1,
        ev.Arrive("a", (1, 2, 3, 4), 1),
        step(0, "a", 0, 4, (0, 1), (0, 1)),
        ev.Deliver(0, ("a",), ((5,),)),
        ev.Finish("a", "length", ((0, 1), (0, 1))),
        ev.Arrive("b", (9, 8, 7, 6), 1, 0, 1),
        step(1, "b", 0, 4, (4, 5), (0, 1)),
        ev.Arrive("c", (1, 2, 3, 4, 5), 1, 0, 2),
    ):
        assert not view.resident("c", 4, ((0, 1), (0, 1)))
        assert view.best_hit("c") == 0


def test_what_left_the_window_is_not_there_though_its_block_is_as_it_was():
    window = ev.Group("window", "sliding", 2, 3)
    for view in views(
        (window,),
        1,
        ev.Arrive("a", tuple(range(8)), 4),
        step(0, "a", 0, 8, (15, 0, 1, 2)),
        ev.Deliver(0, ("a",), ((9,),)),
        step(1, "a", 8, 1, (3,), acts=(ev.Shed("a", (15,), 0),)),
    ):
        assert [view.covered("a", start, upto) for start, upto in ((0, 2), (0, 8), (4, 8))] == [0, 0, 8]


def test_nobody_hits_what_it_wrote_for_tokens_that_are_not_known():
    """The second pass runs ahead of the token that the first will bring."""
    for view in views((FULL,), 2, ev.Arrive("a", (1, 2, 3), 6), step(0, "a", 0, 3, (0, 1)), step(1, "a", 3, 1)):
        assert view.best_hit("a") == 2
