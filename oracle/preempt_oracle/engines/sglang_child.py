"""SGLang's scheduler behind the adapter protocol: retraction and priorities, radix cache or not, pages of any size.

Run by path in a Python that has SGLang on its path. How the scheduler is made: `sglang_build`; how it is looked at:
`sglang_watch`. One iteration of the engine's own loop is a step (`get_next_batch_to_run`) and a delivery
(`process_batch_result_prefill` or `…_decode`).

Everything declared is the engine's own. Not declared: "reject" (its front end shortens requests, the scheduler takes
anything), "stats" (counters are kept by parts of the server that are not here).

* blocks: pages of the allocator (slot // page size); page 0 is reserved, for padding.
* free: what the allocator has, and what the tree has that nobody locks. free-ids: the allocator's list and the tree.
* refs: the lock count of a tree node, which says how many running requests hold its pages.
* sent: the rows of `req_to_token_pool`, which the worker reads, as they stand when the batch is made.
* start: `prefix_lens` of a prefill batch; of a decode batch the sequence lengths, less the token it computes.
* hits: the prefix that the batch presents as there. publish: what the tree's nodes gained and lost.
* exchange: what the tree already had of what a request computed: its own pages are given back and the tree's stand in
  their place.

Under `sglang-priority` the scheduler is one of --enable-priority-scheduling with `threshold`; the smaller a priority,
the better. Who is displaced at an admission is back in the queue once those who were admitted have left it, so its
requeue is told behind their grants.

Refused, with the reason: chunked and mixed prefills, more than one frame in flight, and the abort of a request that
runs: SGLang marks it and lets it run one more pass, so that it is not out of its queue at the next boundary.
"""

from __future__ import annotations

import types
from collections import Counter
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
    from preempt_oracle.engines.sglang_build import VERIFIED, VOCABULARY, build, lacking, load
    from preempt_oracle.engines.sglang_faults import FAULTS
    from preempt_oracle.engines.sglang_watch import Watch
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
    from sglang_build import VERIFIED, VOCABULARY, build, lacking, load
    from sglang_faults import FAULTS
    from sglang_watch import Watch

RETRACT, PRIORITY = POLICIES = ("sglang-retract", "sglang-priority")
CAPABILITIES = ("abort", "caching", "salt", "unchunked")
BY_PRIORITY = ("priority", "threshold")
OBSERVES = (
    *("counts", "blocks", "free", "free-ids", "refs", "queues", "demote", "trigger", "release", "reset", "held"),
    *("place", "known", "start", "sent", "hits", "publish", "emitted"),
)


class SGLang(Engine):
    """One scheduler, made anew by each start."""

    sgl: Any = None
    watch: Watch | None = None

    def start(self, config: dict[str, Any]) -> Reply:
        self._drop()  # of a start that ended in an error and was never stopped
        version = version_of("sglang")
        if version not in VERIFIED:
            raise Unsupported(
                f"sglang {version}: this adapter makes the scheduler of {', '.join(VERIFIED)}, part by part"
            )
        if self.sgl is None:  # before anything is refused: only the first answer may take as long as an import does
            self.sgl = load()
        self.injection = inject(config, FAULTS)
        if config.get("policy") not in POLICIES:
            raise Refused(f"policy {config.get('policy')!r}: this adapter drives {' and '.join(POLICIES)}")
        priority = config["policy"] == PRIORITY
        threshold = whole({"threshold": 0, **config}, "threshold", 0)
        if threshold and not priority:
            raise Refused(f"threshold={threshold}: nobody is displaced under {RETRACT!r}")
        config = fixed(config, chunked=False, whole_fit=True, long_prefill=0, watermark=0, frames=1)
        if unknown := sorted(config.get("options") or {}):
            raise Refused(f"unknown option {unknown[0]!r}; there are none")
        caching = config.get("caching", False)
        if type(caching) is not bool:
            raise Refused(f"caching={caching!r}: must be true or false")
        shape = types.SimpleNamespace(
            blocks=whole(config, "blocks", 3),
            page=whole(config, "page_size", 1),
            running=whole(config, "max_running", 1),
            budget=whole(config, "budget", 1),
            longest=whole(config, "max_length", 2),
            caching=caching,
            priority=priority,
            threshold=threshold,
        )
        if shape.budget < max(shape.longest, shape.running):
            # Without chunks a prefill above the budget runs all the same, and decodes are not budgeted at all.
            raise Refused(f"budget={shape.budget}: needs max_length ({shape.longest}) and max_running or more")
        if shape.longest >= (shape.blocks - 1) * shape.page:
            raise Refused(f"max_length={shape.longest}: the front end shortens what leaves no page and a token free")
        self.shape = shape
        self.scheduler = build(self.sgl, shape)
        self.live: dict[str, Any] = {}
        self.frame = -1
        self.flying: dict[int, Any] = {}
        if self.injection is not None:
            self.injection.put(types.SimpleNamespace(scheduler=self.scheduler, batch=self.sgl.batch, sgl=self.sgl))
        self.watch = Watch(self.sgl, self.scheduler)
        can = CAPABILITIES + BY_PRIORITY * priority
        return header("sglang", version, {**config, "caching": caching}, OBSERVES, can, reserved=1)

    def stop(self) -> None:
        self._drop()

    def _drop(self) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None
            del self.scheduler
        if self.injection is not None:
            self.injection.remove()

    def _seen(self) -> Watch:
        assert self.watch is not None
        return self.watch

    def _run(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the engine. What it lacks because this adapter did not give it is no finding."""
        try:
            return call(*args, **kwargs)
        except AttributeError as error:
            if lack := lacking(error, self.scheduler):
                raise Unsupported(lack) from error
            raise

    # -- commands ----------------------------------------------------------------------------------------------------

    def add(self, cmd: Command) -> Reply:
        name, prompt, outputs = cmd["request"], cmd["prompt"], cmd["max_tokens"]
        if name in self.live:
            raise Refused(f"request {name!r} is live")
        if not prompt or outputs < 1 or len(prompt) + outputs > self.shape.longest:
            raise Refused(
                f"request {name!r}: needs 1 <= prompt, 1 <= max_tokens, together at most {self.shape.longest}"
            )
        sgl = self.sgl
        params = sgl.sampling(temperature=0, max_new_tokens=outputs)
        params.normalize(None)
        req = sgl.req(
            name,
            "",
            sgl.tokens("q", prompt),
            params,
            vocab_size=VOCABULARY,
            eos_token_ids=set(),
            cache_salt=cmd.get("salt") or None,
            priority=cmd.get("priority", 0) if self.shape.priority else None,
        )
        require(req, ("rid", "output_ids", "origin_input_ids", "kv", "last_node", "is_retracted", "finished_reason"))
        require(req.kv, ("req_pool_idx", "kv_committed_len", "kv_allocated_len"))
        self._run(self.scheduler.init_req_max_new_tokens, req)
        if params.max_new_tokens != outputs:
            raise Refused(f"request {name!r}: the front end shortens it to {params.max_new_tokens} outputs")
        self.live[name] = req
        self._run(self.scheduler._add_request_to_queue, req)
        return arrive(cmd)

    def abort(self, request: str) -> Reply:
        req = self.live.get(request)
        if req is None:
            raise Refused(f"request {request!r} is not live")
        if all(req is not waiting for waiting in self.scheduler.waiting_queue):
            raise Refused(f"request {request!r} runs: an abort would be heard in the next pass, and end it then")
        watch = self._seen()
        watch.begin()
        before = Counter(watch.free_pages())
        self._run(self.scheduler.abort_request, self.sgl.abort(rid=request))
        del self.live[request]
        back = watch.back(request, Counter(watch.free_pages()) - before)
        watch.tables.pop(request, None)
        watch.retold()
        return {
            "event": "abort",
            "request": request,
            "reason": "user",
            "blocks": [back],
            "observed": {"free": [self._free()]},
            "acts": watch.acts,
        }

    def step(self) -> Reply:
        if self.flying:  # the engine's own loop runs a batch and processes its result before it makes the next
            raise Refused(f"one frame at a time: frame {self.frame} must be delivered first")
        self.frame += 1
        scheduler, watch = self.scheduler, self._seen()
        watch.begin()
        again = {name for name, req in self.live.items() if req.is_retracted}
        watch.scheduling = True
        try:
            plan = self._run(
                scheduler.get_next_batch_to_run, running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
            )
        finally:
            watch.scheduling = False
        scheduler.running_batch, batch = plan.running_batch, plan.batch_to_run
        event: Reply = {"event": "step", "frame": self.frame}
        if batch is None:
            scheduler.last_batch = None
            event["reason"] = "nothing could be admitted" if self.live else "idle"
        else:
            extend = bool(batch.forward_mode.is_extend())
            names = [req.rid for req in batch.reqs]
            ends = [int(n) for n in batch.seq_lens.tolist()]
            starts = [int(n) for n in batch.prefix_lens] if extend else [end - 1 for end in ends]
            tokens = [end - start for start, end in zip(starts, ends, strict=True)]
            event |= {"requests": names, "tokens": tokens, "start": starts}
            watch.granted(batch, tokens, starts, extend)
            event["sent"] = [[req.rid, 0, watch.row(req, end), True] for req, end in zip(batch.reqs, ends, strict=True)]
            if extend:
                event["resumed"] = [[n, end] for n, end in zip(names, ends, strict=True) if n in again]
            self.flying[self.frame] = batch
        watch.retold()
        running = [*scheduler.running_batch.reqs]
        if batch is not None and batch is not scheduler.running_batch:
            running += batch.reqs
        observed = self._observed([req.rid for req in running])
        return event | {"blocks": watch.deltas, "hits": watch.hits, "acts": watch.acts, "observed": observed}

    def _free(self) -> int:
        free = self.scheduler.token_to_kv_pool_allocator.available_size() + self.scheduler.tree_cache.evictable_size()
        return int(free // self.shape.page)

    def _observed(self, running: list[str]) -> dict[str, Any]:
        watch, page = self._seen(), self.shape.page
        locks = watch.locks()
        held = []
        for name, req in self.live.items():
            blocks = -(-int(req.kv.kv_allocated_len) // page) if req.kv.req_pool_idx is not None else 0
            if name not in running and (blocks or req.kv.kv_committed_len):
                held.append([name, blocks, int(req.kv.kv_committed_len)])
        return {
            "free": [self._free()],
            "free_ids": [watch.free_pages() + [p for p, n in locks.items() if not n]],
            "running": running,
            "waiting": [req.rid for req in self.scheduler.waiting_queue],
            "held": held,
            "refs": [[0, p, n] for p, n in locks.items() if n not in (0, 1)],
        }

    def deliver(self, cmd: Command) -> Reply:
        frame, requests, tokens = cmd["frame"], list(cmd["requests"]), list(cmd["tokens"])
        if not 0 <= frame <= self.frame:
            raise ValueError(f"deliver: frame {frame} was never dispatched")
        reply = {"event": "deliver", "frame": frame, "requests": requests, "tokens": tokens}
        batch = self.flying.pop(frame, None)
        if batch is None:
            return {**reply, "emitted": [[] for _ in requests]}
        sampled = {name: given[-1] for name, given in zip(requests, tokens, strict=True) if given}
        reqs = dict(self.live)
        before = {name: len(req.output_ids) for name, req in reqs.items()}
        scheduler, watch = self.scheduler, self._seen()
        watch.begin()
        free = Counter(watch.free_pages())
        # The engine samples for all of a batch. Where the harness gave nothing, any token shows the engine's error.
        drawn = self.sgl.torch.tensor([sampled.get(req.rid, 0) for req in batch.reqs])
        results = scheduler.batch_result_processor
        extend = batch.forward_mode.is_extend()
        process = results.process_batch_result_prefill if extend else results.process_batch_result_decode
        self._run(process, batch, self.sgl.result(next_token_ids=drawn))
        scheduler.last_batch = batch
        appended = {name: list(req.output_ids[before[name] :]) for name, req in reqs.items()}
        extra = [name for name, fresh in appended.items() if fresh and name not in requests]
        reply["requests"], reply["tokens"] = requests + extra, tokens + [[] for _ in extra]
        reply["emitted"] = [appended.pop(name, []) for name in reply["requests"]]
        joined = Counter(watch.free_pages()) - free
        for page in watch.exchanged:
            joined[page] -= 1
        joined = +joined
        over = [name for name, req in reqs.items() if req.finished()]
        return {**reply, "acts": watch.acts, "finished": [self._finished(name, over, joined) for name in over]}

    def _finished(self, name: str, over: list[str], joined: Counter[int]) -> Reply:
        """The end of a request. What came back and is in nobody's table who ended is told of the first of them."""
        watch = self._seen()
        others = {page for other in over if other != name for page in watch.tables.get(other, ())}
        mine = Counter({p: n for p, n in joined.items() if p in watch.tables.get(name, ()) or p not in others})
        back = watch.back(name, mine)
        for page in mine:
            if page not in others:
                del joined[page]
        watch.tables.pop(name, None)
        req = self.live.pop(name)
        reason = "length" if type(req.finished_reason).__name__ == "FINISH_LENGTH" else "stop"
        return {"request": name, "reason": reason, "blocks": [back]}


if __name__ == "__main__":
    claim()
    serve(SGLang(), "sglang")
