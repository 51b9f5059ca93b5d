"""What a scheduler does wrong with frames in flight, the host tier and its statistics: frame/*, swap/* and edge/stats.

The bases are traces of the reference scheduler.
"""

from __future__ import annotations

from copy import deepcopy

from preempt_oracle.vectors.editing import Line, Trace, act, deliver, edit, step
from preempt_spec import SPEC_VERSION

FRAMES = f"reference-frames-{SPEC_VERSION}"
RESET = f"reference-reset-{SPEC_VERSION}"
SWAP = f"reference-swap-{SPEC_VERSION}"
CACHE = f"reference-host-cache-{SPEC_VERSION}"


def _done(trace: Trace, copy: int) -> Line:
    return next(e for e in trace if e["event"] == "copy_done" and e["copy"] == copy)


def _late(trace: Trace, copy: int, frame: int) -> None:
    """A copy ends behind that step, and not before it."""
    done = _done(trace, copy)
    trace.remove(done)
    trace.insert(trace.index(step(trace, frame)) + 1, done)


# -- frame/* ----------------------------------------------------------------------------------------------------------


@edit("frame/once", FRAMES)
def stale_output_lost(t: Trace) -> None:
    """The output that flew for a request when it was preempted comes back to nobody."""
    line = deliver(t, 0)
    for field in ("requests", "tokens", "emitted"):
        line[field].pop()


@edit("frame/once", FRAMES)
def frame_delivered_twice(t: Trace) -> None:
    """A frame is delivered a second time."""
    line = deliver(t, 0)
    t.insert(t.index(line) + 1, deepcopy(line))


@edit("frame/once", RESET)
def dropped_output_appended(t: Trace) -> None:
    """An output of before a reset is appended, though its request computes that position anew."""
    line = next(e for e in t if "dropped" in (e.get("disposition") or ()))
    del line["disposition"]
    line["emitted"] = line["tokens"]


# -- swap/* -----------------------------------------------------------------------------------------------------------


@edit("swap/round-trip", SWAP)
def nothing_copied_out(t: Trace) -> None:
    """A victim's tokens count as swapped, and nothing was copied."""
    step(t, 2)["acts"].remove(act(step(t, 2), "swap", "c"))


@edit("swap/round-trip", SWAP)
def pages_come_back_exchanged(t: Trace) -> None:
    """The two pages of a victim are copied back in the other order."""
    act(step(t, 5), "swap", "c")["blocks"] = [[1, 3, 0], [0, 5, 0]]


@edit("swap/round-trip", SWAP)
def back_into_its_old_blocks(t: Trace) -> None:
    """A victim's pages are copied to where they were before, and not to where they are needed now."""
    act(step(t, 5), "swap", "c")["blocks"] = [[0, 4, 0], [1, 5, 0]]


@edit("swap/fence", CACHE)
def given_while_a_copy_reads_it(t: Trace) -> None:
    """The block that a store still reads is given to somebody else."""
    _late(t, 4, 9)


@edit("swap/fence", CACHE)
def given_up_while_it_is_filled(t: Trace) -> None:
    """Host blocks are given up while a copy still fills them."""
    _late(t, 6, 13)


@edit("swap/host-pool", SWAP)
def host_blocks_given_up_twice(t: Trace) -> None:
    """The host blocks of who came back are given up a second time."""
    step(t, 5)["acts"].append(deepcopy(step(t, 5)["acts"][-1]))


@edit("swap/host-pool", SWAP)
def host_miscounted(t: Trace) -> None:
    """The host blocks of who came back are counted as in use for one step more."""
    step(t, 5)["observed"]["host_free"] = [1]


@edit("swap/host-pool", SWAP)
def recomputed_though_there_is_room(t: Trace) -> None:
    """A victim that the host has room for loses all it computed."""
    line = step(t, 2)
    line["acts"].remove(act(line, "swap", "c"))
    released, queued = act(line, "release", "c"), act(line, "requeue", "c")
    released["computed"] = 0
    del released["kept"], queued["queue"]


# -- edge/stats -------------------------------------------------------------------------------------------------------


@edit("edge/stats", FRAMES)
def preemption_not_counted(t: Trace) -> None:
    """The counter of preemptions stays where it was."""
    step(t, 4)["observed"]["preemptions"] = 1


@edit("edge/stats", CACHE)
def cached_beyond_what_is_known(t: Trace) -> None:
    """A resume counts more cached tokens than the request has."""
    step(t, 11)["observed"]["cached"] = [["c", 6, 0]]
