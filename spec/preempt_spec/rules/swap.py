"""swap/*: KV that goes to the host tier and comes back."""

from __future__ import annotations

from collections.abc import Iterator

from preempt_spec.events import Abort, CopyStart, Evict, Finish, Load, Plan, Release, Swap, Unfence
from preempt_spec.micro import Close, Grant, grant_start
from preempt_spec.policies.blocks import pages_for, shared_pages
from preempt_spec.policies.policy import Memory
from preempt_spec.rules.rule import Kind, on, rule
from preempt_spec.state import needed_pages
from preempt_spec.view import HOLE, Place, View

ROUND_TRIP = rule(
    "swap/round-trip",
    Kind.MUST,
    "Every slot loaded back has a host copy of the needed prefix, in every component, restored into the blocks the "
    "request owns now: its KV crosses the link out and in.",
    since="1.0",
)


@on(ROUND_TRIP, Release, "copies")
def went_out(s: View, e: Release) -> Iterator[str | None]:
    """What a victim keeps as computed, the host holds."""
    if e.kept:
        out = s.hosted(e.request, 0, e.kept)
        yield None if out else f"{e.request} keeps {e.kept} computed tokens whose KV was not copied to the host"


@on(ROUND_TRIP, Swap, "copies blocks")
def comes_back_as_it_was(s: View, e: Swap) -> Iterator[str | None]:
    """A swap-in fills, in the request's new table, the page that each host block holds."""
    if e.direction != "in":
        return
    r = s.request(e.request)
    granted = s.plan.granted.get(e.request)
    upto = granted[0] if granted else r.computed
    for g, group in enumerate(s.groups):
        pairs = {dst: src for src, dst, of in e.blocks if of == g}
        pages = needed_pages(group, upto)
        places = {b: i for i, b in enumerate(r.tables[g]) if b != HOLE}
        foreign = [b for b in pairs if b not in places]
        if foreign:
            yield f"block {foreign[0]} of group {g} is filled for {e.request}, which does not own it"
        elif pairs:
            filled = {places[dst]: src for dst, src in pairs.items()}
            wrong = [i for i in pages if i in filled and not s.host_holds(e.request, g, filled[i], i, upto)]
            yield f"page {wrong[0]} of {e.request} (group {g}) comes back as something else" if wrong else None


@on(ROUND_TRIP, Grant, "copies blocks")
def is_there(s: View, e: Grant) -> Iterator[str | None]:
    """Who resumes behind a load finds all of it."""
    if s.request(e.request).place is Place.LOADING:
        start = grant_start(s, e)
        got = s.covered(e.request, start, start)
        yield None if got == start else f"{e.request} resumes at {start}; what was loaded holds its prefix up to {got}"


@on(ROUND_TRIP, Close, "copies blocks")
def comes_back_whole(s: View, e: Close) -> Iterator[str | None]:
    """Who was swapped finds all of it when its pass begins, in every group."""
    for r in s.plan.restored:
        start = s.plan.granted[r][0]
        got = 0 if r in s.plan.torn else s.covered(r, start, start)
        yield None if got == start else f"{r} goes on at {start}; what came back holds its prefix up to {got}"


FENCE = rule(
    "swap/fence",
    Kind.MUST,
    "A block is reused only after the copies and passes that use it are done, or ordered before the reusing frame; no "
    "pass reads a block whose load is not done; a fence waits for a frame that flies, and falls when that is back.",
    since="1.0",
)


@on(FENCE, Grant, "copies blocks")
@on(FENCE, Plan, "copies blocks")
@on(FENCE, Load, "copies blocks")
def not_in_transit(s: View, e: Grant | Plan | Load) -> Iterator[str | None]:
    """No block that a copy still reads or fills is handed out afresh, and none that it still fills is attended."""
    frame, hit = s.last_frame, 0 if isinstance(e, Plan) else e.hit or 0
    for copy in s.copies.values():
        if copy.before is not None and copy.before <= frame:
            continue
        fills = copy.direction == "in"
        device = {(g, dst if fills else src) for src, dst, g in copy.blocks}
        shared = [shared_pages(group, hit) for group in s.groups]  # a page that is copied out may well be hit
        again = [b for g, new in enumerate(e.blocks) for b in new[shared[g] :] if (g, b) in device]
        attended = [b for g, new in enumerate(e.blocks) for b in new[: shared[g]] if fills and (g, b) in device]
        tables = s.request(e.request).tables
        states = {(g, b) for g, group in enumerate(s.groups) if group.kind == "recurrent" for b in tables[g]}
        if isinstance(e, Grant) and not fills and states & device:
            yield f"the state of {e.request} is overwritten while a copy still reads it"
            continue
        if isinstance(e, Grant) and fills:
            attended += [b for g, table in enumerate(tables) for b in table if (g, b) in device]
        if again:
            yield f"block {again[0]} was given to {e.request} while a copy still uses it"
        else:
            yield f"{e.request} attends block {attended[0]}, whose load is not done" if attended else None


@on(FENCE, CopyStart, "copies blocks")
def not_written_any_more(s: View, e: CopyStart) -> Iterator[str | None]:
    """What is filled by a copy that no frame is ordered behind, no flying frame may still write."""
    if e.direction == "in" and e.before is None:
        for _, dst, g in e.blocks:
            frame = s.loosed(g, dst)
            if s.is_free(g, dst):
                yield f"block {dst} is filled and nobody owns it"
                continue
            yield f"block {dst} is filled while frame {frame}, which writes it, flies" if frame is not None else None


@on(FENCE, Evict, "copies")
def not_read_any_more(s: View, e: Evict) -> Iterator[str | None]:
    """No copy still reads or fills a host block that is given up."""
    for copy in s.copies.values():
        if copy.before is not None and copy.before <= s.last_frame:
            continue
        host = {dst if copy.direction == "out" else src for src, dst, g in copy.blocks if g == e.group}
        used = [b for b in e.blocks if b in host]
        yield f"host block {used[0]} was given up while a copy still uses it" if used else None


@on(FENCE, Release, "blocks")
@on(FENCE, Finish, "blocks")
@on(FENCE, Abort, "blocks")
def waits_for_a_frame_that_flies(s: View, e: Release | Finish | Abort) -> Iterator[str | None]:
    """A fence waits for a frame in flight; behind any other it would be a leak."""
    if e.until is not None:
        yield (
            None
            if e.until in s.frames or e.until == s.last_frame  # of an empty one `fences_drain` speaks
            else f"blocks of {e.request} are fenced until frame {e.until}, which does not fly"
        )


@on(FENCE, Unfence, "blocks")
def its_frame_is_back(s: View, e: Unfence) -> Iterator[str | None]:
    """A fence falls when the frame it waited for was delivered."""
    for b in e.blocks:
        until = s.fence(e.group, b)
        flying = until is not None and any(f <= until for f in s.frames)
        yield f"the fence of block {b} fell before frame {until} was delivered" if flying else None


HOST_POOL = rule(
    "swap/host-pool",
    Kind.MUST,
    "Host blocks conserve: each is free, or in use for one page; a full host pool falls back to recomputation.",
    since="1.0",
)


@on(HOST_POOL, Swap, "copies")
@on(HOST_POOL, CopyStart, "copies")
def into_free_host_blocks(s: View, e: Swap | CopyStart) -> Iterator[str | None]:
    """What goes out goes into host blocks nobody uses; what comes in comes from used ones, all copied by now."""
    filling = {(g, dst) for c in s.copies.values() if c.direction == "out" for _, dst, g in c.blocks}
    seen = set()
    for src, dst, g in e.blocks:
        if e.direction == "out":
            bad = s.host_used(g, dst) or (g, dst) in seen
            seen.add((g, dst))
            yield f"host block {dst} is filled while it is in use" if bad else None
        elif not s.host_used(g, src):
            yield f"host block {src} is loaded and holds nothing"
        else:
            yield f"host block {src} is loaded while it is still filled" if (g, src) in filling else None


@on(HOST_POOL, Evict, "copies")
def was_in_use(s: View, e: Evict) -> Iterator[str | None]:
    """Only what is used can be given up, once."""
    for b in e.blocks:
        twice = e.blocks.count(b) > 1 or not s.host_used(e.group, b)
        yield f"host block {b} was given up and was not in use" if twice else None


@on(HOST_POOL, Close, "host copies")
def host_count_agrees(s: View, e: Close) -> Iterator[str | None]:
    """The engine's count of free host blocks is what its copies leave."""
    for g, told in enumerate(e.step.observed.host_free or ()):
        free = s.host_free(g)
        yield None if told == free else f"the engine counts {told} free host blocks, its copies leave {free}"


@on(HOST_POOL, Close, "copies")
def nobodys_copies_are_gone(s: View, e: Close) -> Iterator[str | None]:
    """Where the host keeps what victims need and nothing else, it is empty when nobody is swapped."""
    limbo = any(s.request(r).place is Place.LIMBO for r in s.live())
    reading = s.plan.restored or len(s.frames) > bool(s.plan.granted)  # the source of a swap-in, until its frame ran
    if s.policy.memory is Memory.SWAP and not (s.swapped or s.copies or limbo or reading):
        used = [g for g in range(len(s.groups)) if s.host_free(g) < s.host_extent(g)]
        yield f"host blocks of group {used[0]} are in use and nobody is swapped: leaked" if used else None


@on(HOST_POOL, Release, "copies release")
def swaps_while_there_is_room(s: View, e: Release) -> Iterator[str | None]:
    """A victim is swapped while the host has room for all of it, and computed again only when it has not."""
    r = s.request(e.request)
    if s.policy.memory is Memory.SWAP and r.computed and not e.kept and s.plan.served:  # a reset drops all KV
        lack = [g for g, group in enumerate(s.groups) if pages_for(group, r.computed) > s.host_free(g)]
        yield None if lack else f"{e.request} lost {r.computed} computed tokens while the host had room for them"
