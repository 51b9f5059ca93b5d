"""The reference scheduler as vLLM 0.31.0 and 0.33.0 are built: what the specification leaves open, decided as they do.

The pure reference stays the specification to be read; this refinement adds what a rule cannot ask of an engine, and a
prediction must know: which free block is next, which of several findable blocks is hit, when a page becomes findable,
how far a threshold cuts, who is passed over although it could be served. It decides *as built*, faults included: pages
are published when slots are allocated, and stay published if the same step takes the grant back (F1 of
docs/findings.md). So it is no scheduler to imitate, and its agreement with vLLM says nothing about right and wrong:
that the rules judge.

Sources, both versions: v1/core/sched/scheduler.py (`schedule`, `_preempt_request`, `_update_after_schedule`,
`update_from_output`), v1/core/sched/async_scheduler.py, v1/core/kv_cache_manager.py (`allocate_slots`),
v1/core/single_type_kv_cache_manager.py (`cache_blocks`, `free`).
"""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from preempt_oracle.lockstep.blocks import Blocks
from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.policies.blocks import blocks_for
from preempt_spec.policies.policy import AfterSelf, Policy
from preempt_spec.reference import Reference
from preempt_spec.view import Fate, Place

#: Versions whose scheduler this follows.
VERSIONS: Final = ("0.31.0", "0.33.0")
#: Why a running request is passed over in a pipeline.
CADENCE: Final = "cadence: its last decode is still in the pipeline"


@frozen
class Build:
    """How the engine was started, beyond its limits."""

    version: str
    drafts: int = 0  # tokens that the drafter may propose for a grant
    ahead: bool = False  # AsyncScheduler: scheduled again before the last output is back
    stages: int = 1  # pipeline stages, which space the decodes of a request when scheduling ahead
    second_runner: bool = False


class Predicted(Reference):
    """One vLLM scheduler, in the same place as the real one if both heard the same. One full-attention group."""

    def __init__(self, header: ev.Header, policy: Policy, build: Build) -> None:
        """`header`: of the engine; `policy`: as this version has it."""
        self.build = build
        super().__init__(header, policy)

    def prepare(self) -> None:
        """What vLLM keeps and the specification does not ask for."""
        (memory,) = self.state.memory
        self.page = memory.page
        self.pool = Blocks(memory.reserved, memory.total)
        self.pages: dict[str, int] = {}  # running requests: pages registered or hit (`num_cached_block`)
        self.chunk: dict[str, bool] = {}  # `is_prefill_chunk`: the last grant ended before the last known token
        self.eligible: dict[str, int] = {}  # `next_decode_eligible_step`
        self.granted_at: dict[str, int] = {}  # the step of the last grant
        self.steps = 0
        self.asked = 0  # tokens the request being served asks for: fixed before room is made for it
        self.returned: list[str] = []  # who gets live outputs from the frame that is delivered

    # -- what the world asks -----------------------------------------------------------------------------------------

    def abort(self, request: str) -> ev.Abort:
        """As the reference, and the blocks go back into the free queue."""
        (table,) = self.owned(request)
        told = super().abort(request)
        self._over(request, table)
        return evolve(told, observed=self._books())

    def finish(self, request: str) -> ev.Finish:
        """As the reference, and the blocks go back into the free queue."""
        (table,) = self.owned(request)
        told = super().finish(request)
        self._over(request, table)
        return told

    def control(self, kind: str) -> ev.Control:
        """As the reference; a reset leaves nothing findable."""
        if kind != "reset":
            return super().control(kind)
        self.acts = []
        for r in reversed(self.state.running):
            self._act(ev.Demote(r, cause="reset"))
            self.release(r)
            self.requeue(r)
        self.withdraw(0, tuple(range(self.state.memory[0].total)))
        acts, self.acts = tuple(self.acts), []
        self._do(mi.ControlDone(kind))
        return ev.Control(kind, acts)

    def step(self) -> ev.Step:
        """One call of `schedule`."""
        self.steps += 1
        return super().step()

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """`update_from_output`: outputs are appended, then pages of them are published, then who is done is freed."""
        due = self.state.frames.get(e.frame, {})
        live = {r for r in e.requests if r in due and due[r].fate is Fate.LIVE}
        self.returned = [r for r in e.requests if r in live and self.state.request(r).place is Place.RUNNING]
        return super().deliver(e)

    def unfence(self, frame: int) -> tuple[ev.Act, ...]:
        """Nothing is fenced without a connector; asked behind the outputs and before anybody is finished."""
        self.acts = []
        # 0.31.0 has this in AsyncScheduler; 0.33.0 in the scheduler, for whoever had a placeholder or may have drafts.
        if self.build.ahead or (self.build.drafts and self.build.version != "0.31.0"):
            for r in self.returned:
                self._publish(r, self._committed(r))
        return tuple(self.acts)

    # -- running requests --------------------------------------------------------------------------------------------

    def serve_running(self) -> None:
        """vLLM's loop over the running queue."""
        if self.state.paused:
            return
        for r in self.visits():
            if self.state.request(r).place is not Place.RUNNING or r in self.state.plan.granted:
                continue
            if self._left() <= 0:
                return
            if self._held_back(r) or self._at_its_end(r):
                continue
            self.asked = self._wanted(r)
            if self.asked < 1:
                continue
            self.make_room(r)
            if self.state.request(r).place is Place.RUNNING:
                self.grant(r, self.asked)
            elif self.policy.after_self is AfterSelf.STOP:
                return

    def pressure(self, request: str) -> tuple[int, int]:
        """Blocks lacking for what was asked: what a victim's grant returns to the budget changes that no more."""
        r = self.state.request(request)
        need = blocks_for(r.computed + self.asked, self.page) - len(r.tables[0])
        return max(need, 0), len(self.pool.free)

    def _left(self) -> int:
        return self.state.limits.budget - self.state.plan.spent

    def _threshold(self, tokens: int) -> int:
        """`long_prefill_token_threshold` cuts unless the request is alone; it is not adaptive unless so configured."""
        most = self.state.limits.long_prefill if len(self.state.requests) > 1 else 0
        return min(tokens, most) if most else tokens

    def _wanted(self, request: str) -> int:
        r = self.state.request(request)
        # Without scheduling ahead there are no placeholders: what flies is not planned on.
        promised = r.placeholders if self.build.ahead else 0
        lack = len(r.tokens) + promised + r.drafts - r.computed
        room = self.state.limits.max_length - 1 - r.computed
        return min(self._threshold(lack), self._left(), room)

    def _at_its_end(self, request: str) -> bool:
        """Its last output flies for sure: no further step is needed even if all drafts are rejected."""
        r = self.state.request(request)
        promised = r.placeholders if self.build.ahead else 0
        return promised > 0 and r.computed + 2 - promised >= r.prompt + r.max_tokens

    def _held_back(self, request: str) -> bool:
        """The pipeline's cadence: as many steps between two decodes as there are stages."""
        return self.steps < self.eligible.get(request, 0)

    # -- waiting requests --------------------------------------------------------------------------------------------

    def find_prefix(self, request: str) -> tuple[tuple[tuple[int, ...], ...], int]:
        """The longest run of findable pages that leaves a token to compute."""
        r, hit = self.state.request(request), list[int]()
        if self.state.limits.caching:
            for end in range(self.page, len(r.tokens), self.page):
                block = self.pool.find(r.prefix(end))
                if block is None:
                    break
                hit.append(block)
        return (tuple(hit),), len(hit) * self.page

    def first_tokens(self, request: str, hit: int) -> int:
        """How much of an admission's prefill is granted; 0: it, and everybody behind it, waits."""
        s, left = self.state, self._left()
        if left <= 0:
            return 0
        lack = len(s.request(request).tokens) - hit
        if self._padded(lack, hit):
            lack = 1 + self.build.drafts
            if lack > left:
                return 0  # rather not scheduled than without the padding (F3 of docs/findings.md)
        tokens = self._threshold(lack)
        if not s.limits.chunked and tokens > left:
            return 0
        return min(tokens, left)

    def _padded(self, lack: int, hit: int) -> bool:
        """With drafts, an admission of a single token beside decodes is padded to the size of one with all drafts."""
        plan, most = self.state.plan, self.build.drafts
        served = [q for q in plan.granted if q not in plan.admitted]
        if not most or lack != 1 or any(self.chunk[q] for q in served):
            return False
        return bool(served or hit) and hit + 1 + most + 1 <= self.state.limits.max_length

    # -- memory --------------------------------------------------------------------------------------------------------

    def grant(self, request: str, tokens: int, hit: int = 0, blocks: tuple[tuple[int, ...], ...] = ()) -> None:
        """`allocate_slots`: hit blocks leave the free queue, new ones come from its front, full pages are published."""
        r = self.state.request(request)
        start = hit if r.place is Place.WAITING else r.computed
        if blocks:
            self.pool.touch(blocks[0])
            self.pages[request] = len(blocks[0])
        super().grant(request, tokens, hit, blocks)
        if self.state.limits.caching:
            self._publish(request, start + tokens)

    def pick_blocks(self, group: int, count: int, keep: tuple[int, ...]) -> tuple[int, ...]:
        """The front of the free queue."""
        new, self.pool.free = tuple(self.pool.free[:count]), self.pool.free[count:]
        return new

    def withdraw(self, group: int, blocks: tuple[int, ...]) -> None:
        """What is handed out anew is findable no more."""
        old = tuple(b for b in blocks if self.pool.is_registered(b))
        for b in old:
            self.pool.forget(b)
        if old:
            self._act(ev.Withdraw(old, len(self.state.plan.granted), group))

    def free(self, group: int) -> int:
        """The length of the free queue."""
        return len(self.pool.free)

    def publish_full_pages(self) -> None:
        """Done already, when the slots were allocated."""

    def release(self, victim: str) -> None:
        """`_preempt_request`: the blocks are freed, last page first."""
        (table,) = self.owned(victim)
        super().release(victim)
        self._give_back(victim, table)

    def _over(self, request: str, table: tuple[int, ...]) -> None:
        self._give_back(request, table)
        for kept in (self.chunk, self.eligible, self.granted_at):
            kept.pop(request, None)

    def _give_back(self, request: str, table: tuple[int, ...]) -> None:
        self.pages.pop(request, None)
        held = {b for r in self.state.requests.values() for b in r.tables[0]}
        self.pool.give_back(b for b in reversed(table) if b not in held)

    def _publish(self, request: str, upto: int) -> None:
        """`cache_blocks`: the pages that `upto` computed tokens fill become findable, as far as tokens are known."""
        if not self.state.limits.caching:
            return
        r, first = self.state.request(request), self.pages.get(request, 0)
        last = min(upto, len(r.tokens)) // self.page
        if last <= first:
            return
        new = r.tables[0][first:last]
        for i, b in enumerate(new, first + 1):
            self.pool.register(b, r.prefix(i * self.page))
        self.pages[request] = last
        self._act(ev.Publish(request, new, len(self.state.plan.granted)))

    def _committed(self, request: str) -> int:
        """Tokens whose pages may be published when an output is back: those of frames that still fly are not.

        0.31.0 subtracts placeholders, 0.33.0 tokens in flight. Behind an output only outputs fly: these are as many.
        """
        return self.state.request(request).computed - self.state.request(request).placeholders

    # -- the end of a step ---------------------------------------------------------------------------------------------

    def dispatch(self) -> ev.Step:
        """The frame leaves; `_update_after_schedule` notes what the next steps go by."""
        granted = dict(self.state.plan.granted)
        before = {r: self.state.request(r) for r in granted}
        skips = self._cadence(granted)
        step = super().dispatch()
        for r, (start, tokens) in granted.items():
            promised = before[r].placeholders if self.build.ahead else 0
            self.chunk[r] = start + tokens < len(before[r].tokens) + promised
            self.granted_at[r] = self.steps
            if self.build.ahead and self.build.second_runner and not self.chunk[r]:
                self.eligible[r] = self.steps + self.build.stages
        return evolve(step, acts=(*skips, *step.acts), observed=self._books(self._counted(step)))

    def _cadence(self, granted: dict[str, tuple[int, int]]) -> tuple[ev.Act, ...]:
        if self.build.stages < 2 or not self.build.ahead:
            return ()
        behind = (
            r
            for r in self.state.plan.entered
            if self._held_back(r) and self.steps - self.granted_at.get(r, 0) < self.build.stages
        )
        return tuple(ev.Skip(r, CADENCE) for r in behind if r not in granted and r not in self.state.plan.demoted)

    def _counted(self, step: ev.Step) -> tuple[ev.Cached, ...]:
        resumed = {r.request for r in step.resumed}
        hits = {h.request: h.tokens for h in step.hits}
        return tuple(
            ev.Cached(s.request, hits.get(s.request, 0)) for s in step.sent if s.full and s.request not in resumed
        )

    def _books(self, cached: tuple[ev.Cached, ...] | None = None) -> ev.Observed:
        """vLLM's own books, its free list in order."""
        return evolve(self.observe(), free_ids=(tuple(self.pool.free),), cached=cached)
