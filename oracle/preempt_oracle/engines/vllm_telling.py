"""From what was seen of a vLLM scheduler to the events of trace v1, for whoever drives it: the adapter, or an engine.

Runs in the engine's Python (standard library only). `start` and `sent` are read from `SchedulerOutput` alone, which is
what a worker would get; block ids are vLLM's own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines import vllm_seams as seams
    from preempt_oracle.engines.child import Reply
    from preempt_oracle.engines.vllm_async import CADENCE, Flights
    from preempt_oracle.engines.vllm_watch import Watch
else:
    import vllm_seams as seams
    from child import Reply
    from vllm_async import CADENCE, Flights
    from vllm_watch import Watch

OBSERVES = (
    "counts",
    "blocks",
    "free",
    "queues",
    "demote",
    "trigger",
    "release",
    "reset",
    "held",
    "place",
    "known",
    "start",
    "sent",
    "hits",
    "publish",
    "emitted",
    "reject",
)
OBSERVES_SMALL = ("free-ids", "refs")
REASONS = {"FINISHED_LENGTH_CAPPED": "length", "FINISHED_STOPPED": "stop", "FINISHED_ABORTED": "abort"}


class Teller:
    """The events of one scheduler. Numbers its steps, and knows which requests its worker was told of."""

    def __init__(self, watch: Watch, flights: Flights, traits: Collection[str]) -> None:
        """`traits`: of its version, see `vllm_versions`."""
        self.watch = watch
        self.books = watch.books
        self.flights = flights
        self.scheduler = watch.books.scheduler
        self.traits = traits
        self.counts = {"preemption-count", "cached-count"} <= set(traits)
        self.frame = -1
        self.told: set[str] = set()  # live requests the worker knows: told again in full, they resume
        self._held_back: list[str] = []

    def observes(self) -> tuple[str, ...]:
        """What the header declares."""
        return OBSERVES + (OBSERVES_SMALL if self.books.small else ()) + (("stats",) if self.counts else ())

    def before(self) -> None:
        """`schedule` is about to be called."""
        self.watch.begin()
        self._held_back = self.flights.held_back()

    def step(self, output: Any) -> Reply:
        """The step behind a call of `schedule`, and what it answered."""
        self.frame += 1
        self.flights.dispatch(self.frame, output)
        scheduled = output.num_scheduled_tokens
        grants, acts, deltas = self.watch.take(scheduled)
        gone = {act["request"] for act in acts if act["act"] == "demote"}
        skips = [
            {"act": "skip", "request": name, "guard": CADENCE}
            for name in self._held_back
            if name not in scheduled and name not in gone
        ]
        starts, sent, resumed = self._message(output)
        names = [grant.request for grant in grants]
        observed = self.books.observed()
        if self.counts:
            observed |= self.books.counted([new.req_id for new in output.scheduled_new_reqs])
        reply: Reply = {
            "event": "step",
            "frame": self.frame,
            "requests": names,
            "tokens": [grant.tokens for grant in grants],
            "blocks": deltas,
            "sent": sent,
            "resumed": resumed,
            "hits": [[grant.request, grant.hit] for grant in grants if grant.hit is not None],
            "acts": skips + acts,
            "observed": observed,
        }
        # Without a start for each grant the whole field would be a guess; a request the worker is not told of has none.
        if all(name in starts for name in names):
            reply["start"] = [starts[name] for name in names]
        drafts = output.scheduled_spec_decode_tokens
        if drafts:
            reply["drafts"] = [[name, len(tokens)] for name, tokens in drafts.items()]
        if not names:
            reply["reason"] = self._why_empty(acts)
        self.told.update(names)
        return reply

    def _message(self, output: Any) -> tuple[dict[str, int], list[list[Any]], list[list[Any]]]:
        """What the worker is told: where each grant starts, block tables, and who resumes with how many tokens."""
        starts: dict[str, int] = {}
        sent: list[list[Any]] = []
        resumed: list[list[Any]] = []
        for new in output.scheduled_new_reqs:
            name = new.req_id
            starts[name] = new.num_computed_tokens
            sent.append([name, 0, list(new.block_ids[0]), True])
            if name in self.told:  # the V2 runner gets a resumed request as a new one, outputs included
                resumed.append([name, len(seams.prefill_tokens(new))])
        cached = output.scheduled_cached_reqs
        again = seams.resumed(cached)
        names = cached.req_ids
        starts.update(zip(names, cached.num_computed_tokens, strict=True))
        for name, blocks in zip(names, cached.new_block_ids, strict=True):
            if name in again:
                sent.append([name, 0, list(blocks[0]) if blocks else [], True])
                tokens = seams.resumed_tokens(cached, name)
                resumed.append([name, None if tokens is None else len(tokens)])
            elif blocks and blocks[0]:
                sent.append([name, 0, list(blocks[0])])
        return starts, sent, resumed

    def _why_empty(self, acts: list[dict[str, Any]]) -> str:
        if not self.scheduler.requests:
            return "idle"
        if "pause" in self.traits and self.scheduler.pause_state.name != "UNPAUSED":
            return "paused"
        if any(act["act"] == "demote" for act in acts):
            return "everybody who could run was preempted, and nobody is admitted in a step that preempts"
        return "nothing could be admitted or grown"

    def finished(self) -> list[dict[str, Any]]:
        """Who is over since the last call."""
        finished = []
        for name, status, blocks in self.watch.finished:
            reason = REASONS.get(status.name, status.name.removeprefix("FINISHED_").lower())
            finished.append({"request": name, "reason": reason, "blocks": [blocks], **self.until(name)})
            self.told.discard(name)
        self.watch.finished.clear()
        return finished

    def until(self, name: str) -> dict[str, int]:
        """The fence behind which the blocks of a request that is over went: vLLM's is its latest frame."""
        holds = self.watch.holds
        if holds is None or name not in holds.late:
            return {}
        holds.late.discard(name)
        return {"until": max(self.flights.frames)}

    def deliver(self, number: int, names: list[str], tokens: list[list[int]], landed: dict[str, list[int]]) -> Reply:
        """The delivery of a frame: what was sampled for whom, and what came of it. `finished` goes behind it."""
        due = set(names)
        names = [*names, *(name for name, some in landed.items() if some and name not in due)]
        tokens = [*tokens, *([] for _ in range(len(names) - len(tokens)))]
        return {
            "event": "deliver",
            "frame": number,
            "requests": names,
            "tokens": tokens,
            "emitted": [landed[name] for name in names],
            # What was sampled and left no trace in the request or in what the user sees was dropped.
            "disposition": [
                "delivered" if landed[name] or not some else "dropped" for name, some in zip(names, tokens, strict=True)
            ],
            "acts": self.watch.labels(),
            "finished": self.finished(),
        }
