"""Vidur's vLLM scheduler (a simulator's, `VLLMReplicaScheduler`) behind the adapter protocol.

Run by path in a Python that has Vidur on its path: `python vidur_child.py`. Vidur counts blocks and has no block ids,
no token ids, no prefix cache, no abort and no chunked prefill. What is observed, and where it comes from:

* counts: the growth of `_allocation_map` around each `_allocate_request`. The block ids in the events are made up here
  (lowest free first), so "blocks", "free-ids", "refs", "hits", "publish" and "sent" are not declared.
* free: `num_blocks - _num_allocated_blocks`, a counter that Vidur keeps apart from the map.
* queues: waiting is `_request_queue`; running is `_preempted_requests` (everybody who is not in a batch, whatever its
  name says) and the batch just made, in the order in which the next decode scan sorts them: by arrival, stable.
* demote, trigger: `Request.restart` is called on behalf of the request `_can_allocate_request` was last asked about, if
  it said no; of nobody if there was room.
* release: how far `_num_allocated_blocks` really fell in `free`, expressed in the made-up ids.
* place, known, reset: read from the queue and the request after the scheduler is done with the victim.
* start: from the batch's own `num_kv_tokens - num_q_tokens`.

Vidur counts an output as processed the moment it is sampled: after its prefill of n tokens a request has processed
n + 1. So known = processed and computed (KV resident) = processed - 1 while it runs; while it waits, known is
`num_prefill_tokens`, which `restart` sets to the tokens processed so far, and computed = processed = 0.

Option `repair` (default false): version 0.0.26 forgets to reset the stage counter in `Request.restart`, so every
preempted request fails an assertion before it finishes. With `repair` the adapter resets it, says so in the header's
`assumes`, and the rest of the scheduler can be examined. It does so, too, wherever a fault is put in on purpose.
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
    from preempt_oracle.engines.vidur_faults import FAULTS
    from preempt_oracle.engines.vidur_watch import Live, Watch, load
else:
    from child import Command, Engine, Refused, Reply, arrive, claim, fixed, header, require, serve, version_of, whole
    from faults import inject
    from vidur_faults import FAULTS
    from vidur_watch import Live, Watch, load

VERIFIED = ("0.0.26",)
POLICY = "vidur-vllm"
CAPABILITIES = ("unchunked", "watermark")
OBSERVES = ("counts", "free", "queues", "demote", "trigger", "release", "reset", "held", "place", "known", "start")


class Vidur(Engine):
    """One `VLLMReplicaScheduler` of one pipeline stage, built by its own constructor."""

    def start(self, config: dict[str, Any]) -> Reply:
        if self.injection is not None:
            self.injection.remove()  # of a start that ended in an error and was never stopped
        self.injection = inject(config, FAULTS)
        if config.get("policy") != POLICY:
            raise Refused(f"policy {config.get('policy')!r}: Vidur's vLLM scheduler has policy {POLICY!r} only")
        config = fixed(config, chunked=False, caching=False, whole_fit=True, long_prefill=0)
        options = config.get("options", {})
        unknown = sorted(set(options) - {"repair"})
        if unknown:
            raise Refused(f"unknown option {unknown[0]!r}; known: 'repair'")
        repair = bool(options.get("repair", False)) or self.injection is not None
        blocks, page = whole(config, "blocks", 1), whole(config, "page_size", 1)
        running, budget = whole(config, "max_running", 1), whole(config, "budget", 1)
        longest, watermark = whole(config, "max_length", 2), whole({"watermark": 0, **config}, "watermark", 0)
        # A restarted request is prefilled whole, outputs included. The most it can know at that moment is one token
        # less than its full length (with all of them it would have finished). That prefill must fit in one batch
        # (`max_tokens_in_batch` is never split) and in the pool above the watermark (`_can_allocate_request` keeps
        # it even when nothing runs); otherwise the request sits at the head of the queue for ever and blocks
        # everybody behind it. Vidur checks none of this when a request arrives.
        if longest - 1 > budget:
            raise Refused(f"max_length={longest} with budget={budget}: a restart of {longest - 1} tokens never fits")
        if -(-(longest - 1) // page) > blocks - watermark:
            raise Refused(f"max_length={longest} with blocks={blocks}, watermark={watermark}: a restart never fits")

        vidur = load()
        version = version_of("vidur")
        self.vidur = vidur
        self.longest = longest

        class Planner:
            """Stands in for the planner that would size the pool from a real model and a real GPU."""

            def __init__(self, *_: object) -> None: ...

            def get_max_kv_cache_size_in_tokens(self) -> int:
                return blocks * page

        real = vidur.base.MemoryPlanner
        vidur.base.MemoryPlanner = Planner
        try:
            self.scheduler = vidur.scheduler(
                types.SimpleNamespace(),
                vidur.limits(batch_size_cap=running, max_tokens_in_batch=budget),
                # Vidur wants a fraction and truncates the product: aim between two whole numbers.
                vidur.cache(block_size=page, num_blocks=blocks, watermark_blocks_fraction=(watermark + 0.5) / blocks),
                types.SimpleNamespace(max_tokens=longest),
                types.SimpleNamespace(id=0),
                1,
                None,
            )
        finally:
            vidur.base.MemoryPlanner = real
        require(self.scheduler, ("_request_queue", "_preempted_requests", "_allocation_map", "_num_allocated_blocks"))
        require(self.scheduler, ("_cache_config", "_watermark_blocks"))
        if self.scheduler._watermark_blocks != watermark:
            raise RuntimeError(f"asked for a watermark of {watermark} blocks, got {self.scheduler._watermark_blocks}")

        self.live: dict[str, Live] = {}
        if self.injection is not None:
            self.injection.put(types.SimpleNamespace(scheduler=self.scheduler, request=vidur.request))
        self.watch = Watch(self.scheduler, blocks, repair)
        self.time = 0
        self.frame = -1
        self.flying: dict[int, tuple[Any, Any]] = {}
        assumes = [] if version in VERIFIED else ["unverified version of the engine"]
        if repair:
            assumes.append("Request.restart resets the stage counter (repaired by the adapter)")
        return header("vidur", version, config, OBSERVES, CAPABILITIES, assumes=assumes)

    def stop(self) -> None:
        del self.scheduler, self.watch
        self.live.clear()
        if self.injection is not None:
            self.injection.remove()

    # -- commands ----------------------------------------------------------------------------------------------------

    def add(self, cmd: Command) -> Reply:
        name, prompt, outputs = cmd["request"], cmd["prompt"], cmd["max_tokens"]
        if name in self.live:
            raise Refused(f"request {name!r} is live")
        if not prompt or outputs < 1 or len(prompt) + outputs > self.longest:
            # Vidur takes anything; a "reject" here would claim a check that the engine does not make.
            raise Refused(f"request {name!r}: needs 1 <= prompt, 1 <= max_tokens, together at most {self.longest}")
        live = Live(name, self.vidur.request(cmd.get("arrival", 0), len(prompt), outputs))
        self.live[name] = live
        self.watch.watch(live)
        self.scheduler.add_request(live.inner)
        return arrive(cmd)

    def step(self) -> Reply:
        if self.flying:
            # The simulator may ask, and gets no batch; a poll while the only stage is busy decides nothing.
            raise Refused(f"one frame at a time: frame {self.frame} must be delivered first")
        self.frame += 1
        self.time += 2  # a batch made at t ends at t + 1
        watch = self.watch
        watch.begin()
        batch = watch.schedule(self.time)
        event: Reply = {"event": "step", "frame": self.frame, "blocks": watch.deltas, "acts": watch.acts}
        batched: list[Any] = []
        if batch:
            batched = list(batch.requests)
            decoding = [bool(inner.is_prefill_complete) for inner in batched]
            event["requests"] = [self.watch.by_id[inner.id].name for inner in batched]
            event["tokens"] = list(batch.num_q_tokens)
            # For a decode `num_kv_tokens` counts the token that this very frame is going to sample.
            event["start"] = [
                kv - q - decode for kv, q, decode in zip(batch.num_kv_tokens, batch.num_q_tokens, decoding, strict=True)
            ]
            event["resumed"] = [
                [self.watch.by_id[inner.id].name, inner.num_prefill_tokens]
                for inner, decode in zip(batched, decoding, strict=True)
                if inner.num_restarts and not decode
            ]
            # What the simulator's events do between scheduling a batch and the end of its only stage.
            batch.on_schedule(self.time)
            stage = batch.to_batch_stage(0, types.SimpleNamespace(total_time=1, model_time=1))
            stage.on_schedule(self.time)
            self.flying[self.frame] = (batch, stage)
        elif not self.live:
            event["reason"] = "idle"
        elif watch.acts:
            event["reason"] = "everybody was preempted"
        else:
            event["reason"] = "nothing could be admitted or grown"
        event["observed"] = self._observed(batched)
        return event

    def _observed(self, batched: list[Any]) -> Reply:
        scheduler = self.scheduler
        running = sorted([*scheduler._preempted_requests, *batched], key=lambda inner: inner.arrived_at)
        names = [self.watch.by_id[inner.id].name for inner in running]
        held = []
        for inner_id, live in self.watch.by_id.items():
            blocks = scheduler._allocation_map.get(inner_id, 0)
            if live.name not in names and (blocks or live.computed()):
                held.append([live.name, blocks, live.computed()])
        return {
            "free": [self.watch.free()],
            "running": names,
            "waiting": [self.watch.by_id[inner.id].name for inner in scheduler._request_queue],
            "held": held,
        }

    def deliver(self, cmd: Command) -> Reply:
        frame = cmd["frame"]
        if not 0 <= frame <= self.frame:
            raise ValueError(f"deliver: frame {frame} was never dispatched")
        reply = {"event": "deliver", "frame": frame, "requests": cmd["requests"], "tokens": cmd["tokens"]}
        finished: list[Reply] = []
        if frame in self.flying:
            batch, stage = self.flying.pop(frame)
            end = self.time + 1
            self.watch.begin()
            stage.on_stage_end(end)
            self.scheduler.on_stage_end(0, stage)
            batch.on_batch_end(end)
            self.scheduler.on_batch_end(batch)
            for inner in batch.requests:
                live = self.watch.by_id[inner.id]
                if inner.completed and self.live.get(live.name) is live:
                    blocks = self.watch.returned.get(live.name, [])
                    finished.append({"request": live.name, "reason": "length", "blocks": [blocks]})
                    del self.live[live.name]
                    if inner.id not in self.scheduler._allocation_map:  # else it leaked, and must stay nameable
                        del self.watch.by_id[inner.id]
        return {**reply, "finished": finished}


if __name__ == "__main__":
    claim()
    serve(Vidur(), "vidur")
