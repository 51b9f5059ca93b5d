"""Each peculiarity that is modelled is come to: a prediction without it diverges, and soon."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import Session
from preempt_oracle.lockstep.blocks import Blocks
from preempt_oracle.lockstep.modes import POLICIES, select
from preempt_oracle.lockstep.predicted import Predicted
from preempt_oracle.lockstep.run import Budget, lockstep
from preempt_oracle.lockstep.stand_in import StandIn
from preempt_spec import events as ev
from preempt_spec.memory import Slot
from preempt_spec.policies.outputs import room_for_outputs
from preempt_spec.policies.pressure import pressure
from preempt_spec.reference import Reference


class _InTableOrder(Blocks):
    def give_back(self, blocks: Iterable[int]) -> None:
        super().give_back(reversed([*blocks]))


class _AllToTheEnd(Blocks):
    def give_back(self, blocks: Iterable[int]) -> None:
        self.free += blocks


class _LastRegistered(Blocks):
    def find(self, page: Slot) -> int | None:
        holders = self._found.get(page)
        return holders[-1] if holders else None


class _Pool(Predicted):
    pool_type: type[Blocks] = Blocks

    def prepare(self) -> None:
        super().prepare()
        (memory,) = self.state.memory
        self.pool = self.pool_type(memory.reserved, memory.total)


class FreesInTableOrder(_Pool):
    pool_type = _InTableOrder


class FreesToTheEnd(_Pool):
    pool_type = _AllToTheEnd


class HitsTheLatest(_Pool):
    pool_type = _LastRegistered


class TakesHashesBack(Predicted):
    """No F1: what a grant published is withdrawn when the grant is taken back."""

    def take_back(self, victim: str) -> None:
        (table,) = self.owned(victim)
        start, _ = self.state.plan.granted[victim]
        super().take_back(victim)
        for b in table[start // self.page :]:
            self.pool.forget(b)


class AsksForMore(Predicted):
    """What a victim's grant gave back to the budget is asked for as well."""

    def pressure(self, request: str) -> tuple[int, int]:
        return pressure(self.state, (request,))


class CutsAdaptively(Predicted):
    def _threshold(self, tokens: int) -> int:
        limits, live = self.state.limits, len(self.state.requests)
        most = max(limits.long_prefill, limits.budget // live) if limits.long_prefill and live > 1 else tokens
        return min(tokens, most)


class StopsInTime(Predicted):
    """Makes no grant behind the output that ends a request."""

    def _at_its_end(self, request: str) -> bool:
        r = self.state.request(request)
        return self.build.ahead and 0 < r.placeholders >= room_for_outputs(self.state, r)


class ForgetsTheCadence(Predicted):
    """Whoever is preempted may decode at once when it is back."""

    def release(self, victim: str) -> None:
        super().release(victim)
        self.eligible.pop(victim, None)


class CommitsAsBefore(Predicted):
    """As 0.31.0: synchronous scheduling publishes nothing when outputs come back."""

    def unfence(self, frame: int) -> tuple[ev.Act, ...]:
        return super().unfence(frame) if self.build.ahead else ()


class CommitsAhead(Predicted):
    """Publishes pages of outputs before they are known to be accepted."""

    def _committed(self, request: str) -> int:
        return self.state.request(request).computed


class DoesNotPad(Predicted):
    def _padded(self, lack: int, hit: int) -> bool:
        return False


class PublishesAtTheEnd(Predicted):
    """Pages become findable when the step is planned, as in the reference."""

    def grant(self, request: str, tokens: int, hit: int = 0, blocks: tuple[tuple[int, ...], ...] = ()) -> None:
        if blocks:
            self.pool.touch(blocks[0])
            self.pages[request] = len(blocks[0])
        Reference.grant(self, request, tokens, hit, blocks)

    def publish_full_pages(self) -> None:
        for r, (start, tokens) in self.state.plan.granted.items():
            self._publish(r, start + tokens)


class TakesAnyBlock(Predicted):
    """As the reference: blocks without a findable page first, then the lowest id."""

    def pick_blocks(self, group: int, count: int, keep: tuple[int, ...]) -> tuple[int, ...]:
        new = Reference.pick_blocks(self, group, count, keep)
        self.pool.touch(new)
        return new


class ResetsInRunningOrder(Predicted):
    def control(self, kind: str) -> ev.Control:
        if kind == "reset":
            from attrs import evolve

            self.state = evolve(self.state, running=self.state.running[::-1])
        return super().control(kind)


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (FreesInTableOrder, ""),
        (FreesToTheEnd, ""),
        (HitsTheLatest, "caching"),
        (TakesHashesBack, "caching,part-fit,long-prefill"),
        (AsksForMore, "part-fit,long-prefill"),
        (CutsAdaptively, "long-prefill"),
        (StopsInTime, "async,frames=4"),
        (ForgetsTheCadence, "async,frames=4,long-prefill"),
        (CommitsAsBefore, "sync,drafts,caching"),
        (CommitsAhead, "async,drafts,caching"),
        (DoesNotPad, "drafts"),
        (PublishesAtTheEnd, "caching"),
        (TakesAnyBlock, ""),
        (ResetsInRunningOrder, ""),
    ],
)
def test_a_prediction_without_it_diverges(wrong: type[Predicted], words: str):
    def enough(_: int, __: float, divergences: int) -> None:
        if divergences:
            raise KeyboardInterrupt

    def connect() -> Session:
        return Session(InProcess(StandIn(), "the stand-in", "preempt_spec"))

    out = lockstep(connect, select(POLICIES, words), 0, Budget(400), enough, tries=0, predict=wrong)
    assert not out.broken
    assert out.divergences == 1
