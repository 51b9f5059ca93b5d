"""resume/*: what a resumed request attends, and what the worker was told."""

from __future__ import annotations

from collections.abc import Iterator

from preempt_spec.events import Load, Publish, Shed
from preempt_spec.micro import Close, ControlDone, Grant, grant_start
from preempt_spec.policies.admission import hit_limit
from preempt_spec.policies.outputs import confirmed
from preempt_spec.policies.policy import Publish as When
from preempt_spec.rules.rule import Kind, on, rule
from preempt_spec.view import Fate, Place, View, with_holes

MESSAGE = rule(
    "resume/message",
    Kind.MUST,
    "What the worker is told (sent) adds up to what is owned; a resumed request is described in full.",
)


@on(MESSAGE, Close, "counts sent")
def sent_adds_up(s: View, e: Close) -> Iterator[str | None]:
    """For each request whose table changed or was described in this step: sent = owned, in every group."""
    told: dict[tuple[str, int], tuple[tuple[int, ...], bool]] = {
        (x.request, x.group): (with_holes(s.groups[x.group], s.reserved(x.group), x.blocks), x.full)
        for x in e.step.sent
    }
    changed = dict.fromkeys([*(d.request for d in e.step.blocks), *(x.request for x in e.step.sent), *s.plan.admitted])
    for r in changed:
        if r not in s.plan.granted:
            continue
        wrong = None
        for g, table in enumerate(s.request(r).tables):
            blocks, full = told.get((r, g), ((), False))
            if r in s.plan.admitted and not full:
                wrong = f"{r} was admitted and its table (group {g}) was not sent in full"
                break
            have = list(blocks) if full else [*s.request(r).sent[g], *blocks]
            if have != list(table):
                wrong = f"the worker has {have} for {r} (group {g}), the allocator {list(table)}"
                break
        yield wrong


@on(MESSAGE, Close, "sent demote")
def resumed_are_told(s: View, e: Close) -> Iterator[str | None]:
    """Exactly the resumed requests are announced as resumed."""
    back = {r for r in s.plan.admitted if s.request(r).preempted}
    told = {x.request for x in e.step.resumed}
    if back or told:
        wrong = min(back ^ told, default=None)
        if wrong is None:
            yield None
        elif wrong in back:
            yield f"{wrong} resumes and is not announced as resumed"
        else:
            yield f"{wrong} is announced as resumed and was not preempted"


HIT = rule(
    "resume/hit",
    Kind.MUST,
    "Computed tokens at admission are at most the best valid prefix hit, under the declared full-hit convention.",
    lacks={
        "alone": "whoever starts behind its resident prefix attends slots that do not hold it, in that very step: "
        "resume/provenance sees the read, or output/stream that nothing was computed to sample from; this says why",
    },
)


@on(HIT, Grant, "start blocks")
def no_more_than_resident(s: View, e: Grant) -> Iterator[str | None]:
    """An admission starts where resident KV of its own prefix ends, or earlier."""
    if s.request(e.request).place is not Place.WAITING:
        return
    start = grant_start(s, e)
    if e.hit is not None and e.hit != start:
        yield f"{e.request} hit {e.hit} tokens and starts at {start}"
    elif start > (most := hit_limit(s, e.request)):
        yield f"{e.request} starts at {start}; a hit may cover {most} of its {len(s.request(e.request).tokens)} tokens"
    elif start > s.request(e.request).computed and not _there(s, e, start):
        yield f"{e.request} starts at {start}; resident blocks hold {s.best_hit(e.request)} tokens of its prefix"
    else:
        yield None


def _there(s: View, e: Grant, start: int) -> bool:
    """On the device; or in the host tier, as far as the device has nothing: a copy of this step may bring it still."""
    return s.resident(e.request, start, e.blocks) or s.hosted(e.request, s.best_hit(e.request), start)


@on(HIT, Load, "start blocks")
def runs_on_what_is_there(s: View, e: Load) -> Iterator[str | None]:
    """Who runs by a hit alone has computed just that, and it is there."""
    if e.runs:
        most = hit_limit(s, e.request)
        if e.hit != e.computed or not 0 < e.hit <= most:
            yield f"{e.request} runs with {e.computed} tokens, {e.hit} hit; a hit may cover {most}"
        elif not s.limits.caching or not s.resident(e.request, e.hit, e.blocks):
            yield f"{e.request} runs with {e.hit} tokens; resident blocks hold {s.best_hit(e.request)} of its prefix"
        else:
            yield None


@on(HIT, Grant, "start")
def nothing_to_hit(s: View, e: Grant) -> Iterator[str | None]:
    """Without a cache and without a host copy an admission starts where it was."""
    r = s.request(e.request)
    if r.place is Place.WAITING and not s.limits.caching and not any(s.host_extent(g) for g in range(len(s.groups))):
        start = grant_start(s, e)
        yield None if start <= r.computed else f"{e.request} starts at {start} and there is no cache to hit"


PROVENANCE = rule(
    "resume/provenance",
    Kind.MUST,
    "Every slot a pass attends was last written, in dispatch order, for exactly that prefix, salt included.",
)


@on(PROVENANCE, Close, "blocks")
def reads_own_prefix(s: View, e: Close) -> Iterator[str | None]:
    """After the frame's own writes, each granted request finds its prefix in every slot it attends."""
    for r, (start, tokens) in s.plan.granted.items():
        end = start + tokens
        got = s.covered(r, start, end)
        yield None if got == end else f"{r} attends slot {got}, which does not hold its token {got} in its context"


@on(PROVENANCE, Close, "blocks")
def carries_own_state(s: View, e: Close) -> Iterator[str | None]:
    """A recurrent state is read before it is written: it was the request's, after exactly its computed tokens."""
    if any(group.kind == "recurrent" for group in s.groups):
        for r, (start, _) in s.plan.granted.items():
            yield (
                f"the state that the pass of {r} read is not its own after {start} tokens" if r in s.plan.torn else None
            )


@on(PROVENANCE, Shed, "blocks")
def out_of_the_window(s: View, e: Shed) -> Iterator[str | None]:
    """Only what no later token attends leaves a table."""
    r, group = s.request(e.request), s.groups[e.group]
    first = confirmed(s, e.request) + 1 - group.window if group.kind == "sliding" else 0
    early = [b for i, b in enumerate(r.tables[e.group]) if b in e.blocks and (i + 1) * group.page_size > first]
    yield f"block {early[0]} left the table of {e.request}, which attends from {max(first, 0)} on" if early else None


PUBLISH = rule(
    "resume/publish",
    Kind.MUST,
    "No published hash outlives a cancelled write, and a hash's writer is dispatched no later than its reader.",
)


@on(PUBLISH, Publish, "publish blocks")
def publishes_its_own(s: View, e: Publish) -> Iterator[str | None]:
    """A request publishes blocks of its own table."""
    table = s.request(e.request).tables[e.group]
    foreign = [b for b in e.blocks if b not in table]
    yield f"{e.request} published block {foreign[0]}, which is not in its table" if foreign else None


@on(PUBLISH, Publish, "publish blocks")
def not_before_its_commit(s: View, e: Publish) -> Iterator[str | None]:
    """Where pages become findable at commit, the frames that fill them came back."""
    if s.policy.publish is When.COMMIT:
        r = s.request(e.request)
        dues = (f[e.request] for f in s.frames.values() if e.request in f)
        flying = sum(x.tokens for x in dues if x.fate is Fate.LIVE)
        ends = [(i + 1) * s.pages[e.group] for i, b in enumerate(r.tables[e.group]) if b in e.blocks]
        late = max(ends, default=0) > r.computed - flying
        yield f"{e.request} published pages up to {max(ends)} while frames still write them" if late else None


@on(PUBLISH, ControlDone, "publish blocks")
def reset_withdraws_all(s: View, e: ControlDone) -> Iterator[str | None]:
    """After a reset nothing of before is found."""
    if e.kind == "reset":
        yield "blocks are findable after a reset" if s.findable() else None


@on(PUBLISH, Close, "publish blocks")
def published_is_written(s: View, e: Close) -> Iterator[str | None]:
    """What became findable in this step is written by now, whole."""
    for g, b in s.plan.published:
        yield None if s.holds_page(g, b) else f"block {b} is findable by a hash whose KV was never written"
