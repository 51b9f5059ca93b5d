"""What a scheduler does wrong with victims and queues: victim/* and queue/*."""

from __future__ import annotations

from preempt_oracle.vectors.editing import Line, Trace, act, behind, column, edit, give, record, rename, step, without

ABORTS = "fcfs-aborts.vllm-0.33.0"
CACHED = "fcfs-cached.vllm-0.33.0"
SELF = "fcfs-self-preemption.vllm-0.33.0"
SEVERAL = "fcfs-several-victims.vllm-0.33.0"
TURN = "fcfs-victims-in-turn.vllm-0.33.0"
WATERMARK = "fcfs-watermark.vllm-0.33.0"
GRANTED = "priority-granted-victim.vllm-0.33.0"
TIES = "priority-ties.vllm-0.31.0"
WORST = "priority-several-victims.vllm-0.31.0"
PRIORITY_ABORTS = "priority-aborts.vllm-0.33.0"


def _demote(victim: str, beneficiary: str) -> Line:
    return {"act": "demote", "request": victim, "beneficiaries": [beneficiary]}


# -- victim/* ---------------------------------------------------------------------------------------------------------


@edit("victim/trigger", TURN)
def undeclared_cause(t: Trace) -> None:
    """Somebody is preempted because a waiting request starves, which this policy does not know."""
    act(step(t, 1), "demote", "d")["cause"] = "starvation"


@edit("victim/trigger", TURN)
def for_nobody(t: Trace) -> None:
    """Somebody is preempted for the growth of nobody."""
    act(step(t, 1), "demote", "d")["beneficiaries"] = []


@edit("victim/necessity", CACHED)
def needless_preemption(t: Trace) -> None:
    """Somebody is preempted for a requester whose next token fits in its last block."""
    step(t, 1)["acts"].insert(0, _demote("b", "a"))


@edit("victim/minimal", TURN)
def one_victim_too_many(t: Trace) -> None:
    """A second victim is taken for a requester that fits since the first."""
    line = step(t, 1)
    behind(line, act(line, "requeue", "d"), _demote("c", "a"))


@edit("victim/yield", SEVERAL)
def further_victim_behind_a_fence(t: Trace) -> None:
    """The first victim's blocks are fenced until a frame ends, and a second victim is taken instead of waiting."""
    act(step(t, 1), "release", "d")["until"] = 1


@edit("victim/duty", SELF)
def left_to_starve(t: Trace) -> None:
    """A running request that cannot grow is passed over, and nobody is preempted for it."""
    line = step(t, 1)
    line["acts"] = []
    line["observed"] = step(t, 0)["observed"]


@edit("victim/choice", TURN)
def victim_in_the_middle(t: Trace) -> None:
    """FCFS: somebody in the middle of the running queue is preempted instead of the last."""
    rename(step(t, 1), "d", "b")


@edit("victim/choice", GRANTED)
def better_priority_preempted(t: Trace) -> None:
    """PRIORITY: the second worst is preempted instead of the worst, which has a grant already."""
    for kind in ("demote", "release", "requeue"):
        act(step(t, 2), kind, "a")["request"] = "c"


@edit("victim/choice", TIES)
def tie_the_other_way(t: Trace) -> None:
    """PRIORITY: of two equals the later one is preempted."""
    rename(step(t, 3), "a", "b")


@edit("victim/reset", TURN)
def computed_not_reset(t: Trace) -> None:
    """A victim gives its blocks back and keeps its count of computed tokens."""
    act(step(t, 1), "release", "d")["computed"] = 2


@edit("victim/reset", TURN)
def victim_keeps_its_table(t: Trace) -> None:
    """A victim in the queue still has a block in its table."""
    step(t, 1)["observed"]["held"] = [["d", 1, 0]]


@edit("victim/keep-tokens", TURN)
def outputs_forgotten(t: Trace) -> None:
    """A victim is requeued with its prompt alone."""
    act(step(t, 1), "requeue", "d")["known"] = 2


@edit("victim/keep-tokens", TURN)
def resumed_one_token_short(t: Trace) -> None:
    """The worker is told all tokens of a resumed request but the last."""
    record(step(t, 3), "resumed", "c")[1] -= 1


@edit("victim/unplan", GRANTED)
def grant_not_taken_back(t: Trace) -> None:
    """The grant that the victim already had in this step stays."""
    step(t, 2)["acts"].remove(act(step(t, 2), "unplan", "a"))


@edit("victim/unplan", TURN)
def victim_still_in_the_message(t: Trace) -> None:
    """The worker is told a table for a request that was preempted in this very step."""
    step(t, 1)["sent"].append(["d", 0, [4], True])


# -- queue/* ----------------------------------------------------------------------------------------------------------


@edit("queue/one-place", TURN)
def victim_still_running(t: Trace) -> None:
    """A victim enters the waiting queue and never left the running one."""
    step(t, 1)["observed"]["running"].append("d")


@edit("queue/one-place", TURN)
def victim_lost(t: Trace) -> None:
    """A victim is in no queue any more."""
    step(t, 1)["observed"]["waiting"].remove("d")


@edit("queue/front", TURN)
def requeued_at_the_back(t: Trace) -> None:
    """FCFS: a victim is put behind the waiting requests."""
    act(step(t, 1), "requeue", "c")["index"] = 1


@edit("queue/front", GRANTED)
def requeued_behind_a_worse_one(t: Trace) -> None:
    """PRIORITY: a victim is put behind a waiting request of worse priority."""
    act(step(t, 4), "requeue", "c")["index"] = 1


@edit("queue/order", CACHED)
def overtaken(t: Trace) -> None:
    """FCFS: the request that came second is admitted first."""
    for field in ("requests", "tokens", "start"):
        step(t, 0)[field].reverse()


@edit("queue/order", WORST)
def admitted_by_arrival(t: Trace) -> None:
    """PRIORITY: the first to arrive is admitted before a better one."""
    line = step(t, 0)
    for field in ("requests", "tokens", "start"):
        line[field][:2] = line[field][1::-1]


@edit("queue/order", CACHED)
def running_reversed(t: Trace) -> None:
    """The running queue is not in the order of admission."""
    step(t, 2)["observed"]["running"].reverse()


@edit("queue/visit-once", TURN)
def passed_over(t: Trace) -> None:
    """A running request that fits is granted nothing."""
    without(step(t, 2), "b")


@edit("queue/visit-once", TURN)
def granted_twice(t: Trace) -> None:
    """A running request is granted the same token twice in one step."""
    line = step(t, 2)
    at = column(line, "a")
    for field in ("requests", "tokens", "start"):
        line[field].append(line[field][at])


@edit("queue/admission", PRIORITY_ABORTS)
def admitted_after_a_preemption(t: Trace) -> None:
    """The head of the queue is admitted in a step that preempted somebody else."""
    give(step(t, 8), "a", 0, 2, [2], known=6)


@edit("queue/admission", WATERMARK)
def admitted_below_the_watermark(t: Trace) -> None:
    """A request is admitted into the blocks that the watermark keeps free."""
    give(step(t, 0), "c", 0, 3, [3, 4])


@edit("queue/admission", ABORTS)
def one_slot_too_many(t: Trace) -> None:
    """A fourth request is admitted where three may run."""
    give(step(t, 0), "d", 0, 1, [4])


@edit("queue/admission", SEVERAL)
def over_the_budget(t: Trace) -> None:
    """The grants of a step add up to one token more than its budget."""
    line = step(t, 0)
    line["tokens"][column(line, "a")] += 1
