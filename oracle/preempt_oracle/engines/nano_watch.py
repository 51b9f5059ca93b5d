"""Looks into one nano-vllm-fork scheduler while it works: who grew, who was preempted for whom, what came back.

Runs in the engine's Python, next to `nano_vllm_fork_child`. Bound methods of one scheduler and of its block manager are
wrapped, last of all, so that a repair and a fault put into them stay underneath and are seen.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.child import Reply, Unsupported, require
else:
    from child import Reply, Unsupported, require


TABLE = 3  # where `Sequence.__getstate__` has the block table; upstream has one more field before it


def load() -> types.SimpleNamespace:
    """Import the scheduler alone: the package itself and its configuration would import torch and transformers."""
    if "nanovllm" not in sys.modules:
        spec = importlib.util.find_spec("nanovllm")
        if spec is None or not spec.submodule_search_locations:
            raise Unsupported("there is no package 'nanovllm' on this Python's path")
        package = types.ModuleType("nanovllm")
        package.__path__ = list(spec.submodule_search_locations)
        config = types.ModuleType("nanovllm.config")
        config.Config = object  # type: ignore[attr-defined]  # named in an annotation only
        sys.modules["nanovllm"] = package
        sys.modules["nanovllm.config"] = config
    from nanovllm.engine.block_manager import BlockManager
    from nanovllm.engine.scheduler import Scheduler
    from nanovllm.engine.sequence import Sequence
    from nanovllm.sampling_params import SamplingParams

    require(Scheduler, ("schedule", "postprocess", "preempt", "add", "is_finished"))
    require(BlockManager, ("allocate", "may_append", "deallocate", "can_append", "can_allocate", "compute_hash"))
    require(Sequence, ("block_size", "append_token", "is_finished", "block", "num_blocks"))
    # Upstream (bb823b3) may cut the first prefill, and makes pages findable once they are computed, in `postprocess`.
    upstream = hasattr(BlockManager, "hash_blocks")
    return types.SimpleNamespace(scheduler=Scheduler, sequence=Sequence, sampling=SamplingParams, upstream=upstream)


class Watch:
    """The acts, block deltas and hits of one step of `scheduler`, and what came back outside of one."""

    def __init__(self, scheduler: Any, upstream: bool = False) -> None:
        self.scheduler = scheduler
        self.table = TABLE + upstream
        self.manager = scheduler.block_manager
        self.names: dict[int, str] = {}  # seq_id -> request
        self.preempted: set[str] = set()  # demoted and not yet prefilled again
        self.acts: list[Reply] = []
        self.scheduling = False
        self.begin()
        self._hook()

    def begin(self) -> None:
        """A step or a delivery begins: forget the one before, but for acts that no step has told of yet."""
        self.deltas: list[list[Any]] = []
        self.hits: list[list[Any]] = []
        self.returned: dict[str, list[int]] = {}  # what came back outside of a step: finishes
        self.granted = 0
        self.lacking: tuple[str, Any] | None = None  # what the scheduler last asked for, for whom, unless it was given

    def schedule(self) -> tuple[list[Any], bool]:
        """Ask the scheduler for a batch: its sequences, and whether it is a prefill."""
        self.scheduling = True
        try:
            batch, prefill = self.scheduler.schedule()
        finally:
            self.scheduling = False
        return list(batch), bool(prefill)

    def sent(self, batch: list[Any]) -> list[tuple[str, list[int]]]:
        """The block table that the workers are told, per sequence; of one that stands there twice, once."""
        return list({self.name(seq): list(seq.__getstate__()[self.table]) for seq in batch}.items())

    def name(self, seq: Any) -> str:
        """The request of a sequence."""
        return self.names[seq.seq_id]

    def told(self) -> list[Reply]:
        """The acts since the last step that told its own."""
        acts, self.acts = self.acts, []
        return acts

    def _hook(self) -> None:
        scheduler, manager = self.scheduler, self.manager
        can_append, can_allocate = manager.can_append, manager.can_allocate
        allocate, may_append, deallocate = manager.allocate, manager.may_append, manager.deallocate
        preempt = scheduler.preempt

        def asking(seq: Any) -> Any:
            return self._ask("growth", seq, can_append)

        def admitting(seq: Any) -> Any:
            return self._ask("admission", seq, can_allocate)

        def allocating(seq: Any, *hit: Any) -> Any:
            answer = self._growing(seq, lambda seq: allocate(seq, *hit))
            self.hits.append([self.name(seq), seq.num_cached_tokens])
            return answer

        def appending(seq: Any) -> Any:
            return self._growing(seq, may_append)

        def deallocating(seq: Any) -> Any:
            return self._returning(seq, deallocate)

        def preempting(seq: Any) -> Any:
            return self._preempting(seq, preempt)

        if hasattr(manager, "hash_blocks"):
            hash_blocks = manager.hash_blocks

            def hashing(seq: Any) -> Any:
                index = dict(manager.hash_to_block_id)
                answer = hash_blocks(seq)
                self._reindexed(index, seq)
                return answer

            manager.hash_blocks = hashing
        manager.can_append, manager.can_allocate = asking, admitting
        manager.allocate, manager.may_append, manager.deallocate = allocating, appending, deallocating
        scheduler.preempt = preempting

    def _ask(self, cause: str, seq: Any, question: Any) -> Any:
        self.lacking = (cause, seq)  # while it is asked, too: the engine may preempt before it answers
        answer = question(seq)
        if answer if isinstance(answer, bool) else answer >= 0:  # upstream answers with the pages of a hit, or -1
            self.lacking = None
        return answer

    def _growing(self, seq: Any, grow: Any) -> Any:
        before, index = len(seq.block_table), dict(self.manager.hash_to_block_id)
        answer = grow(seq)
        added = list(seq.block_table[before:])
        if added:
            self.deltas.append([self.name(seq), 0, added])
        self._reindexed(index, seq, granting=True)
        return answer

    def _returning(self, seq: Any, deallocate: Any) -> Any:
        """What really came back: each block as often as it lost a reference, or joined the free list."""
        manager = self.manager
        before, free = [block.ref_count for block in manager.blocks], Counter(manager.free_block_ids)
        table, index = list(seq.block_table), dict(manager.hash_to_block_id)
        answer = deallocate(seq)
        joined = Counter(manager.free_block_ids) - free
        times = {
            block.block_id: max(old - block.ref_count, joined[block.block_id])
            for block, old in zip(manager.blocks, before, strict=True)
        }
        mine = [block for block in table for _ in range(times.get(block, 0))]
        back = mine + [block for block, n in times.items() if block not in table for _ in range(n)]
        if self.scheduling:
            self._act("release", request=self.name(seq), blocks=[back], computed=seq.num_cached_tokens)
        else:
            self.returned[self.name(seq)] = back
        self._reindexed(index, seq)
        return answer

    def _preempting(self, seq: Any, preempt: Any) -> Any:
        scheduler = self.scheduler
        cause, asked = self.lacking or ("growth", None)
        # `can_append` asks for a block only when the next token needs one, so a failure means: one, of none.
        need = 1 if asked is None or cause == "growth" else asked.num_blocks
        supply = len(self.manager.free_block_ids)
        at, granted, waited = len(self.acts), self.granted, set(map(id, scheduler.waiting))
        answer = preempt(seq)
        # Who moved is the victim, whoever was asked for; its release was told meanwhile, and stands behind this act.
        victim = next((other for other in scheduler.waiting if id(other) not in waited), seq)
        name, served = self.name(victim), [self.name(asked)] if asked is not None else []
        demote: Reply = {"act": "demote", "after": granted, "request": name, "cause": cause, "beneficiaries": served}
        self.acts.insert(at, {**demote, "need": need, "supply": supply})
        self.preempted.add(name)
        for index, other in enumerate(scheduler.waiting):
            if other is victim:
                self._act("requeue", request=name, queue="waiting", index=index, known=len(victim))
                break
        return answer

    def _reindexed(self, before: dict[int, int], seq: Any, granting: bool = False) -> None:
        after = self.manager.hash_to_block_id
        lost = [block for key, block in before.items() if after.get(key) != block]
        gained = [block for key, block in after.items() if before.get(key) != block]
        if lost:
            self._act("withdraw", blocks=lost)
        self.granted += granting  # `schedule` adds the grant right behind this call; it owns what is published
        if gained:
            self._act("publish", request=self.name(seq), blocks=gained)

    def _act(self, act: str, **fields: Any) -> None:
        self.acts.append({"act": act, "after": self.granted, **fields})
