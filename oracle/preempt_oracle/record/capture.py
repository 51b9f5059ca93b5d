"""A vLLM scheduler at work, seen from inside the engine that drives it: its calls, turned into columns.

This is all that the engine's thread pays for, so nothing in here is done request by request in a step in which
everybody decodes: columns are read, compared and encoded by C loops, and one that is as before is not told. Events are
made of them, hashed, written and judged by the process at the other end of the channel (`replay`, `keeper`).

The engine is in charge, so nothing in here may raise into it: a fault of ours, or something trace v1 has no words for,
ends the recording and takes the eyes off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import wraps
from itertools import chain, compress, repeat
from operator import attrgetter, getitem
from typing import Any, Concatenate, ParamSpec, Protocol

from preempt_oracle.engines import vllm_seams as seams
from preempt_oracle.engines.child import describe as engine_error
from preempt_oracle.engines.vllm_async import Flights
from preempt_oracle.engines.vllm_books import Books
from preempt_oracle.record import records
from preempt_oracle.record.eyes import ID, Eyes, Untellable
from preempt_oracle.record.reading import AUDIT, Reading

P = ParamSpec("P")
_ADDED = attrgetter("_output_token_ids")
_OUTPUTS = attrgetter("outputs")
_SHOWN = attrgetter("new_token_ids")
_DRAFTS = attrgetter("spec_token_ids")
_LABELS = (records.Published, records.Withdrawn)
_flat = chain.from_iterable


class Channel(Protocol):
    """Where records go. `put` and `flush` neither wait nor raise."""

    stopped: bool  # nothing is taken any more

    def put(self, record: records.Record, /) -> None:
        """One record."""

    def flush(self) -> None:
        """Hand over what is gathered, as far as it can be without waiting."""

    def close(self, last: records.Record, lost: Callable[[], int]) -> None:
        """The last record there is; may wait a while."""


def describe(error: BaseException) -> str:
    """An exception of ours in one line of a log."""
    trace: Any = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" ({trace.tb_frame.f_code.co_name}, line {trace.tb_lineno})"
    return f"{type(error).__name__}: {error}{where}"


def harmless(method: Callable[Concatenate[Capture, P], None]) -> Callable[Concatenate[Capture, P], None]:
    """A method that does nothing but count once the recording is over, and ends it where it would raise."""
    tells = not method.__name__.startswith("before")

    @wraps(method)
    def guarded(self: Capture, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if self.over or self.channel.stopped:
            self.end()
            self.lost += tells
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.failed(error)

    return guarded


class Frame:
    """What the worker was told to run: the lists to which the outputs of its requests are added, among others.

    Kept as objects, because a request that is over is in none of vLLM's books, and what vLLM adds to it all the same
    must not go unseen.
    """

    __slots__ = ("added", "names", "number", "output")

    def __init__(self, output: Any, number: int) -> None:
        self.output = output
        self.number = number
        self.names: list[str] = []
        self.added: list[list[int]] | None = None


class Capture:
    """Told by the recording scheduler of each of its calls, before or behind it. No method raises, once it is built."""

    def __init__(self, books: Books, traits: frozenset[str], channel: Channel, *, stages: int) -> None:
        """`stages`: see `Flights`. Raises Unsupported."""
        scheduler = books.scheduler
        self.channel = channel
        self.over = False
        self.lost = 0  # calls of the engine's that were not told of
        self.inside = False  # of `update_from_output`: who the engine ends there, ends with the frame
        self._scheduler = scheduler
        self._traits = traits
        self._counts = {"preemption-count", "cached-count"} <= traits
        self.eyes = Eyes(books, self.failed)
        self._reading = Reading(books, self.eyes, counts=self._counts)
        self.eyes.cut = self._reading.cut
        self._flights = Flights(scheduler, stages) if stages > 1 else None
        self.paced = stages > 1  # `before_step` wants to be told
        self._held_back: list[str] = []
        self._frames: deque[Frame] = deque()
        self._landing: tuple[Frame, Any, list[int] | None] | None = None
        self._number = -1
        # Columns as they were told last.
        self._names: list[str] = []
        self._tokens: list[int] = []
        self._drafts = bool(scheduler.num_spec_tokens)

    # -- the end -----------------------------------------------------------------------------------------------------

    def failed(self, error: BaseException) -> None:
        """A fault of ours, or an event without words: the recording ends."""
        self.stop(str(error) if isinstance(error, Untellable) else f"the recorder failed: {describe(error)}")

    def stop(self, why: str) -> None:
        """What comes now cannot be told."""
        if not self.over:
            self.lost += 1
            self.end()
            self.channel.put(records.Stop(why))
            self.channel.flush()

    def end(self) -> None:
        """Take the eyes off the scheduler."""
        if not self.over:
            self.over = True
            self.eyes.close()

    def close(self) -> None:
        """The engine shuts down: a regular end."""
        self.end()
        self.channel.close(records.Bye(), lambda: self.lost)

    # -- calls of the engine -------------------------------------------------------------------------------------------

    @harmless
    def arrived(self, request: Any, known: bool) -> None:
        """Behind `add_request`. `known`: a request of that id was alive."""
        self.eyes.stirred = True
        if known:
            raise Untellable("a request that is alive was added to: sessions with streamed input are not recorded")
        for what, there in (
            ("prompt embeddings", request.prompt_token_ids is None or getattr(request, "prompt_embeds", None)),
            ("images or other media", getattr(request, "mm_features", None)),
            ("structured output", getattr(request, "structured_output_request", None)),
            ("pooling", getattr(request, "pooling_params", None)),
            ("streamed input", getattr(request, "resumable", False)),
        ):
            if there is not None and there is not False and there != []:
                raise Untellable(f"a request with {what} came in, which is not recorded")
        salt = getattr(request, "cache_salt", None) or ""
        lora = getattr(request, "lora_request", None)
        if lora is not None:  # vLLM keeps the blocks of adapters apart by name
            salt = f"{salt}\0{lora.lora_name}"
        told = records.Arrived(
            request.request_id,
            list(request.prompt_token_ids),
            request.max_tokens,
            request.priority,
            request.arrival_time,
            salt,
        )
        self.channel.put(told)

    def before_step(self) -> None:
        """In front of `schedule`, where pipeline stages space the decodes of a request."""
        if self._flights is not None and not self.over:
            try:
                self._held_back = self._flights.held_back()
            except Exception as error:
                self.failed(error)

    @harmless
    def stepped(self, output: Any) -> None:
        """Behind `schedule`."""
        eyes, reading = self.eyes, self._reading
        self._number = number = self._number + 1
        frame = Frame(output, number)
        cached = output.scheduled_cached_reqs
        told = records.Stepped(
            None, None, None, cached.num_computed_tokens, cached.new_block_ids, records.Books(reading.free())
        )
        if eyes.happened:
            told.happened = eyes.happened
        if output.num_scheduled_tokens:
            self._frames.append(frame)
        else:
            told.idle = not self._scheduler.requests
            told.paused = "pause" in self._traits and self._scheduler.pause_state.name != "UNPAUSED"
        if output.scheduled_new_reqs:
            self._admitted(told, output.scheduled_new_reqs)
        if again := seams.resumed(cached):
            self._resumed(told, cached, again)
        if told.new or told.resumed:
            told.hits = eyes.hits
        if drafts := output.scheduled_spec_decode_tokens:
            told.drafts = list(zip(drafts, map(len, drafts.values()), strict=True))
        if self._flights is not None:
            told.held_back = self._held_back
            self._flights.dispatch(number, output)
            self._flights.frames.clear()  # they are kept here; its grants are what is needed
        audit = reading.small_pool or not number % AUDIT
        if audit:
            live = self._scheduler.requests
            frame.added = [_ADDED(live[name]) if name in live else [] for name in output.num_scheduled_tokens]
            told.preemptions = reading.preemptions()
        told.full = audit
        told.grown, told.gone = reading.tables() if audit else reading.appended(told, cached.req_ids)
        if reading.small_pool:
            told.books.small = reading.small()
        waiting = reading.queues(audit or bool(told.new or told.resumed), told.books)
        self.channel.put(self._columns(frame, told, reading.ran(), waiting))
        eyes.happened.clear()
        eyes.hits.clear()
        eyes.short = None

    def _resumed(self, told: records.Stepped, cached: Any, again: Collection[str]) -> None:
        for name in cached.req_ids:
            if name in again:
                some = seams.resumed_tokens(cached, name)
                told.resumed.append((name, None if some is None else len(some)))

    def _columns(self, frame: Frame, told: records.Stepped, running: Any, waiting: Any) -> records.Stepped:
        """A step, its columns compared with those told last."""
        output = frame.output
        names, tokens = list(output.num_scheduled_tokens), list(output.num_scheduled_tokens.values())
        known = output.scheduled_cached_reqs.req_ids
        if known != names:
            told.cached = known
        if names != self._names:
            self._names = told.names = names
        if tokens != self._tokens:
            self._tokens = told.counts = tokens
        frame.names = self._names
        if running is not None:
            ids = list(map(ID, running))
            told.books.running = ids == names or ids
        if waiting is not None:
            *held, last = waiting
            told.books.waiting = records.Waiting(list(map(ID, _flat(held))), list(map(ID, last)))
        return told

    def _admitted(self, told: records.Stepped, new: list[Any]) -> None:
        requests = self._scheduler.requests
        for one in new:
            name = one.req_id
            told.new.append(
                records.New(name, one.num_computed_tokens, list(one.block_ids[0]), len(seams.prefill_tokens(one)))
            )
            request = requests.get(name) if self._counts else None
            if request is not None and request.prefill_stats is not None and not request.num_preemptions:
                stats = request.prefill_stats
                told.cached_counts.append((name, stats.num_cached_tokens, stats.num_external_cached_tokens))

    @harmless
    def before_outputs(self, output: Any, sampled: Any) -> None:
        """In front of `update_from_output`: the worker's answer to a frame, which vLLM may cut in place."""
        self._landing = None
        self.eyes.ended.clear()
        frames = self._frames
        if not frames or frames[0].output is not output:
            frame = next((frame for frame in frames if frame.output is output), None)
            if frame is None:
                return  # an empty one
            frames.remove(frame)
        else:
            frame = frames.popleft()
        rows = self._rows(frame, sampled)
        before = None
        if self._drafts or frame.added is not None:
            rows = [row[:] for row in rows]
            before = None if frame.added is None else list(map(len, frame.added))
        self._landing = frame, rows, before

    def _rows(self, frame: Frame, sampled: Any) -> Any:
        """The sampled tokens of each request of a frame: the runner has an order of its own."""
        rows, names = sampled.sampled_token_ids, frame.names
        if sampled.req_ids == names and len(rows) == len(names):
            return rows
        index = sampled.req_id_to_index
        return [rows[i] if -1 < (i := index.get(name, -1)) < len(rows) else [] for name in names]

    @harmless
    def after_outputs(self, answer: Any) -> None:
        """Behind `update_from_output`."""
        landing, self._landing = self._landing, None
        eyes = self.eyes
        if landing is None:
            if eyes.ended:
                raise Untellable("requests ended while no frame came back")
            return
        frame, rows, before = landing
        tokens = list(_flat(rows))
        if tokens and type(tokens[0]) is not int:
            tokens = list(map(int, tokens))
        told = records.Landed(frame.number, tokens)
        shown = [] if not answer else next(iter(answer.values())).outputs
        if len(answer) > 1:  # there are several front ends
            shown = list(_flat(map(_OUTPUTS, answer.values())))
        names, texts = list(map(ID, shown)), list(map(_SHOWN, shown))
        if len(tokens) == len(rows) and not self._drafts:  # without drafts nobody gets more than one
            right = names == frame.names and texts == rows  # most often the very same lists
        else:
            told.counts = list(map(len, rows))
            right = names == list(compress(frame.names, rows)) and texts == list(filter(None, rows))
        if not right:
            told.shown = list(zip(names, texts, strict=True))
        if before is not None:
            added: list[Any] = list(map(getitem, frame.added or (), map(slice, before, repeat(None))))
            if added != rows:
                told.added = added
        if eyes.ended:
            told.ended = eyes.ended
        if eyes.happened:
            # Labels of blocks belong to the outputs; anything else is told with the step that comes.
            told.happened = [one for one in eyes.happened if isinstance(one, _LABELS)]
            eyes.happened[:] = [one for one in eyes.happened if not isinstance(one, _LABELS)]
        self.channel.put(told)
        if not self._scheduler.requests:
            self.channel.flush()  # there may be no step for a long time

    @harmless
    def drafted(self, names: list[str]) -> None:
        """Behind `update_draft_token_ids`: what counts is what the scheduler kept of the drafts."""
        live = self._scheduler.requests
        known = [name for name in names if name in live]
        self.channel.put(records.Drafted(known, list(map(len, map(_DRAFTS, map(live.__getitem__, known))))))

    @harmless
    def before_finish(self) -> None:
        """In front of `finish_requests`."""
        self.eyes.ended.clear()

    @harmless
    def after_finish(self) -> None:
        """Behind `finish_requests`: cancelled, in one call."""
        if self.eyes.ended:
            self.channel.put(records.Aborted(self.eyes.ended, self._reading.books()))
            self.eyes.ended.clear()
            if not self._scheduler.requests:
                self.channel.flush()

    @harmless
    def after_reset(self) -> None:
        """Behind `reset_prefix_cache` under running requests."""
        grown, gone = self._reading.tables()
        small = self._reading.small() if self._reading.small_pool else None
        self.channel.put(records.Cleared(self.eyes.happened, grown, gone, small))
        self.eyes.happened.clear()

    @harmless
    def paused(self, before: str, state: str) -> None:
        """Behind `set_pause_state`; the names of the states."""
        if before == state:
            return
        kinds = {"PAUSED_ALL": "pause", "UNPAUSED": "resume"}
        if {before, state} - kinds.keys():
            raise Untellable(f"the scheduler was put into the state {state}: a pause of admission alone has no words")
        self.channel.put(records.Paused(kinds[state]))
        self.channel.flush()

    @harmless
    def raised(self, error: BaseException) -> None:
        """The engine raised inside of one of its calls: the last event there is."""
        told = engine_error(error, "vllm")
        if told["origin"] != "engine":
            raise error
        self.channel.put(records.Broke(dict(told)))
        self.close()
