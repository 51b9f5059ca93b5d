"""What a scheduler does wrong with outputs and at the ends of a request's life: output/*, live/* and edge/*."""

from __future__ import annotations

from preempt_oracle.vectors.editing import Trace, column, deliver, edit, event, step

ABORTS = "fcfs-aborts.vllm-0.33.0"
CACHED = "fcfs-cached.vllm-0.31.0"
SELF = "fcfs-self-preemption.vllm-0.31.0"
TOO_LONG = "fcfs-too-long.vllm-0.33.0"
TURN = "fcfs-victims-in-turn.vllm-0.31.0"
PRIORITY = "priority-resume.vllm-0.33.0"


@edit("frame/once", TURN)
def token_lost(t: Trace) -> None:
    """The token that a frame sampled for a request is not delivered."""
    for field in ("requests", "tokens"):
        deliver(t, 1)[field].pop()


@edit("output/stream", TURN)
def another_token_emitted(t: Trace) -> None:
    """The engine appends another token than the one that was sampled."""
    line = deliver(t, 1)
    line["emitted"] = [line["tokens"][0], [line["tokens"][1][0] + 1]]


@edit("output/stream", CACHED)
def granted_beyond_the_stream(t: Trace) -> None:
    """A request is granted a position whose token is not known yet."""
    line = step(t, 2)
    line["tokens"][column(line, "a")] += 1


@edit("output/stream", CACHED)
def ended_too_soon(t: Trace) -> None:
    """A request ends for its length before it has emitted that many tokens."""
    at = t.index(deliver(t, 0)) + 1
    t.insert(at, {"event": "finish", "request": "a", "reason": "length", "blocks": [[1, 2]]})


@edit("live/progress", SELF)
def never_admitted_again(t: Trace) -> None:
    """A victim stays in the queue of an empty engine, step after step."""
    last = event(t, "finish", "a")
    del t[t.index(last) + 1 :]
    books = {"free": [3], "free_ids": [[1, 2, 3]], "running": [], "waiting": ["b"], "held": [], "refs": []}
    t += [{"event": "step", "frame": n, "start": [], "reason": "nothing", "observed": books} for n in range(2, 8)]


@edit("live/oversize", SELF)
def fits_and_is_refused(t: Trace) -> None:
    """A request that fits is refused."""
    at = t.index(event(t, "arrive", "b")) + 1
    t.insert(at, {"event": "reject", "request": "b", "reason": "too long"})


@edit("live/oversize", TOO_LONG)
def refused_without_a_reason(t: Trace) -> None:
    """A request that cannot fit is refused, and nobody is told why."""
    event(t, "reject", "x")["reason"] = ""


@edit("live/survives", PRIORITY)
def crash_at_the_resume(t: Trace) -> None:
    """The scheduler raises when it should resume a victim."""
    at = next(i for i, line in enumerate(t) if line.get("resumed"))
    where = "vllm/v1/core/sched/scheduler.py:1 in schedule"
    t[at:] = [{"event": "engine_error", "origin": "engine", "kind": "KeyError", "message": "'b'", "where": where}]


@edit("edge/abort", ABORTS)
def abort_leaks(t: Trace) -> None:
    """A block of a cancelled request does not come back."""
    event(t, "abort", "a")["observed"]["free"][0] -= 1


@edit("edge/abort", ABORTS)
def abort_still_queued(t: Trace) -> None:
    """A request that was cancelled while it waited is still in the queue at the end of the next step."""
    step(t, 1)["observed"]["waiting"].append("d")


@edit("edge/abort", ABORTS)
def abort_still_granted(t: Trace) -> None:
    """A request that was cancelled while it ran is granted a token in the next step."""
    line = step(t, 6)
    for field, value in (("requests", "e"), ("tokens", 1), ("start", 2)):
        line[field].append(value)
