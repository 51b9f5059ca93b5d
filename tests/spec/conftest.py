"""States written down by hand, for tests of what can be read off them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.state import Request, State, initial
from preempt_spec.system import apply
from preempt_spec.view import Place

#: A request: what is not at its default. `known` and `prompt` are counts of tokens, `table` block ids of group 0.
Row = Mapping[str, Any]


def _request(name: str, row: Row, place: Place) -> Request:
    known, table = row.get("known", 1), tuple(row.get("table", ()))
    return Request(
        name,
        row.get("prompt", known),
        tuple(row.get("tokens", range(known))),
        row.get("max_tokens", 4),
        row.get("priority", 0),
        row.get("arrival", 0),
        row.get("salt", ""),
        (table,),
        (table,),
        place,
        row.get("computed", 0),
        preempted=row.get("preempted", False),
        since=row.get("since", (-1, 0)),
    )


@pytest.fixture
def at() -> Callable[..., State]:
    """A state: `at(policy, running={"a": {...}}, waiting={...}, page=…, blocks=…, plan={...}, **limits)`."""

    def build(
        policy: str = "vllm-fcfs",
        running: Mapping[str, Row] | None = None,
        waiting: Mapping[str, Row] | None = None,
        page: int = 2,
        blocks: int = 8,
        reserved: int = 0,
        plan: Mapping[str, Any] | None = None,
        **limits: Any,
    ) -> State:
        running, waiting = running or {}, waiting or {}
        given = ev.Limits(**{"max_running": 4, "budget": 16, "max_length": 12, **limits})
        header = ev.Header(
            "test",
            "",
            policy,
            given,
            (ev.Group("full", "full", page),),
            (ev.Pool(ev.DEVICE, 0, blocks + reserved, reserved),),
        )
        s = initial(header, PROFILES[policy].contract)
        requests = {n: _request(n, r, Place.RUNNING) for n, r in running.items()}
        requests |= {n: _request(n, r, Place.WAITING) for n, r in waiting.items()}
        s = evolve(s, requests=requests, running=tuple(running), waiting=tuple(waiting))
        return evolve(s, plan=evolve(s.plan, entered=tuple(running), **(plan or {})))

    return build


@pytest.fixture
def after() -> Callable[..., State]:
    """The state behind some events: `after(*events, policy=…, groups=("full", …), host=…, page=…, knobs={…}, …)`.

    Any other name is a limit's. Each group has `blocks` device blocks and `host` host blocks; windows are of 3 tokens.
    """

    def build(
        *events: ev.Event,
        policy: str = "vllm-fcfs",
        groups: tuple[str, ...] = ("full",),
        page: int = 2,
        blocks: int = 8,
        host: int = 0,
        knobs: Mapping[str, Any] | None = None,
        **limits: Any,
    ) -> State:
        given = ev.Limits(**{"max_running": 4, "budget": 16, "max_length": 12, "frames": 3, **limits})
        kinds = tuple(ev.Group(k, k, 1 if k == "recurrent" else page, 3 if k == "sliding" else 0) for k in groups)
        pools = [ev.Pool(ev.DEVICE, g, blocks) for g in range(len(groups))]
        pools += [ev.Pool(ev.HOST, g, host) for g in range(len(groups)) if host]
        header = ev.Header("test", "", policy, given, kinds, tuple(pools))
        s = initial(header, evolve(PROFILES[policy].contract, **(knobs or {})))
        for event in events:
            s = apply(s, event)
        return s

    return build
