"""The reference with a host cache: pages go out as they fill, and come back asynchronously at a resume.

Nothing is copied at a preemption. A full page is stored as soon as its frame leaves; until its copy is done, both ends
are in use. A request whose prefix the host knows longer than the device does is admitted in two parts: it gets blocks
and waits while copies fill them, counted as computed already; then it is granted the rest. A copy may fail, and copies
end in any order: what did not come is computed. Admission must wait for room for the whole sequence (`whole_fit`):
else those who hold memory that was loaded and those who grow could lock each other out.

Source of the behaviour: vLLM 0.33.0 OffloadingConnector (vllm/distributed/kv_transfer/kv_connector/v1/offloading).
"""

from __future__ import annotations

from attrs import frozen

from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.memory import Prefix, is_page
from preempt_spec.policies.admission import hit_limit
from preempt_spec.policies.blocks import blocks_for
from preempt_spec.policies.policy import Memory, Policy
from preempt_spec.policies.queues import requeue_at
from preempt_spec.reference import Reference
from preempt_spec.view import Place


@frozen
class Moving:
    """A copy in flight: device blocks it pins, host blocks it uses; of a load, for whom."""

    device: tuple[int, ...]
    host: tuple[int, ...]
    loads: str = ""


class Offloading(Reference):
    """`Reference` for one full group, prefix caching and a host pool. After each step ask for `copies`."""

    def prepare(self) -> None:
        """No copy flies, nobody loads."""
        self.moving: dict[int, Moving] = {}
        self.started: list[ev.CopyStart] = []
        self.copied = 0
        self.loaders: dict[str, int] = {}  # who loads -> its copy
        self.good: list[str] = []  # who has loaded
        self.failed: list[str] = []  # whose load failed

    # -- what the world asks -----------------------------------------------------------------------------------------

    def copies(self) -> tuple[ev.Event, ...]:
        """The copies that begin with the frame that just left."""
        out, self.started = tuple(self.started), []
        for copy in out:
            self._do(copy)
        return out

    def copy_done(self, copy: int, ok: bool) -> ev.CopyDone:
        """A copy ended. Its pins fall with the next step; what it loaded counts, or does not."""
        moved = self.moving.pop(copy)
        done = ev.CopyDone(copy, ok)
        self._do(done)
        if moved.device:
            self.owing.append(ev.Unpin(moved.device))
        if not moved.loads and not ok:
            self.owing.append(ev.Evict(moved.host))
        if self.loaders.get(moved.loads) == copy:
            del self.loaders[moved.loads]
            (self.good if ok else self.failed).append(moved.loads)
        return done

    def abort(self, request: str) -> ev.Abort:
        """Who loads and is cancelled gives its blocks up; what a copy fills is free when it is done."""
        self.loaders.pop(request, None)
        self.good = [r for r in self.good if r != request]
        self.failed = [r for r in self.failed if r != request]
        return super().abort(request)

    # -- storing -----------------------------------------------------------------------------------------------------

    def dispatch(self) -> ev.Step:
        """Full pages of this frame that the host does not know are pinned, and copied behind it."""
        known = {x.slots[-1] for x in self.state.host[0].blocks.values()}
        page, after = self.state.pages[0], len(self.state.plan.granted)
        stores: list[tuple[int, int, int]] = []
        for r, (start, tokens) in self.state.plan.granted.items():
            q = self.state.request(r)
            for i in range(min(start + tokens, len(q.tokens)) // page):
                prefix: Prefix = (q.salt, q.tokens[: (i + 1) * page])
                dst = self.pick_host(len(stores))
                if prefix not in known and dst is not None:
                    known.add(prefix)
                    stores.append((q.tables[0][i], dst, 0))
        if stores:
            device, host = tuple(src for src, _, _ in stores), tuple(dst for _, dst, _ in stores)
            self.pin(device, after)
            self._start("out", tuple(stores), Moving(device, host))
        return super().dispatch()

    def pick_host(self, taken: int) -> int | None:
        """A free host block, beside those `taken` in this step; None if the pool is full: then it is not stored."""
        unused = [b for b in range(self.state.host_extent(0)) if not self.state.host_used(0, b)]
        return unused[taken] if taken < len(unused) else None

    def pin(self, blocks: tuple[int, ...], after: int) -> None:
        """What a copy uses is nobody else's until it is done, even if its owner gives it up."""
        self._act(ev.Pin(blocks, after))

    def _start(self, direction: str, blocks: tuple[tuple[int, int, int], ...], moving: Moving) -> None:
        self.started.append(ev.CopyStart(self.copied, direction, blocks))
        self.moving[self.copied] = moving
        self.copied += 1

    # -- loading -----------------------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Who has loaded goes on first; then, from the head of the queue, who can load begins to, others start."""
        for r in self.failed:
            self.give_up(r)
        self.failed = []
        for r in [*self.good]:
            computed = self.state.request(r).computed
            tokens = min(len(self.state.request(r).tokens) - computed, self.state.limits.budget - self.state.plan.spent)
            if tokens < 1 or not self.may_admit(r, tokens, 0, ((),)):
                break
            self.good.remove(r)
            self.go_on(r, computed, tokens)
        while (head := self.next_waiting()) is not None and self.load(head):
            pass
        super().admit()

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """The gates, and room for all whom copies fill blocks for: they hold memory, and nobody runs for them yet."""
        s, page = self.state, self.state.pages[0]
        loading = [r for r in s.requests.values() if r.place is Place.LOADING and r.id != request]
        owed = sum(max(blocks_for(len(r.tokens), page) - len(r.tables[0]), 0) for r in loading)
        idle = sum(s.is_free(0, b) for b in blocks[0])
        q = s.request(request)
        lack = blocks_for(len(q.tokens), page) - len(q.tables[0]) - len(blocks[0])
        roomy = not loading or lack + idle + owed <= self.free(0)
        return roomy and super().may_admit(request, tokens, hit, blocks)

    def give_up(self, request: str) -> None:
        """Nothing can be told of what a failed load brought: the request waits again, without it."""
        after = len(self.state.plan.granted)
        self._act(ev.Release(request, after, self.owned(request), None, 0, 0))
        known, at = len(self.state.request(request).tokens), requeue_at(self.state, request)
        self._act(ev.Requeue(request, after, "waiting", at, known))

    def go_on(self, request: str, computed: int, tokens: int) -> None:
        """A loaded request runs, from what is there."""
        r = self.state.request(request)
        lack = blocks_for(computed + tokens, self.state.pages[0]) - len(r.tables[0])
        fresh = self.pick_blocks(0, max(lack, 0), ())
        self.withdraw(0, fresh)
        if fresh:
            self.deltas.append(ev.Delta(request, 0, fresh))
        self._do(mi.Grant(request, tokens, computed, (fresh,), None))

    def load(self, request: str) -> bool:
        """Begin to load what the host knows beyond the device's prefix, if every gate is open."""
        s, r, page = self.state, self.state.request(request), self.state.pages[0]
        if s.paused or r.computed:
            return False
        blocks, hit = self.find_prefix(request)
        filling = {b for m in self.moving.values() if not m.loads for b in m.host}
        stored = {b: x for b, x in s.host[0].blocks.items() if b not in filling}
        at = {x.slots[-1]: b for b, x in stored.items() if is_page(x, x.slots[-1])}
        end, sources = hit, []
        while end + page <= hit_limit(s, request) and (src := at.get((r.salt, r.tokens[: end + page]))) is not None:
            sources.append(src)
            end += page
        if not sources or not self.may_admit(request, 1, end, (blocks[0],)):
            return False
        fresh = self.pick_blocks(0, len(sources), blocks[0])
        if len(fresh) < len(sources):
            return False
        self.withdraw(0, fresh)
        after = len(s.plan.granted)
        self._act(ev.Load(request, end, ((*blocks[0], *fresh),), after, hit))
        self.loaders[request] = self.copied
        pairs = tuple((src, dst, 0) for src, dst in zip(sources, fresh, strict=True))
        self._start("in", pairs, Moving((), tuple(sources), request))
        return True


def reference(header: ev.Header, policy: Policy) -> Reference:
    """The reference for a header: with a host cache, if it has a host pool that victims are not swapped to."""
    cached = any(p.tier == ev.HOST and p.total for p in header.pools) and policy.memory is Memory.RECOMPUTE
    return (Offloading if cached else Reference)(header, policy)
