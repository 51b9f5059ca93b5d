"""From the columns of the engine's thread to the events of trace v1, in the process beside it.

The words are the adapter's own: `Replay` is its watch, `Teller` makes the events, and both are given what they would
have read of a live scheduler. What is done here is to put back what the columns leave out: who is as before, and where
among the grants of a step each act happened.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from preempt_oracle.engines.vllm_async import Frame, Landing
from preempt_oracle.engines.vllm_telling import Teller
from preempt_oracle.record import records
from preempt_oracle.record.mirror import Mirror
from preempt_oracle.record.sink import Seen
from preempt_oracle.record.timeline import Step

_NANO = 1_000_000_000


class Replay:
    """Records in, events out, in the order in which they happened."""

    def __init__(self, begun: records.Begun, tell: Callable[[Seen], None]) -> None:
        """`tell`: takes each event."""
        self._tell = tell
        self._drafts = begun.drafts
        self._mirror = Mirror(begun)
        self._teller = Teller(self._mirror, self._mirror.flights, begun.traits)
        self._names: list[str] = []
        self._counts: list[int] = []
        self._frames: dict[int, dict[str, int]] = {}
        self._deliver: Seen | None = None  # told when nobody can propose drafts for it any more
        self._finished: list[Seen] = []

    def take(self, record: records.Record) -> None:
        """One record."""
        if isinstance(record, records.Stepped):
            self._finish_delivery()
            self._stepped(record)
        elif isinstance(record, records.Landed):
            self._finish_delivery()
            self._landed(record)
            if not self._drafts:
                self._finish_delivery()
        elif isinstance(record, records.Drafted):
            self._drafted(record)
        else:
            self._finish_delivery()
            self._rare(record)

    def finish(self) -> None:
        """Nothing comes any more: tell what was held back."""
        self._finish_delivery()

    def _rare(self, record: records.Record) -> None:
        mirror = self._mirror
        if isinstance(record, records.Arrived):
            mirror.arrived(record)
            self._tell(
                {
                    "event": "arrive",
                    "request": record.request,
                    "prompt": record.prompt,
                    "max_tokens": record.max_tokens,
                    "priority": record.priority,
                    "arrival": int(record.arrival * _NANO),
                    "salt": record.salt,
                }
            )
        elif isinstance(record, records.Aborted):
            self._aborted(record)
        elif isinstance(record, records.Cleared):
            mirror.begin()
            for one in record.happened:
                mirror.happened(one)
            mirror.regrown(record.grown, record.gone)
            if record.small is not None:
                mirror.walked(record.small)
            _, acts, _ = mirror.take({})
            self._tell({"event": "control", "kind": "reset", "acts": acts})
        elif isinstance(record, records.Paused):
            self._tell({"event": "control", "kind": record.kind})
        elif isinstance(record, records.Broke):
            self._tell(record.told)

    def _stepped(self, told: records.Stepped) -> None:
        mirror, teller = self._mirror, self._teller
        if told.names is not None:
            self._names = told.names
        if told.counts is not None:
            self._counts = told.counts
        scheduled = dict(zip(self._names, self._counts, strict=True))
        mirror.flights.back = told.held_back
        mirror.scheduler.requests = () if told.idle else (None,)
        mirror.scheduler.pause_state = SimpleNamespace(name="PAUSED" if told.paused else "UNPAUSED")
        output = SimpleNamespace(
            num_scheduled_tokens=scheduled,
            scheduled_new_reqs=[
                SimpleNamespace(
                    req_id=new.request,
                    num_computed_tokens=new.computed,
                    block_ids=(new.blocks,),
                    prefill_token_ids=range(new.known),
                )
                for new in told.new
            ],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=self._names if told.cached is None else told.cached,
                num_computed_tokens=told.starts,
                new_block_ids=told.blocks,
                resumed_req_ids={name for name, _ in told.resumed},
                all_token_ids={name: range(count) for name, count in told.resumed if count is not None},
            ),
            scheduled_spec_decode_tokens={name: range(count) for name, count in told.drafts},
        )
        teller.before()
        starts = {new.request: new.computed for new in told.new}
        starts.update(zip(output.scheduled_cached_reqs.req_ids, told.starts, strict=True))
        if not told.full:
            self._as_told(told, output.scheduled_cached_reqs.req_ids)
        Step(mirror, told, list(scheduled.items())).play(starts)
        mirror.regrown(told.grown, told.gone)
        if told.books.running is True:
            told.books.running = self._names
        mirror.read(told.books, past=told.preemptions, cached=told.cached_counts)
        event = teller.step(output)
        if scheduled:
            self._frames[teller.frame] = scheduled
        self._tell(event)

    def _as_told(self, told: records.Stepped, cached: list[str]) -> None:
        """Fill in the tables that grew by just what the worker is told of."""
        named = {one.request for one in told.grown}
        owned = self._mirror.owned
        for name, blocks in zip(cached, told.blocks, strict=True):
            if blocks and name not in named:
                told.grown.append(records.Grown(name, len(owned.get(name, ())), blocks[0]))

    def _landed(self, told: records.Landed) -> None:
        mirror = self._mirror
        scheduled = self._frames.pop(told.frame)
        names = list(scheduled)
        if told.counts is None:
            rows = [[token] for token in told.tokens]
        else:
            rows, at = [], 0
            for count in told.counts:
                rows.append(told.tokens[at : at + count])
                at += count
        sampled = dict(zip(names, rows, strict=True))
        landed = sampled
        if told.shown is not None or told.added is not None:
            added = rows if told.added is None else told.added
            requests = {
                name: SimpleNamespace(num_output_tokens=0, output_token_ids=some)
                for name, some in zip(names, added, strict=True)
            }
            shown = [(n, r) for n, r in sampled.items() if r] if told.shown is None else told.shown
            outputs = [SimpleNamespace(request_id=name, new_token_ids=some) for name, some in shown]
            landing = Landing(Frame(None, requests), sampled)
            landed = landing.landed({0: SimpleNamespace(outputs=outputs)})
        for happening in told.happened:
            mirror.happened(happening)
        for one in told.ended:
            mirror.over(one)
        due = [name for name in names if sampled[name]]
        tokens = [sampled[name] for name in due]
        stopped = {one.request for one in told.ended if one.status == "FINISHED_STOPPED"}
        for i, name in enumerate(due):
            # Drafts accepted behind a stop token were never anybody's: trace v1 has no stop tokens.
            became = landed[name]
            if name in stopped and len(became) < len(tokens[i]) and became == tokens[i][: len(became)]:
                tokens[i] = became
        reply = self._teller.deliver(told.frame, due, tokens, landed)
        self._finished = [{"event": "finish", **one} for one in reply.pop("finished")]
        self._deliver = reply

    def _drafted(self, record: records.Drafted) -> None:
        told = self._deliver
        if told is None:
            return
        kept = dict(zip(record.names, record.kept, strict=True))
        for name, count in kept.items():
            if count and name not in told["requests"]:
                for field, value in (("requests", name), ("tokens", []), ("emitted", []), ("disposition", "delivered")):
                    told[field].append(value)
        if any(kept.values()):
            told["proposed"] = [kept.get(name, 0) for name in told["requests"]]

    def _aborted(self, record: records.Aborted) -> None:
        mirror = self._mirror
        for one in record.ended:
            mirror.over(one)
        mirror.read(record.books)
        finished, mirror.finished = mirror.finished, []
        for i, (name, status, blocks) in enumerate(finished):
            seen: Seen = {"event": "abort", "request": name, "blocks": [blocks]}
            if i == len(finished) - 1:  # the engine's books stand as they are behind the last
                seen["observed"] = mirror.books.observed()
            if status.name != "FINISHED_ABORTED":
                seen["reason"] = status.name.removeprefix("FINISHED_").lower()
            self._teller.told.discard(name)
            self._tell(seen)

    def _finish_delivery(self) -> None:
        """A delivery, held back for the drafts that are proposed behind it, and whoever ended with it."""
        told, self._deliver = self._deliver, None
        finished, self._finished = self._finished, []
        if told is not None:
            for seen in (told, *finished):
                self._tell(seen)
