"""Continuous batching of transformers behind the adapter protocol.

Run by path in a Python that has torch and transformers on its path. The real `ContinuousBatchProcessor` with its
scheduler, its paged cache and its offloading manager, one batch at a time, on the CPU. The forward pass is left out:
what `deliver` brings is put where the engine reads the sampled tokens. (`transformers_content_child` runs the model.)

Policy `hf-cb` is the FIFO scheduler with soft resets, `hf-cb-prefill-first` the prefill-first one, `hf-cb-offload` the
FIFO one with a host pool. Everything declared is the engine's own:

* counts, blocks: the growth of `block_table` around `allocate_cache_to_request`.
* free, free-ids: the free sectors and blocks of the pool (a block is a sector here); refs: the allocator's ledger.
* queues: `active_requests` and `waiting_requests_order`; who is offloaded to the host stands in a queue of its own.
* demote: whose memory is given up inside `offload_requests`, on behalf of all who starved (trigger).
* release and finish: what a block's references, or the free lists, lost around `free_blocks`.
* reset, known, place: read from the state that waits afterwards, which a soft reset makes anew.
* start, sent: the position ids, read and write indices in the tensors that the forward pass gets.
* hits: what `acquire_prefix_blocks` put into a table; a hit alone makes the engine take a request among those who run
  (`load`, `runs`), even if the pass then finds no room for its tokens. publish: the blocks in the ledger's table of
  hashes, which is what a prefix is looked up in. exchange: what `mark_complete_blocks` changed in a table.
* copies: see `transformers_watch`; host: the free sectors and blocks of the host pool.
* emitted: what joined the state's own tokens in `update_batch`.

A cancellation goes the engine's way, through its queue, and takes effect at the next batch; between a batch and its
update there is no moment for one. A safety margin is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.child import (
        Command,
        Engine,
        Refused,
        Reply,
        arrive,
        claim,
        fixed,
        header,
        serve,
        version_of,
        whole,
    )
    from preempt_oracle.engines.faults import inject
    from preempt_oracle.engines.transformers_build import RESERVED, load, model, processor
    from preempt_oracle.engines.transformers_faults import FAULTS
    from preempt_oracle.engines.transformers_watch import Watch, free_blocks
else:
    from child import Command, Engine, Refused, Reply, arrive, claim, fixed, header, serve, version_of, whole
    from faults import inject
    from transformers_build import RESERVED, load, model, processor
    from transformers_faults import FAULTS
    from transformers_watch import Watch, free_blocks

VERIFIED = ("5.18.0", "5.23.0")
SCHEDULERS = {"hf-cb": "fifo", "hf-cb-prefill-first": "prefill_first", "hf-cb-offload": "fifo"}
CAPABILITIES = ("abort", "caching", "chunked")
OBSERVES = (
    *("counts", "blocks", "free", "free-ids", "refs", "queues", "demote", "trigger", "release", "reset", "held"),
    *("place", "known", "start", "sent", "hits", "publish", "emitted"),
)


class Transformers(Engine):
    """One `ContinuousBatchProcessor`, built by the engine's own manager."""

    hf: Any = None
    llama: Any = None

    def start(self, config: dict[str, Any]) -> Reply:
        if self.injection is not None:
            self.injection.remove()  # of a start that ended in an error and was never stopped
        self.injection = inject(config, FAULTS)
        policy = config.get("policy")
        if policy not in SCHEDULERS:
            raise Refused(f"policy {policy!r}: this engine has {', '.join(SCHEDULERS)}")
        if unknown := sorted(config.get("options") or {}):
            raise Refused(f"unknown option {unknown[0]!r}; there is none")
        config = fixed(config, chunked=True, long_prefill=0, watermark=0, frames=1, drafts=0)
        config = fixed(config, groups="full")
        caching = config.get("caching", False)
        if type(caching) is not bool:
            raise Refused(f"caching={caching!r}: must be true or false")
        config["whole_fit"] = False  # the first chunk of an admission must fit, and no more
        blocks, page = whole(config, "blocks", 1), whole(config, "page_size", 4)
        running, budget = whole(config, "max_running", 1), whole(config, "budget", 1)
        longest = whole(config, "max_length", 2)
        host = whole({"host_blocks": 0, **config}, "host_blocks", 0) if policy == "hf-cb-offload" else 0
        if budget < running:
            raise Refused(f"budget={budget} with max_running={running}: a batch must have a token for each request")
        if longest - 1 > blocks * page:
            raise Refused(f"max_length={longest} with {blocks} blocks of {page}: a lone request outgrows the pool")

        if self.hf is None:
            self.hf = load()
            self.llama = model(self.hf)
        sizes = {"blocks": blocks, "page": page, "running": running, "budget": budget, "host_blocks": host}
        self.manager, self.processor = processor(
            self.hf, self.llama, **sizes, caching=caching, scheduler=SCHEDULERS[policy]
        )
        self.longest, self.hosts = longest, policy == "hf-cb-offload"
        self.live: dict[str, int] = {}  # request -> tokens it may emit
        self.frame = -1
        self.flying: list[Any] | None = None
        if self.injection is not None:
            self.injection.put(self.processor)
        self.watch = Watch(self.hf.torch, self.processor)
        version = version_of("transformers")
        assumes = [] if version in VERIFIED else ["unverified version of the engine"]
        if host and not self.hf.torch.cuda.is_available():
            assumes.append("no accelerator: the host pool is not pinned, and copies are done when they are asked for")
        observes = (*OBSERVES, "copies", "host") if policy == "hf-cb-offload" else OBSERVES
        can = (*CAPABILITIES, "host") if policy == "hf-cb-offload" else CAPABILITIES
        told = header("transformers", version, config, observes, can, reserved=RESERVED, assumes=assumes)
        if host:
            told["pools"].append({"tier": "host", "group": 0, "total": host, "reserved": 0})
        return told

    def stop(self) -> None:
        if self.injection is not None:
            self.injection.remove()
        del self.manager, self.processor, self.watch
        self.live.clear()

    # -- commands ----------------------------------------------------------------------------------------------------

    def add(self, cmd: Command) -> Reply:
        name, prompt, outputs = cmd["request"], cmd["prompt"], cmd["max_tokens"]
        if name in self.live:
            raise Refused(f"request {name!r} is live")
        if cmd.get("salt"):
            raise Refused(f"request {name!r}: this engine has no cache salt")
        if not prompt or outputs < 1 or len(prompt) + outputs > self.longest:
            # The engine takes anything; a "reject" here would claim a check that it does not make.
            raise Refused(f"request {name!r}: needs 1 <= prompt, 1 <= max_tokens, together at most {self.longest}")
        self.live[name] = outputs
        state = self.hf.state(request_id=name, initial_tokens=list(prompt), max_new_tokens=outputs, eos_token_id=-1)
        self.manager.input_queue.put(state)
        return arrive(cmd)

    def abort(self, request: str) -> Reply:
        if self.flying is not None:
            raise Refused("a cancellation takes effect between batches")
        self.manager.cancel_queue.put(request)
        self.live.pop(request, None)
        self.watch.preempted.discard(request)
        return {"event": "abort", "request": request, "reason": "user"}

    def step(self) -> Reply:
        if self.flying is not None:  # the engine's own loop always updates between two batches
            raise Refused(f"one frame at a time: frame {self.frame} must be delivered first")
        self.frame += 1
        watch = self.watch
        watch.begin()
        event: Reply = {"event": "step", "frame": self.frame}
        if self.processor.prepare_next_batch():
            batch = self.processor.inputs_and_outputs.requests_in_batch
            self.flying = list(batch)
            names = [f.state.request_id for f in batch]
            starts, sent = self._message()
            event |= {"requests": names, "tokens": [f.query_length for f in batch], "start": starts}
            event["sent"] = [[name, 0, blocks, True] for name, blocks in zip(names, sent, strict=True)]
            back = [f.state for f in batch if f.state.request_id in watch.preempted]
            back += [watch.scheduler.active_requests[r] for r in watch.back if r not in names]
            known = [[s.request_id, len(s.initial_tokens) + len(s.generated_tokens)] for s in back]
            event["resumed"] = known
            watch.preempted.difference_update([s.request_id for s in back])
            watch.stamps.put(self._written())
        else:
            event["reason"] = "nothing could be scheduled" if self.live else "idle"
        told = {"blocks": watch.deltas, "hits": watch.hits, "acts": watch.acts}
        return event | told | {"observed": self._observed()}

    def _message(self) -> tuple[list[int], list[list[int]]]:
        """Where each grant starts, and its block table, as the tensors of the batch have them.

        A batch in which nobody has a past reads nothing back: its tables are where it writes.
        """
        io = self.processor.inputs_and_outputs
        reads = io.true_read_sizes[0]
        indices = (
            io.read_index_storage[0, :reads] if reads else io.write_index_storage[0, : io.true_write_sizes[0]]
        ).tolist()
        ends = io.cumulative_seqlens_q[: len(io.requests_in_batch) + 1].tolist()
        starts, tables, at = [], [], 0
        for future, first in zip(io.requests_in_batch, ends, strict=False):
            start = int(io.position_ids[first])
            length = start + future.query_length if reads else future.query_length
            blocks = [i // self.watch.allocator.block_physical_stride for i in indices[at : at + length]]
            starts.append(start)
            tables.append(list(dict.fromkeys(blocks)))
            at += length
        return starts, tables

    def _written(self) -> list[int]:
        """The blocks that the batch writes."""
        io = self.processor.inputs_and_outputs
        slots = io.write_index_storage[0, : io.true_write_sizes[0]].tolist()
        return list(dict.fromkeys(i // self.watch.allocator.block_physical_stride for i in slots))

    def _observed(self) -> Reply:
        watch, scheduler = self.watch, self.processor.scheduler
        free, fresh, waiting = watch.free(), watch.fresh(), scheduler.waiting_requests
        held = [(r, len(watch.table(r)), waiting[r].position_offset if r in waiting else 0) for r in fresh]
        shared = watch.allocator.ledger.shared_ref_counts
        told: Reply = {
            "free": [len(free)],
            "free_ids": [free],
            "running": list(scheduler.active_requests),
            "waiting": fresh,
            "swapped": watch.swapped(),
            "held": [[r, blocks, computed] for r, blocks, computed in held if blocks or computed],
            "refs": [[0, block, count] for block, count in shared.items()],
        }
        pool = self.processor.offloading_manager._cpu_pool
        return {**told, "host_free": [0 if pool is None else len(free_blocks(pool))]} if self.hosts else told

    def deliver(self, cmd: Command) -> Reply:
        frame, requests, tokens = cmd["frame"], list(cmd["requests"]), list(cmd["tokens"])
        if not 0 <= frame <= self.frame:
            raise ValueError(f"deliver: frame {frame} was never dispatched")
        watch, batch = self.watch, self.flying or []
        self.flying = None
        watch.begin()
        states = {f.state.request_id: f.state for f in batch}
        before = {r: len(s.initial_tokens) + len(s.generated_tokens) for r, s in states.items()}
        sampled = {name: given[-1] for name, given in zip(requests, tokens, strict=True) if given}
        # The engine reads a token per request that has one coming, by position. Where the harness gave none, because
        # by its own count this grant did not reach the last known token, any token shows the engine's error.
        row = [sampled.get(f.state.request_id, 0) for f in batch if f.has_new_token]
        for i, token in enumerate(row):
            self.processor.inputs_and_outputs.output_ids[0, i] = token
        if batch:
            self.processor.update_batch()
        appended = {r: (s.initial_tokens + s.generated_tokens)[before[r] :] for r, s in states.items()}
        extra = [r for r, fresh in appended.items() if fresh and r not in requests]
        requests, tokens = requests + extra, tokens + [[] for _ in extra]
        over = [r for r, s in states.items() if s.status == self.hf.status.FINISHED and r in self.live]
        for r in over:
            del self.live[r]
            watch.preempted.discard(r)
        return {
            "event": "deliver",
            "frame": frame,
            "requests": requests,
            "tokens": tokens,
            "emitted": [appended.get(r, []) for r in requests],
            "acts": watch.acts,
            "finished": [{"request": r, "reason": "length", "blocks": [watch.returned.get(r, [])]} for r in over],
        }


if __name__ == "__main__":
    claim()
    serve(Transformers(), "transformers")
