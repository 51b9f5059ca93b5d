"""What a scheduler does wrong with blocks: pool/* and resume/*."""

from __future__ import annotations

from copy import deepcopy

from preempt_oracle.vectors.editing import Trace, act, behind, column, edit, record, step

CACHED = "fcfs-cached.vllm-0.33.0"
SALT = "fcfs-salt.vllm-0.33.0"
SEVERAL = "fcfs-several-victims.vllm-0.33.0"
SHARED = "fcfs-shared-prefix.vllm-0.33.0"
TURN = "fcfs-victims-in-turn.vllm-0.31.0"
WATERMARK = "fcfs-watermark.vllm-0.31.0"


# -- pool/* -----------------------------------------------------------------------------------------------------------


@edit("pool/conserve", CACHED)
def block_leaked(t: Trace) -> None:
    """One block less is free than the tables leave."""
    step(t, 1)["observed"]["free"][0] -= 1


@edit("pool/conserve", CACHED)
def block_credited_twice(t: Trace) -> None:
    """One block more is free than the tables leave."""
    step(t, 2)["observed"]["free"][0] += 1


@edit("pool/conserve", TURN)
def block_given_twice(t: Trace) -> None:
    """The block that the first requester was just given is given to the second as well."""
    for field in ("blocks", "sent"):
        record(step(t, 1), field, "b")[2] = [4]


@edit("pool/conserve", CACHED)
def release_forgets_a_block(t: Trace) -> None:
    """A victim's last block is not taken back."""
    act(step(t, 4), "release", "b")["blocks"][0].pop()


@edit("pool/refcount", SALT)
def reference_lost(t: Trace) -> None:
    """A block that two requests hold is counted as held by one."""
    step(t, 6)["observed"]["refs"].pop()


@edit("pool/refcount", SHARED)
def reference_left_behind(t: Trace) -> None:
    """A victim's references to shared blocks stay counted."""
    step(t, 3)["observed"]["refs"] = [[0, 1, 3], [0, 2, 3]]


@edit("pool/refcount", CACHED)
def twice_in_the_free_list(t: Trace) -> None:
    """A released block stands in the free list twice."""
    step(t, 4)["observed"]["free_ids"] = [[4, 3, 3]]


@edit("pool/free-once", SEVERAL)
def released_twice(t: Trace) -> None:
    """A victim's blocks are taken back a second time."""
    one = act(step(t, 1), "release", "d")
    behind(step(t, 1), one, deepcopy(one))


@edit("pool/free-once", TURN)
def release_of_foreign_block(t: Trace) -> None:
    """A block of somebody who runs is taken back with the victim's."""
    act(step(t, 1), "release", "d")["blocks"] = [[4, 1]]


@edit("pool/all-or-nothing", WATERMARK)
def failed_admission_keeps_blocks(t: Trace) -> None:
    """A request whose admission failed keeps the blocks that were tried on it."""
    step(t, 0)["observed"]["held"] = [["c", 2, 0]]


@edit("pool/all-or-nothing", WATERMARK)
def blocks_without_a_grant(t: Trace) -> None:
    """A request that stays in the queue is given blocks."""
    step(t, 0)["blocks"].append(["c", 0, [3, 4]])


@edit("pool/capacity", CACHED)
def table_too_short(t: Trace) -> None:
    """A request grows over a page boundary and is given no block for it."""
    for field in ("blocks", "sent"):
        del step(t, 2)[field][0]


# -- resume/* ---------------------------------------------------------------------------------------------------------


@edit("resume/message", CACHED)
def stale_table_sent(t: Trace) -> None:
    """At its resume the worker is told the table that the request had before it was preempted."""
    record(step(t, 6), "sent", "b")[2] = [3, 4, 6]


@edit("resume/message", CACHED)
def resume_sent_as_growth(t: Trace) -> None:
    """The worker is told to append a resumed request's blocks to a table it should have dropped."""
    record(step(t, 6), "sent", "b")[3] = False


@edit("resume/message", CACHED)
def resume_not_announced(t: Trace) -> None:
    """The worker is not told that a request resumes."""
    step(t, 6)["resumed"] = []


@edit("resume/message", CACHED)
def growth_not_sent(t: Trace) -> None:
    """The worker is not told of a block by which a table grew."""
    del step(t, 2)["sent"][0]


@edit("resume/hit", CACHED)
def hit_beyond_written(t: Trace) -> None:
    """A resumed request counts a page as hit that was given away and overwritten meanwhile."""
    line = step(t, 6)
    line["start"], line["tokens"] = [6], [1]
    record(line, "hits", "b")[1] = 6


@edit("resume/hit", SALT)
def hit_across_salts(t: Trace) -> None:
    """A request hits the page of an equal prompt under another salt."""
    line = step(t, 1)
    at = column(line, "b")
    line["start"][at], line["tokens"][at] = 2, 1
    record(line, "hits", "b")[1] = 2
    for field in ("blocks", "sent"):
        record(line, field, "b")[2] = [1, 4]


@edit("resume/hit", CACHED)
def start_behind_the_hit(t: Trace) -> None:
    """The worker is told to start behind the end of what the prefix cache covered."""
    record(step(t, 6), "hits", "b")[1] = 2


@edit("resume/provenance", CACHED)
def pages_in_wrong_order(t: Trace) -> None:
    """A resumed request finds both of its pages, in the other order."""
    for field in ("blocks", "sent"):
        record(step(t, 6), field, "b")[2] = [4, 3, 6, 5]


@edit("resume/provenance", SALT)
def page_of_another_salt(t: Trace) -> None:
    """A request reads the page of an equal prompt under another salt instead of its own."""
    line = step(t, 1)
    for field in ("blocks", "sent"):
        record(line, field, "c")[2] = [1, 5]
    line["observed"]["refs"] = [[0, 1, 2]]


@edit("resume/publish", CACHED)
def foreign_block_published(t: Trace) -> None:
    """A block is published under the prefix of a request that does not own it."""
    act(step(t, 3), "publish", "a")["blocks"] = [6]


@edit("resume/publish", CACHED)
def half_a_page_published(t: Trace) -> None:
    """A page becomes findable before its last token is computed."""
    step(t, 2)["acts"] = [{"act": "publish", "request": "a", "blocks": [5], "after": 1}]
