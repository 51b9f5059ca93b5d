"""nano-vllm-fork's scheduler and block manager behind the adapter protocol.

Run by path in a Python that has nano-vllm-fork, numpy and xxhash on its path. The fork is a useful known-bad engine: it
leaves a victim in its running queue as well. Nothing is repaired here; what its code raises is reported as its own.

Everything declared is the engine's own: true block ids (`block_table`), the free list
(`free_block_ids`), reference counts (`Block.ref_count`), the hash index (`hash_to_block_id`), both queues, the tokens a
sequence holds. Not declared: "sent" (the model runner reads the very list the allocator writes, so there is no second
observation) and "reject" (`add` takes anything).

* trigger: `preempt` is called on behalf of the last sequence `can_append` was asked about; the need is one block.
* release and finish: the blocks whose reference count fell inside `deallocate`, shared ones included.
* reset: `num_cached_tokens`, the only progress a waiting sequence keeps (its next prefill adds to it).
* publish: what `hash_to_block_id` gained or lost around `allocate`, `may_append` and `deallocate`. Hashes that go when
  a request finishes are reported as the first acts of the next step, because a delivery has no acts.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.child import (
        Command,
        Engine,
        Refused,
        Reply,
        Unsupported,
        arrive,
        claim,
        fixed,
        header,
        require,
        serve,
        version_of,
        whole,
    )
else:
    from child import (
        Command,
        Engine,
        Refused,
        Reply,
        Unsupported,
        arrive,
        claim,
        fixed,
        header,
        require,
        serve,
        version_of,
        whole,
    )

VERIFIED = ("20260210",)
POLICY = "nano-vllm"
CAPABILITIES = ("caching", "unchunked")
OBSERVES = (
    *("counts", "blocks", "free", "free-ids", "refs", "queues", "demote", "trigger", "release", "reset", "held"),
    *("place", "known", "start", "hits", "publish", "emitted"),
)


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
    require(BlockManager, ("allocate", "may_append", "deallocate", "can_append", "can_allocate"))
    require(Sequence, ("block_size", "append_token", "is_finished"))
    return types.SimpleNamespace(scheduler=Scheduler, sequence=Sequence, sampling=SamplingParams)


class NanoFork(Engine):
    """One `Scheduler` with its `BlockManager`, built by their own constructors."""

    def start(self, config: dict[str, Any]) -> Reply:
        if config.get("policy") != POLICY:
            raise Refused(f"policy {config.get('policy')!r}: this scheduler has policy {POLICY!r} only")
        config = fixed(config, chunked=False, caching=True, whole_fit=True, long_prefill=0, watermark=0)
        if config.get("options"):
            raise Refused(f"unknown option {sorted(config['options'])[0]!r}; there are none")
        # Growth is "length modulo page size is 1", which never holds for pages of one token: such a sequence would
        # outgrow its table unseen. (The engine's own configuration wants multiples of 256; the scheduler does not.)
        blocks, page = whole(config, "blocks", 1), whole(config, "page_size", 2)
        running, budget = whole(config, "max_running", 1), whole(config, "budget", 1)
        longest = whole(config, "max_length", 2)
        # The engine asserts max_num_batched_tokens >= max_model_len; nothing protects the pool. A preempted sequence
        # is prefilled whole, and knows at most one token less than its full length while it still needs a step.
        if longest > budget:
            raise Refused(f"max_length={longest} with budget={budget}: the engine wants a budget of max_length or more")
        if longest - 1 > blocks * page:
            raise Refused(f"max_length={longest} with {blocks} blocks of {page}: a lone sequence outgrows the pool")

        nano = load()
        version = version_of("nano-vllm-fork")
        self.nano = nano
        self.longest = longest
        nano.sequence.block_size = page
        self.scheduler = nano.scheduler(
            types.SimpleNamespace(
                max_num_seqs=running,
                max_num_batched_tokens=budget,
                eos=-1,
                kvcache_block_size=page,
                num_kvcache_blocks=blocks,
            )
        )
        require(self.scheduler, ("waiting", "running", "block_manager"))
        self.manager = self.scheduler.block_manager
        require(self.manager, ("blocks", "free_block_ids", "used_block_ids", "hash_to_block_id"))
        require(self.manager.blocks[0], ("ref_count", "hash", "token_ids"))
        probe = nano.sequence([0], nano.sampling(max_tokens=1, ignore_eos=True))
        require(probe, ("seq_id", "token_ids", "block_table", "num_cached_tokens", "num_tokens", "status"))

        self.live: dict[str, Any] = {}  # request -> Sequence
        self.names: dict[int, str] = {}  # seq_id -> request
        self.frame = -1
        self.flying: dict[int, list[Any]] = {}
        self.preempted: set[str] = set()  # demoted and not yet prefilled again
        self.acts: list[Reply] = []
        self.granted = 0
        self.asked: Any = None
        self.scheduling = False
        self._hook()
        assumes = [] if version in VERIFIED else ["unverified version of the engine"]
        return header("nano-vllm-fork", version, config, OBSERVES, CAPABILITIES, assumes=assumes)

    def stop(self) -> None:
        del self.scheduler, self.manager
        self.live.clear()
        self.names.clear()

    # -- hooks: bound methods of this one scheduler, so that a fault injected into a class stays underneath ----------

    def _hook(self) -> None:
        scheduler, manager = self.scheduler, self.manager
        preempt, can_append = scheduler.preempt, manager.can_append
        allocate, may_append, deallocate = manager.allocate, manager.may_append, manager.deallocate

        def asking(seq: Any) -> Any:
            self.asked = seq
            return can_append(seq)

        def allocating(seq: Any) -> Any:
            answer = self._growing(seq, allocate)
            self.hits.append([self._name(seq), seq.num_cached_tokens])
            return answer

        def appending(seq: Any) -> Any:
            return self._growing(seq, may_append)

        def deallocating(seq: Any) -> Any:
            before, table = [block.ref_count for block in manager.blocks], list(seq.block_table)
            index = dict(manager.hash_to_block_id)
            answer = deallocate(seq)
            fell = {b.block_id for b, old in zip(manager.blocks, before, strict=True) if b.ref_count < old}
            back = [block for block in table if block in fell] + sorted(fell - set(table))
            if self.scheduling:
                self._act("release", request=self._name(seq), blocks=[back], computed=seq.num_cached_tokens)
            else:
                self.returned[self._name(seq)] = back
            self._reindexed(index, seq)
            return answer

        def preempting(seq: Any) -> Any:
            name = self._name(seq)
            on_behalf = name if self.asked is None else self._name(self.asked)
            # `can_append` asks for a block only when the next token needs one, so a failure means: one, of none.
            self._act(
                "demote",
                request=name,
                cause="growth",
                beneficiaries=[on_behalf],
                need=1,
                supply=len(manager.free_block_ids),
            )
            answer = preempt(seq)
            self.preempted.add(name)
            for index, other in enumerate(scheduler.waiting):
                if other is seq:
                    self._act("requeue", request=name, queue="waiting", index=index, known=len(seq))
                    break
            return answer

        manager.can_append, manager.allocate, manager.may_append = asking, allocating, appending
        manager.deallocate, scheduler.preempt = deallocating, preempting

    def _growing(self, seq: Any, grow: Any) -> Any:
        before, index = len(seq.block_table), dict(self.manager.hash_to_block_id)
        answer = grow(seq)
        added = list(seq.block_table[before:])
        if added:
            self.deltas.append([self._name(seq), 0, added])
        self._reindexed(index, seq, granting=True)
        return answer

    def _reindexed(self, before: dict[int, int], seq: Any, granting: bool = False) -> None:
        after = self.manager.hash_to_block_id
        lost = [block for key, block in before.items() if after.get(key) != block]
        gained = [block for key, block in after.items() if before.get(key) != block]
        if lost:
            self._act("withdraw", blocks=lost)
        self.granted += granting  # `schedule` adds the grant right behind this call; it owns what is published
        if gained:
            self._act("publish", request=self._name(seq), blocks=gained)

    def _act(self, act: str, **fields: Any) -> None:
        self.acts.append({"act": act, "after": self.granted, **fields})

    def _name(self, seq: Any) -> str:
        return self.names[seq.seq_id]

    # -- commands ----------------------------------------------------------------------------------------------------

    def add(self, cmd: Command) -> Reply:
        name, prompt, outputs = cmd["request"], cmd["prompt"], cmd["max_tokens"]
        if name in self.live:
            raise Refused(f"request {name!r} is live")
        if cmd.get("salt"):
            raise Refused(f"request {name!r}: this engine has no cache salt, prefixes are shared by everybody")
        if not prompt or outputs < 1 or len(prompt) + outputs > self.longest:
            # The engine takes anything; a "reject" here would claim a check that it does not make.
            raise Refused(f"request {name!r}: needs 1 <= prompt, 1 <= max_tokens, together at most {self.longest}")
        seq = self.nano.sequence(prompt, self.nano.sampling(max_tokens=outputs, ignore_eos=True))
        self.live[name] = seq
        self.names[seq.seq_id] = name
        self.scheduler.add(seq)
        return arrive(cmd)

    def step(self) -> Reply:
        if self.flying:  # the engine's own loop always calls `postprocess` between two calls of `schedule`
            raise Refused(f"one frame at a time: frame {self.frame} must be delivered first")
        self.frame += 1
        self.deltas: list[list[Any]] = []
        self.hits: list[list[Any]] = []
        self.granted = 0
        self.asked = None
        event: Reply = {"event": "step", "frame": self.frame}
        if self.scheduler.is_finished():
            event["reason"] = "idle"  # the engine's own loop does not call `schedule` then
        else:
            self.scheduling = True
            try:
                batch, prefill = self.scheduler.schedule()
            finally:
                self.scheduling = False
            names = [self._name(seq) for seq in batch]
            starts = [seq.num_cached_tokens if prefill else len(seq) - 1 for seq in batch]
            event["requests"] = names
            event["start"] = starts
            event["tokens"] = [len(seq) - start for seq, start in zip(batch, starts, strict=True)]
            if prefill:
                event["resumed"] = [[n, len(s)] for n, s in zip(names, batch, strict=True) if n in self.preempted]
                self.preempted.difference_update(names)
            self.flying[self.frame] = list(batch)
        event |= {"blocks": self.deltas, "hits": self.hits, "acts": self.acts, "observed": self._observed()}
        self.acts = []
        return event

    def _observed(self) -> dict[str, Any]:
        manager = self.manager
        running = [self._name(seq) for seq in self.scheduler.running]
        return {
            "free": [len(manager.free_block_ids)],
            "free_ids": [list(manager.free_block_ids)],
            "running": running,
            "waiting": [self._name(seq) for seq in self.scheduler.waiting],
            "held": [
                [name, len(seq.block_table), seq.num_cached_tokens]
                for name, seq in self.live.items()
                if name not in running and (seq.block_table or seq.num_cached_tokens)
            ],
            "refs": [[0, b.block_id, b.ref_count] for b in manager.blocks if b.ref_count not in (0, 1)],
        }

    def deliver(self, cmd: Command) -> Reply:
        frame, requests, tokens = cmd["frame"], list(cmd["requests"]), list(cmd["tokens"])
        if not 0 <= frame <= self.frame:
            raise ValueError(f"deliver: frame {frame} was never dispatched")
        batch = self.flying.pop(frame, [])
        sampled = {name: given[-1] for name, given in zip(requests, tokens, strict=True) if given}
        before = {name: len(seq.token_ids) for name, seq in self.live.items()}
        sequences = dict(self.live)
        self.returned: dict[str, list[int]] = {}
        self.granted = 0
        # The engine samples for every sequence of a batch and pairs tokens by position. Where the harness gave none,
        # because by its own count this grant did not reach the last known token, any token shows the engine's error.
        self.scheduler.postprocess(batch, [sampled.get(self._name(seq), 0) for seq in batch])
        appended = {name: seq.token_ids[before[name] :] for name, seq in sequences.items()}
        extra = [name for name, fresh in appended.items() if fresh and name not in requests]
        requests, tokens = requests + extra, tokens + [[] for _ in extra]
        emitted = []
        for position, name in enumerate(requests):
            fresh = appended.get(name, [])
            take = 1 if name in requests[position + 1 :] else len(fresh)  # the last of a duplicate shows the rest
            emitted.append(fresh[:take])
            appended[name] = fresh[take:]
        finished = []
        for name, seq in sequences.items():
            if seq.is_finished:
                finished.append({"request": name, "reason": "length", "blocks": [self.returned.get(name, [])]})
                del self.live[name]
                self.preempted.discard(name)
                if seq not in self.scheduler.running and seq not in self.scheduler.waiting:
                    del self.names[seq.seq_id]  # else the engine still queues it, and it must stay nameable
        return {
            "event": "deliver",
            "frame": frame,
            "requests": requests,
            "tokens": tokens,
            "emitted": emitted,
            "finished": finished,
        }


if __name__ == "__main__":
    claim()
    serve(NanoFork(), "nanovllm")
