"""Whatever an engine says otherwise than predicted is reported, at that event and in that field."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import Session
from preempt_oracle.lockstep.compare import WORDS
from preempt_oracle.lockstep.modes import POLICIES, select
from preempt_oracle.lockstep.run import Budget, Lockstep, lockstep
from preempt_oracle.lockstep.stand_in import StandIn

Reply = dict[str, Any]
#: Changes a reply; False if it has nothing to change.
Edit = Callable[[Reply], bool]


def acts(reply: Reply, kind: str) -> list[Reply]:
    return [a for a in reply.get("acts", []) if a["act"] == kind]


def grants_swapped(r: Reply) -> bool:
    if len(r.get("requests", [])) < 2:
        return False
    for name in ("requests", "tokens", "start"):
        r[name][:2] = r[name][1::-1]
    return True


def entry(field: str, change: Callable[[list[Any], int], None], at: int = 0) -> Edit:
    """Change one number of an array."""

    def edit(r: Reply) -> bool:
        if not r.get(field):
            return False
        change(r[field], at)
        return True

    return edit


def plus(items: list[Any], at: int) -> None:
    items[at] += 1


def act(kind: str, field: str, change: Callable[[Any], Any]) -> Edit:
    def edit(r: Reply) -> bool:
        found = [a for a in acts(r, kind) if field in a or field in ("cause", "computed")]  # defaults are left out
        if not found:
            return False
        found[0][field] = change(found[0].get(field, 0))
        return True

    return edit


def without_act(kind: str) -> Edit:
    def edit(r: Reply) -> bool:
        found = acts(r, kind)
        r["acts"] = [a for a in r.get("acts", []) if a not in found[:1]]
        return bool(found)

    return edit


def acts_swapped(r: Reply) -> bool:
    """A victim is queued before its blocks are released: each act as it was, the order another."""
    all_acts = r.get("acts", [])
    for i, a in enumerate(all_acts[:-1]):
        if a["act"] == "release" and all_acts[i + 1]["act"] == "requeue":
            all_acts[i : i + 2] = all_acts[i : i + 2][::-1]
            return True
    return False


def other_block(blocks: list[Any]) -> list[Any]:
    """The pool has at least two blocks."""
    return [3 - blocks[0] if blocks[0] in (1, 2) else 1, *blocks[1:]]


def record(field: str, at: int, change: Callable[[Any], Any]) -> Edit:
    """Change one part of the first record of an array of records."""

    def edit(r: Reply) -> bool:
        found = [x for x in r.get(field, []) if x[at]]
        if not found:
            return False
        found[0][at] = change(found[0][at])
        return True

    return edit


def dropped(field: str) -> Edit:
    def edit(r: Reply) -> bool:
        return bool(r.get(field)) and r[field].pop() is not None

    return edit


def books(field: str, change: Callable[[Any], Any]) -> Edit:
    def edit(r: Reply) -> bool:
        seen = r["observed"]
        before = seen.get(field)
        if before is None:
            return False
        seen[field] = change(json.loads(json.dumps(before)))
        return bool(seen[field] != before)

    return edit


def emitted(r: Reply) -> bool:
    """Told as what was sampled, if absent."""
    r["emitted"] = r.get("emitted") or r["tokens"]
    if not r["emitted"] or not r["emitted"][0]:
        return False
    r["emitted"][0][0] += 1
    return True


def undelivered(r: Reply) -> bool:
    if not r.get("requests"):
        return False
    r["disposition"] = ["dropped"] * len(r["requests"])
    return True


def no_finish(r: Reply) -> bool:
    return bool(r.get("finished")) and r["finished"].pop() is not None


def stopped(r: Reply) -> bool:
    for f in r.get("finished", []):
        f["reason"] = "stop"
    return bool(r.get("finished"))


def control_kind(r: Reply) -> bool:
    r["kind"] = "resume" if r["kind"] == "pause" else "pause"
    return True


def crash(r: Reply) -> bool:
    kept = {"id": r["id"], "event": "engine_error", "origin": "engine", "kind": "AssertionError", "message": "boom"}
    r.clear()
    r.update(kept)
    return True


#: Field -> (command, edit, where it happens).
EDITS: dict[str, tuple[str, Edit, str]] = {
    "event": ("step", crash, ""),
    "frame": ("step", lambda r: bool(r.update(frame=r["frame"] + 1)) or True, ""),
    "requests": ("step", grants_swapped, ""),
    "tokens": ("step", entry("tokens", plus), ""),
    "start": ("step", entry("start", plus), ""),
    "drafts": ("step", record("drafts", 1, lambda n: n - 1), "drafts"),
    "victims": ("step", act("demote", "cause", lambda _: "starvation"), ""),
    "triggers": ("step", act("demote", "need", lambda n: n + 1), ""),
    "released": ("step", act("release", "computed", lambda n: n + 1), ""),
    "requeued": ("step", act("requeue", "known", lambda n: n + 1), ""),
    "undone": ("step", act("unplan", "tokens", lambda n: n + 1), "priority"),
    "labels": ("step", act("publish", "blocks", other_block), "caching"),
    "skipped": ("step", without_act("skip"), "frames=4"),
    "order": ("step", acts_swapped, ""),
    "hits": ("step", record("hits", 1, lambda n: n + 1), "caching"),
    "resumed": ("step", dropped("resumed"), ""),
    "blocks": ("step", record("blocks", 2, other_block), ""),
    "sent": ("step", record("sent", 2, other_block), ""),
    "emitted": ("deliver", emitted, ""),
    "disposition": ("deliver", undelivered, ""),
    "proposed": ("deliver", entry("proposed", plus), "sync,drafts"),
    "reason": ("deliver", stopped, ""),
    "request": ("abort", lambda r: bool(r.update(request="zz")) or True, ""),
    "arrives": ("add", lambda r: bool(r.update(max_tokens=r["max_tokens"] + 1)) or True, ""),
    "kind": ("control", control_kind, ""),
    "running": ("step", books("running", lambda x: x[::-1]), ""),
    "waiting": ("step", books("waiting", lambda x: x[::-1]), ""),
    "free": ("step", books("free", lambda x: [x[0] + 1]), ""),
    "free_ids": ("step", books("free_ids", lambda x: [x[0][::-1]]), ""),
    "held": ("step", books("held", lambda x: [*x, ["nobody", 1, 0]]), ""),
    "refs": ("step", books("refs", lambda x: [*x, [0, 1, 3]]), ""),
    "preemptions": ("step", books("preemptions", lambda n: n + 1), ""),
    "cached": ("step", books("cached", lambda x: [[x[0][0], x[0][1] + 1], *x[1:]] if x else x), ""),
}
#: More ways to be wrong, and the field that shows it.
MORE: dict[str, tuple[str, str, Edit, str]] = {
    "a finish is missing": ("event", "deliver", no_finish, ""),
    "an abort frees another block": ("blocks", "abort", lambda r: bool(r["blocks"][0]) and bad_abort(r), ""),
    "books at an abort": ("free_ids", "abort", books("free_ids", lambda x: [x[0][::-1]]), ""),
    "a publication at a delivery": ("labels", "deliver", without_act("publish"), "async,caching"),
    "a victim of a reset": ("victims", "control", act("demote", "cause", lambda _: "pause"), ""),
    "absent books": ("free_ids", "step", lambda r: r["observed"].pop("free_ids", None) is not None, ""),
    "an absent start": ("start", "step", lambda r: bool(r.get("requests")) and r.pop("start", None) is not None, ""),
}


def bad_abort(r: Reply) -> bool:
    r["blocks"] = [other_block(r["blocks"][0])]
    return True


class Edited(InProcess):
    """Changes one reply, the third that can be changed, and remembers how many steps there were by then."""

    def __init__(self, do: str, edit: Edit) -> None:
        super().__init__(StandIn(), "the stand-in", "preempt_spec")
        self.do, self.edit, self.left = do, edit, 3
        self.steps = self.step = 0

    def exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        reply = super().exchange(command)
        if command["do"] == "start":
            self.steps = 0
        self.steps += command["do"] == "step"
        changed: Reply = json.loads(json.dumps(reply))
        if command["do"] == self.do and self.left and self.edit(changed):
            self.left -= 1
            if not self.left:
                self.step = self.steps
                return changed
        return reply


def run(do: str, edit: Edit, mode: str) -> tuple[Lockstep, Edited]:
    it = Edited(do, edit)
    policies = ("vllm-priority",) if mode == "priority" else POLICIES

    def enough(_: int, __: float, divergences: int) -> None:
        if divergences or not it.left:
            raise KeyboardInterrupt

    modes = select(policies, "" if mode == "priority" else mode)
    return lockstep(lambda: Session(it), modes, 0, Budget(600), enough, tries=0), it


@pytest.mark.long
def test_the_stand_in_is_predicted():
    out = lockstep(
        lambda: Session(InProcess(StandIn(), "the stand-in", "preempt_spec")), select(POLICIES, ""), 7, Budget(40)
    )
    assert (out.broken, out.divergences, out.refusals) == ("", 0, {})
    assert out.workloads == 40
    assert out.steps > out.granting > 1000


@pytest.mark.parametrize("field", WORDS)
def test_a_change_is_reported_in_its_field(field: str):
    do, edit, mode = EDITS[field]
    out, it = run(do, edit, mode)
    assert not it.left, "nothing was changed: the workloads never came to it"
    assert not out.broken
    assert out.first is not None, "not seen"
    assert field in out.first.fields
    assert out.first.step == it.step
    assert len(out.first.fields) <= (2 if field in ("victims", "skipped", "labels") else 1), out.first.fields


@pytest.mark.parametrize("name", MORE)
def test_so_is_whatever_else_is_wrong(name: str):
    field, do, edit, mode = MORE[name]
    out, it = run(do, edit, mode)
    assert not it.left
    assert not out.broken
    assert out.first is not None
    assert field in out.first.fields
    assert out.first.step in (it.step, it.step + 1)  # a missing finish shows at the next event
