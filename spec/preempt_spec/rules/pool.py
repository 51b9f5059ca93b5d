"""pool/*: who owns which block."""

from __future__ import annotations

from collections.abc import Iterator

from preempt_spec.events import Abort, Finish, Load, Plan, Release
from preempt_spec.micro import Close, Grant, grant_start
from preempt_spec.policies.blocks import shared_pages, table_room
from preempt_spec.policies.policy import Release as When
from preempt_spec.rules.rule import Kind, on, rule
from preempt_spec.view import HOLE, Place, View, with_holes

CONSERVE = rule(
    "pool/conserve",
    Kind.MUST,
    "Per tier and group, total less reserved blocks = owned, pinned, fenced and free blocks, and those that a copy "
    "fills for nobody; an evictable block is free.",
)


@on(CONSERVE, Grant, "counts blocks")
@on(CONSERVE, Plan, "counts blocks")
@on(CONSERVE, Load, "counts blocks")
def fresh_blocks_were_free(s: View, e: Grant | Plan | Load) -> Iterator[str | None]:
    """Blocks that join a table behind a hit come out of the free set, each once."""
    skip = 0 if isinstance(e, Plan) else e.hit or 0
    for g, told in enumerate(e.blocks):
        blocks = with_holes(s.groups[g], s.reserved(g), told)
        fresh = [b for b in blocks[shared_pages(s.groups[g], skip) :] if b != HOLE]
        if not fresh:
            continue
        wrong = [b for b in fresh if not s.is_free(g, b)]
        real = [b for b in blocks if b != HOLE]
        if wrong:
            yield f"block {wrong[0]} was given to {e.request} while {s.owner(g, wrong[0])} holds it"
        elif len(set(real)) < len(real):
            yield f"a block joins the table of {e.request} twice: {list(blocks)}"
        else:
            yield None


@on(CONSERVE, Grant, "counts")
@on(CONSERVE, Load, "counts")
def enough_were_free(s: View, e: Grant | Load) -> Iterator[str | None]:
    """A step cannot hand out more blocks than are free."""
    for g, told in enumerate(e.blocks):
        blocks = with_holes(s.groups[g], s.reserved(g), told)
        fresh = sum(b != HOLE for b in blocks[shared_pages(s.groups[g], e.hit or 0) :])
        if fresh > 0:
            free = s.free(g)
            yield None if fresh <= free else f"{fresh} blocks were given to {e.request} with {free} free"


@on(CONSERVE, Close, "free")
def free_count_agrees(s: View, e: Close) -> Iterator[str | None]:
    """The engine's free count is what its tables leave."""
    yield from _free_counts(s, e.step.observed.free)


def _free_counts(s: View, told: tuple[int, ...] | None) -> Iterator[str | None]:
    for g, count in enumerate(told or ()):
        free = s.free(g)
        if count == free:
            yield None
        else:
            verb = "leaked" if count < free else "credited twice"
            yield f"the engine counts {count} free blocks, its tables leave {free}: {abs(count - free)} {verb}"


@on(CONSERVE, Release, "release")
@on(CONSERVE, Finish, "release")
def release_is_whole(s: View, e: Release | Finish) -> Iterator[str | None]:
    """What a request owned goes back, all of it, unless it is fenced."""
    if e.blocks is None or e.until is not None:
        return
    tables = s.request(e.request).tables
    for g, blocks in enumerate(e.blocks):
        missing = {b for b in tables[g] if b != HOLE and not s.arriving(g, b)} - {*blocks}
        yield f"block {min(missing)} of {e.request} was not taken back: leaked" if missing else None


REFCOUNT = rule(
    "pool/refcount",
    Kind.MUST,
    "A block's references = tables that name it + pins; never negative; no block stands twice in the free list.",
)


@on(REFCOUNT, Close, "blocks refs")
def references_agree(s: View, e: Close) -> Iterator[str | None]:
    """Blocks the engine counts as shared are those that several tables name."""
    refs = e.step.observed.refs
    if refs is None:
        return
    for g in range(len(s.pages)):
        told = {r.block: r.count for r in refs if r.group == g}
        seen = s.shared(g)
        # A deferred free may keep its reference until the fence falls.
        wrong = [b for b in {*told, *seen} if told.get(b) != seen.get(b)]
        wrong = [b for b in wrong if s.fence(g, b) is None or told.get(b, 0) < seen.get(b, 0)]
        if not wrong:
            yield None
            continue
        block = min(wrong)
        count, holders = told.get(block, "0 or 1"), seen.get(block, "0 or 1")
        yield f"block {block}: the engine counts {count} references, tables and pins make {holders}"


@on(REFCOUNT, Close, "blocks free-ids")
def free_list_agrees(s: View, e: Close) -> Iterator[str | None]:
    """The free list holds each free block once and no other."""
    for g, ids in enumerate(e.step.observed.free_ids or ()):
        told = set(ids)
        if len(told) < len(ids):
            twice = next(b for b in ids if ids.count(b) > 1)
            yield f"block {twice} stands {ids.count(twice)} times in the free list"
            continue
        wrong = sorted(told ^ s.free_ids(g))
        if not wrong:
            yield None
        elif wrong[0] in told:
            yield f"block {wrong[0]} is in the free list while {s.owner(g, wrong[0])} holds it"
        else:
            yield f"block {wrong[0]} is held by nobody and missing from the free list"


FREE_ONCE = rule("pool/free-once", Kind.MUST, "One release per ownership; a second is never a second credit.")


@on(FREE_ONCE, Release, "release")
@on(FREE_ONCE, Finish, "release")
@on(FREE_ONCE, Abort, "release")
def released_once(s: View, e: Release | Finish | Abort) -> Iterator[str | None]:
    """Only what the request still owns can be taken back, each block once."""
    if e.blocks is None:
        return
    tables = s.request(e.request).tables
    for g, blocks in enumerate(e.blocks):
        if len(set(blocks)) == len(blocks) and set(blocks) <= set(tables[g]):
            yield None
        else:
            wrong = next(b for b in blocks if b not in tables[g] or blocks.count(b) > 1)
            yield f"block {wrong} was taken back from {e.request}, which does not own it (any more)"


@on(FREE_ONCE, Release)
def one_release_each(s: View, e: Release) -> Iterator[str | None]:
    """A release follows its own demotion."""
    r = s.request(e.request)
    lazily = s.policy.release is When.LAZY and r.place is Place.WAITING and r.preempted
    if r.place is Place.LOADING:
        # A load that failed: what nothing fills any more may go back, and the request waits again.
        filled = [b for g, table in enumerate(r.tables) for b in table if s.arriving(g, b)]
        yield f"{e.request} was released while block {filled[0]} is still filled" if filled else None
    elif r.place is Place.LIMBO or lazily:
        yield None if r.computed or any(r.tables) else f"{e.request} was released a second time"
    else:
        yield f"{e.request} was released while {r.place.value}, without being preempted"


ALL_OR_NOTHING = rule(
    "pool/all-or-nothing",
    Kind.MUST,
    "After a failed admission or allocation the requester's computed tokens, budget and table are as before (declared "
    "monotone releases and kept hits excepted).",
)


@on(ALL_OR_NOTHING, Close, "counts")
def no_blocks_without_a_grant(s: View, e: Close) -> Iterator[str | None]:
    """Blocks join a table only together with a grant."""
    if e.stray:
        yield f"{e.stray[0]} was given blocks in a step that granted it nothing"


@on(ALL_OR_NOTHING, Close, "held")
def waiting_holds_nothing(s: View, e: Close) -> Iterator[str | None]:
    """A request left waiting holds no block and no computed token it had not before."""
    if e.step.observed.held is None:
        return
    held = {h.request: h for h in e.step.observed.held}
    for w in s.waiting:
        if w in s.plan.demoted:
            continue  # victim/reset speaks of those
        h, r = held.get(w), s.request(w)
        if s.policy.release is When.LAZY:
            left, has = (sum(map(len, r.tables)), r.computed), (0, 0) if h is None else (h.blocks, h.computed)
            told = (
                f"{w} waits and was left {left[0]} blocks and {left[1]} computed tokens; it holds {has[0]} and {has[1]}"
            )
            yield None if has == left else told
            continue
        if h is not None and (r.computed or any(r.tables)):
            continue  # it had them before: a load that failed
        yield None if h is None else f"{w} waits and holds {h.blocks} blocks and {h.computed} computed tokens"


CAPACITY = rule(
    "pool/capacity",
    Kind.MUST,
    "A grant fits in the blocks its request owns.",
    lacks={
        "alone": "a token beyond the owned blocks has no slot to be written to, so that resume/provenance misses it in "
        "the same step; this rule needs no block ids, and says why",
    },
)


@on(CAPACITY, Grant, "counts")
def grant_fits(s: View, e: Grant) -> Iterator[str | None]:
    """Every token of the grant has a slot in the table."""
    r = s.request(e.request)
    start = grant_start(s, e)
    tables = [(*t, *new) for t, new in zip(r.tables, e.blocks, strict=True)]
    end = start + e.tokens
    room = table_room(s.groups, tables, end)
    yield None if end <= room else f"{e.request} is granted up to token {end} and owns room for {room}"


@on(CAPACITY, Load, "counts")
def load_fits(s: View, e: Load) -> Iterator[str | None]:
    """Every token that is loaded or hit has a slot in the table."""
    tables = [(*t, *new) for t, new in zip(s.request(e.request).tables, e.blocks, strict=True)]
    room = table_room(s.groups, tables, e.computed)
    right = e.computed <= room and e.hit <= e.computed
    yield None if right else f"{e.request} loads up to token {e.computed}, {e.hit} hit, and owns room for {room}"
