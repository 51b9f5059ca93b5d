"""LMDeploy's PyTorch scheduler behind the adapter protocol.

Run by path in a Python that has LMDeploy, torch and what else its scheduler imports. The decisions are those of the
engine's own `InputsMakerAsync` (`lmdeploy_engine`), one frame at a time; the engine itself decides one frame ahead.
LMDeploy 0.10.2, whose loop and books are others, has a loop and a watch of its own (`lmdeploy_engine_old`,
`lmdeploy_watch_old`); by which modules the engine has, it is told which of the two it is.

Setting `lookahead`: the engine's `prefill_interval`, 1 if none is asked for: how many tokens a table grows ahead of
those known, and how many decodes may come before a prefill. (Its default is 16, for pages of 64.) In 0.10.2 it is how
many passes one decode makes, without a decision in between: more than 1 is refused.

Observed:

* tables and free list: of the allocator, by physical ids; references: its counts, of those that are not 0 or 1.
* demote: who ran before `preempt_seqs` and waits behind it. trigger: for whom `try_make_capacity_for` last said no.
  In 0.10.2: `_set_message_status` and `evict_for_seq`.
* release: the blocks that lost a reference inside `release_paging_resources`; a victim keeps them until then. In
  0.10.2: inside `BlockManager.free`.
* sent: the block tables in the inputs that leave for the workers; start and tokens of a prefill: from there as well.
* running: of the scheduler's books, not of the maker's list, from which the batches are made.
* waiting: sorted by the time of arrival, as a prefill does.

* hits, publish: what `match` appended to a table, and the nodes that `allocate` hung into the trie of prefixes and
  `evict` took out; `allocate` may exchange blocks of a table for those of the trie. A block that only the trie
  refers to counts as free, and its reference as none. What in 0.10.2 is left of a hit that came to nothing is told as
  pins (`lmdeploy_watch_old`).

Not taken: chunked prefill (its chunks have turns of their own), several frames at once.
"""

from __future__ import annotations

from importlib.util import find_spec
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
    from preempt_oracle.engines.lmdeploy_faults import FAULTS, FAULTS_OLD
else:
    from child import Command, Engine, Refused, Reply, arrive, claim, fixed, header, serve, version_of, whole
    from faults import inject
    from lmdeploy_faults import FAULTS, FAULTS_OLD

VERIFIED = ("0.10.2", "0.18.0")
POLICY = "lmdeploy"
CAPABILITIES = ("abort", "caching", "lookahead", "reuse", "unchunked")
OBSERVES = (
    *("counts", "blocks", "free", "free-ids", "refs", "queues", "demote", "trigger", "release", "reset", "held"),
    *("place", "known", "start", "sent", "hits", "publish", "emitted"),
)


def generation() -> tuple[Any, Any, bool]:
    """Loop and watch for the engine that is installed, and whether it is the old one: its inputs have no module."""
    old = find_spec("lmdeploy.pytorch.engine.inputs_maker") is None
    if TYPE_CHECKING:
        from preempt_oracle.engines import lmdeploy_engine as engine
        from preempt_oracle.engines import lmdeploy_watch as watch
    elif old:
        import lmdeploy_engine_old as engine
        import lmdeploy_watch_old as watch
    else:
        import lmdeploy_engine as engine
        import lmdeploy_watch as watch
    return engine, watch, old


class LMDeploy(Engine):
    """One `Scheduler` and one `InputsMakerAsync`, built by their own constructors."""

    def start(self, config: dict[str, Any]) -> Reply:
        if self.injection is not None:
            self.injection.remove()  # of a start that ended in an error and was never stopped
        engine, watch, old = generation()
        self.injection = inject(config, FAULTS_OLD if old else FAULTS)
        if config.get("policy") != POLICY:
            raise Refused(f"policy {config.get('policy')!r}: this scheduler has policy {POLICY!r} only")
        config = fixed(config, chunked=False, whole_fit=True, long_prefill=0, watermark=0)
        if unknown := sorted(config.get("options", {})):
            raise Refused(f"unknown option {unknown[0]!r}; this adapter has none")
        blocks, page = whole(config, "blocks", 1), whole(config, "page_size", 1)
        running, budget = whole(config, "max_running", 1), whole(config, "budget", 1)
        longest = whole(config, "max_length", 2)
        ahead = max(whole({"lookahead": 0, **config}, "lookahead", 0), 1)
        config["lookahead"] = ahead
        # A prefill beyond the budget would be cut in chunks; one that comes back knows up to longest - 1 tokens.
        if longest - 1 > budget:
            raise Refused(f"max_length={longest} with budget={budget}: a prefill of {longest - 1} tokens is cut")
        # Whoever grows, or comes back, asks for this many tokens of room behind those known, even when alone.
        if longest - 1 + ahead > blocks * page:
            raise Refused(
                f"max_length={longest}, lookahead={ahead} with {blocks} blocks of {page}: one alone lacks room"
            )
        if old and ahead > 1:
            raise Refused(
                f"lookahead={ahead}: a decode of this version is {ahead} passes (prefill_interval), which it does not "
                "decide on one by one; only 1 can be told as steps"
            )
        self.longest = longest

        self.loop = engine.Loop(
            engine.load(),
            blocks=blocks,
            page=page,
            running=running,
            budget=budget,
            longest=longest,
            ahead=ahead,
            caching=bool(config.get("caching", False)),
        )
        self.live: dict[str, Any] = {}  # request -> sequence
        self.frame = -1
        self.flying: dict[int, tuple[list[Any], Any, Any]] = {}
        if self.injection is not None:
            self.injection.put(self.loop)
        self.watch = watch.Watch(self.loop)
        version = version_of("lmdeploy")
        assumes = [] if version in VERIFIED else ["unverified version of the engine"]
        can = tuple(c for c in CAPABILITIES if not (old and c == "lookahead"))
        return header("lmdeploy", version, config, OBSERVES, can, assumes=assumes)

    def stop(self) -> None:
        self.loop.close()
        del self.loop, self.watch
        self.live.clear()
        if self.injection is not None:
            self.injection.remove()

    # -- commands ----------------------------------------------------------------------------------------------------

    def add(self, cmd: Command) -> Reply:
        name, prompt, outputs = cmd["request"], cmd["prompt"], cmd["max_tokens"]
        if name in self.live:
            raise Refused(f"request {name!r} is live")
        if cmd.get("salt"):
            raise Refused(f"request {name!r}: this engine has no cache salt")
        if not prompt or outputs < 1 or len(prompt) + outputs > self.longest:
            # The scheduler takes anything; a "reject" here would claim a check that it does not make.
            raise Refused(f"request {name!r}: needs 1 <= prompt, 1 <= max_tokens, together at most {self.longest}")
        seq = self.loop.add(prompt, outputs)
        self.live[name] = seq
        self.watch.names[seq.seq_id] = name
        return arrive(cmd)

    def abort(self, request: str) -> Reply:
        seq = self.live.get(request)
        if seq is None:
            raise Refused(f"request {request!r} is not live")
        self.watch.begin()
        self.loop.abort(seq)
        self._over(request)
        blocks = self.watch.returned.get(request, [])
        event = {"event": "abort", "request": request, "blocks": [blocks], "observed": {"free": [self._free()]}}
        return event | ({"acts": self.watch.acts} if self.watch.acts else {})

    def step(self) -> Reply:
        if self.flying:
            raise Refused(f"one frame at a time: frame {self.frame} must be delivered first")
        self.frame += 1
        watch = self.watch
        watch.begin()
        event: Reply = {"event": "step", "frame": self.frame}
        if not self.live and not watch.waiting() and not watch.running():
            event["reason"] = "idle"  # the loop waits for something to do
        else:
            batch, prefill, decode = watch.step()
            if not batch:
                event["reason"] = "everybody was preempted" if watch.acts else "nothing could be admitted or grown"
            else:
                self.flying[self.frame] = (batch, prefill, decode)
                event |= self._prefilled(batch, prefill) if decode is None or prefill is not None else {}
                event |= self._decoded(batch) if prefill is None else {}
                sent = watch.sent(batch, decode if prefill is None else prefill)
                event["sent"] = [[name, 0, table, True] for name, table in sent]
        told = {"blocks": watch.deltas, "hits": watch.hits, "acts": watch.acts}
        return event | told | {"observed": self._observed()}

    def _prefilled(self, batch: list[Any], inputs: Any) -> Reply:
        names = [self.watch.name(seq) for seq in batch]
        back = [[n, int(seq.num_all_ids)] for n, seq in zip(names, batch, strict=True) if n in self.watch.preempted]
        self.watch.preempted.difference_update(names)
        tokens, start = inputs.seq_length.tolist(), inputs.history_lengths.tolist()
        return {"requests": names, "tokens": tokens, "start": start, "resumed": back}

    def _decoded(self, batch: list[Any]) -> Reply:
        turned = self.watch.turned(batch)
        return {
            "requests": [self.watch.name(seq) for seq in turned],
            "tokens": [int(seq.num_token_ids) for seq in turned],
            "start": [int(seq.num_history_ids) for seq in turned],
        }

    def _free(self) -> int:
        """Free blocks, and those that only the trie refers to: it gives them up when they are needed."""
        return int(self.watch.manager.get_num_free_gpu_blocks()) + len(self.watch.idle())

    def _observed(self) -> dict[str, Any]:
        watch = self.watch
        gpu = watch.allocator.get_phy_allocator("gpu")
        free = [int(b) for b in gpu._free_blocks[gpu._num_blocks - gpu._free_count :]]
        waiting = watch.waiting()
        counts: dict[int, int] = {}
        for seq in watch.scheduler.seq_manager.get_all_sequences():
            logical = seq.logical_blocks.get_real_blocks()
            counts |= {int(b): int(n) for b, n in zip(logical, watch.allocator.get_ref_count(logical), strict=True)}
        hung = watch.hung()
        shared = {watch.physical(b): n - (b in hung) for b, n in counts.items() if n - (b in hung) not in (0, 1)}
        return {
            "free": [self._free()],
            "free_ids": [free + watch.idle()],
            "running": [watch.name(seq) for seq in watch.running()],
            "waiting": [watch.name(seq) for seq in waiting],
            "held": [list(h) for h in watch.held() if h[1] or h[2]],
            "refs": [[0, b, n] for b, n in sorted(shared.items())],
        }

    def deliver(self, cmd: Command) -> Reply:
        frame, requests, tokens = cmd["frame"], list(cmd["requests"]), list(cmd["tokens"])
        if not 0 <= frame <= self.frame:
            raise ValueError(f"deliver: frame {frame} was never dispatched")
        reply: Reply = {"event": "deliver", "frame": frame, "requests": requests, "tokens": tokens}
        if frame not in self.flying:
            return {**reply, "emitted": [[] for _ in requests], "finished": []}
        batch, prefill, decode = self.flying.pop(frame)
        self.watch.begin()
        sampled = {name: given[-1] for name, given in zip(requests, tokens, strict=True) if given}
        before = {name: len(seq.generated_ids) for name, seq in self.live.items()}
        stopped = self.loop.lib.status.STOPPED
        over = [(seq, int(seq.num_all_ids)) for seq in batch if seq.status is stopped]
        # The worker samples for every sequence of a batch. Where the harness gave no token, because by its own count
        # this grant did not reach the last known one, any token shows the engine's error.
        self.loop.deliver(batch, prefill, decode, [sampled.get(self.watch.name(seq), 0) for seq in batch])
        fresh = {name: [int(t) for t in seq.generated_ids[before[name] :]] for name, seq in self.live.items()}
        # Of those that were over before, the engine drops what was sampled, unless it did append it.
        dropped = {self.watch.name(seq) for seq, had in over if int(seq.num_all_ids) == had}
        extra = [name for name, new in fresh.items() if new and name not in requests]
        reply["requests"], reply["tokens"] = requests + extra, tokens + [[] for _ in extra]
        finished = []
        for name, seq in list(self.live.items()):
            if seq.status is stopped:
                self.loop.end(seq)
                self._over(name)
                finished.append({"request": name, "reason": "length", "blocks": [self.watch.returned.get(name, [])]})
        self.watch.forget()
        emitted, given = [], dict(fresh)
        for name in reply["requests"]:
            emitted.append(given.pop(name, []))  # of one that stands there twice, with the first
        if dropped:
            reply["disposition"] = ["dropped" if name in dropped else "delivered" for name in reply["requests"]]
        return {**reply, "emitted": emitted, "finished": finished}

    def _over(self, name: str) -> None:
        self.live.pop(name)
        self.watch.preempted.discard(name)


if __name__ == "__main__":
    claim()
    serve(LMDeploy(), "lmdeploy")
