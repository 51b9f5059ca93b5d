"""nano-vllm-fork's scheduler and block manager behind the adapter protocol.

Run by path in a Python that has nano-vllm-fork, numpy and xxhash on its path. The fork is a useful known-bad engine: it
leaves a victim in its running queue as well. What its code raises is reported as its own.

Upstream nano-vllm (bb823b3), from a checkout, is driven as well, as unverified: it makes pages findable in
`postprocess`, which a delivery tells, and may cut a prefill beyond the budget, which none is here.

Option `repair` (default false): mend the six faults that docs/findings.md lists (`nano_repair`), say so in the header's
`assumes`, and examine the rest of the scheduler.

Everything declared is the engine's own: true block ids (`block_table`), the free list
(`free_block_ids`), reference counts (`Block.ref_count`), the hash index (`hash_to_block_id`), both queues, the tokens a
sequence holds. Not declared: "reject" (`add` takes anything).

* demote: who joins the waiting queue inside `preempt`.
* trigger: on behalf of the sequence that `can_append` (growth) or `can_allocate` (admission) was last asked about, if
  it said no; of nobody if there was room.
* release and finish: the blocks whose reference count fell inside `deallocate`, shared ones included, as often as it
  fell or as they joined the free list.
* sent: the block table in the message that workers of other ranks get for each sequence of a batch
  (`Sequence.__getstate__`), read when the batch is made; the allocator's table is followed where it grows.
* reset: `num_cached_tokens`, the only progress a waiting sequence keeps (its next prefill adds to it).
* publish: what `hash_to_block_id` gained or lost around `allocate`, `may_append` and `deallocate`. Hashes that go when
  a request finishes are reported as the first acts of the next step, because a delivery has no acts.
"""

from __future__ import annotations

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
    from preempt_oracle.engines.faults import inject
    from preempt_oracle.engines.nano_faults import FAULTS
    from preempt_oracle.engines.nano_repair import ASSUMES, repair
    from preempt_oracle.engines.nano_watch import TABLE, Watch, load
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
    from faults import inject
    from nano_faults import FAULTS
    from nano_repair import ASSUMES, repair
    from nano_watch import TABLE, Watch, load

VERIFIED = ("20260210",)
POLICY = "nano-vllm"
CAPABILITIES = ("caching", "unchunked")
OBSERVES = (
    *("counts", "blocks", "free", "free-ids", "refs", "queues", "demote", "trigger", "release", "reset", "held"),
    *("place", "known", "start", "sent", "hits", "publish", "emitted"),
)


class NanoFork(Engine):
    """One `Scheduler` with its `BlockManager`, built by their own constructors."""

    def start(self, config: dict[str, Any]) -> Reply:
        if self.injection is not None:
            self.injection.remove()  # of a start that ended in an error and was never stopped
        self.injection = inject(config, FAULTS)
        if config.get("policy") != POLICY:
            raise Refused(f"policy {config.get('policy')!r}: this scheduler has policy {POLICY!r} only")
        config = fixed(config, chunked=False, caching=True, whole_fit=True, long_prefill=0, watermark=0)
        options = config.get("options", {})
        unknown = sorted(set(options) - {"repair"})
        if unknown:
            raise Refused(f"unknown option {unknown[0]!r}; known: 'repair'")
        # A fault is looked for in a scheduler that has none of its own: unrepaired, those would be found first.
        mended = bool(options.get("repair", False)) or self.injection is not None
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
        version = version_of("nano-vllm" if nano.upstream else "nano-vllm-fork")
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
        if probe.__getstate__()[TABLE + nano.upstream] != []:
            raise Unsupported("Sequence.__getstate__ has no block table where this adapter looks for it")

        self.live: dict[str, Any] = {}  # request -> Sequence
        self.frame = -1
        self.flying: dict[int, list[Any]] = {}
        if mended and nano.upstream:
            raise Refused("upstream nano-vllm has none of the fork's faults: nothing to repair, or to break anew")
        if mended:
            repair(self.scheduler)
        if self.injection is not None:
            self.injection.put(self.scheduler)
        self.watch = Watch(self.scheduler, nano.upstream)
        assumes = [*ASSUMES] if mended else []
        assumes += [] if version in VERIFIED else ["unverified version of the engine"]
        name = "nano-vllm" if nano.upstream else "nano-vllm-fork"
        return header(name, version, config, OBSERVES, CAPABILITIES, assumes=assumes)

    def stop(self) -> None:
        del self.scheduler, self.manager, self.watch
        self.live.clear()
        if self.injection is not None:
            self.injection.remove()

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
        self.watch.names[seq.seq_id] = name
        self.scheduler.add(seq)
        return arrive(cmd)

    def step(self) -> Reply:
        if self.flying:  # the engine's own loop always calls `postprocess` between two calls of `schedule`
            raise Refused(f"one frame at a time: frame {self.frame} must be delivered first")
        self.frame += 1
        watch = self.watch
        watch.begin()
        event: Reply = {"event": "step", "frame": self.frame}
        if self.scheduler.is_finished():
            event["reason"] = "idle"  # the engine's own loop does not call `schedule` then
        else:
            batch, prefill = watch.schedule()
            names = [watch.name(seq) for seq in batch]
            starts = [seq.num_cached_tokens if prefill else len(seq) - 1 for seq in batch]
            self.prefill = prefill
            event["requests"] = names
            event["start"] = starts
            event["tokens"] = [len(seq) - start for seq, start in zip(batch, starts, strict=True)]
            event["sent"] = [[name, 0, table, True] for name, table in watch.sent(batch)]
            if not batch:  # only when repaired: unrepaired, the engine's own assertion fails
                event["reason"] = "everybody was preempted" if watch.acts else "nothing could be admitted or grown"
            elif prefill:
                event["resumed"] = [[n, len(s)] for n, s in zip(names, batch, strict=True) if n in watch.preempted]
                watch.preempted.difference_update(names)
            if batch:
                self.flying[self.frame] = batch
        return event | {"blocks": watch.deltas, "hits": watch.hits, "acts": watch.told(), "observed": self._observed()}

    def _observed(self) -> dict[str, Any]:
        manager, name_of = self.manager, self.watch.name
        running = [name_of(seq) for seq in self.scheduler.running]
        return {
            "free": [len(manager.free_block_ids)],
            "free_ids": [list(manager.free_block_ids)],
            "running": running,
            "waiting": [name_of(seq) for seq in self.scheduler.waiting],
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
        watch = self.watch
        watch.begin()
        # The engine samples for every sequence of a batch and pairs tokens by position. Where the harness gave none,
        # because by its own count this grant did not reach the last known token, any token shows the engine's error.
        phase = (self.prefill,) if self.nano.upstream else ()
        self.scheduler.postprocess(batch, [sampled.get(watch.name(seq), 0) for seq in batch], *phase)
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
                finished.append({"request": name, "reason": "length", "blocks": [watch.returned.get(name, [])]})
                del self.live[name]
                watch.preempted.discard(name)
                if seq not in self.scheduler.running and seq not in self.scheduler.waiting:
                    del watch.names[seq.seq_id]  # else the engine still queues it, and it must stay nameable
        told = {"acts": watch.told()} if self.nano.upstream else {}  # it hashes what was computed
        return {
            "event": "deliver",
            "frame": frame,
            "requests": requests,
            "tokens": tokens,
            "emitted": emitted,
            "finished": finished,
            **told,
        }


if __name__ == "__main__":
    claim()
    serve(NanoFork(), "nanovllm")
