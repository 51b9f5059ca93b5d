"""A vLLM scheduler at work, seen from inside the engine that drives it: its calls, turned into columns.

This is all that the engine's thread pays for, so nothing in here is done request by request in a step in which
everybody decodes: columns are read, compared and encoded by C loops, and one that is as before is not told. Events are
made of them, hashed, written and judged by the process at the other end of the channel (`replay`, `keeper`).

The engine is in charge, so nothing in here may raise into it: a fault of ours, or something trace v1 has no words for,
ends the recording and takes the eyes off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import wraps
from itertools import chain, compress, repeat
from operator import attrgetter, getitem, itemgetter, sub
from typing import Any, Concatenate, ParamSpec, Protocol

from preempt_oracle.engines import vllm_seams as seams
from preempt_oracle.engines.child import describe as engine_error
from preempt_oracle.engines.vllm_async import Flights
from preempt_oracle.engines.vllm_books import Books
from preempt_oracle.record import records
from preempt_oracle.record.eyes import ID, Eyes, Untellable
from preempt_oracle.record.reading import Reading

P = ParamSpec("P")
_ADDED = attrgetter("_output_token_ids")
_OUTPUTS = attrgetter("outputs")
_SHOWN = attrgetter("new_token_ids")
_DRAFTS = attrgetter("spec_token_ids")
_LAST = itemgetter(-1)
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

    def __init__(self, output: Any, number: int, names: list[str], added: list[list[int]]) -> None:
        self.output = output
        self.number = number
        self.names = names
        self.added = added


class Capture:
    """Told by the recording scheduler of each of its calls, before or behind it. No method raises, once it is built."""

    def __init__(self, books: Books, traits: frozenset[str], channel: Channel, *, stages: int) -> None:
        """`stages`: see `Flights`. Raises Unsupported."""
        scheduler = books.scheduler
        self.channel = channel
        self.over = False
        self.lost = 0  # calls of the engine's that were not told of
        self.inside = 0  # calls of the engine that are under way: what it does inside of one belongs to that
        self._scheduler = scheduler
        self._traits = traits
        self._counts = {"preemption-count", "cached-count"} <= traits
        self.eyes = Eyes(books, self.failed, self._freed)
        self._reading = Reading(books, self.eyes, counts=self._counts)
        self._flights = Flights(scheduler, stages) if stages > 1 else None
        self._held_back: list[str] = []
        self._frames: deque[Frame] = deque()
        self._landing: tuple[Frame, list[int], list[int] | None, list[int]] | None = None
        self._number = -1
        # Columns as they were told last.
        self._names: list[str] = []
        self._tokens: list[int] = []
        # What belongs to `_names`, until somebody comes or goes.
        self._moved = True
        self._added: list[list[int]] = []
        # The runner's order of `_ordered`, and how to bring its rows into ours.
        self._order: list[str] = []
        self._indices: list[int] = []
        self._ordered: list[str] = []
        self._arrange: Callable[[Any], Any] | None = None

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
        self._moved = True
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
        self.channel.put(
            records.Arrived(
                request.request_id,
                list(request.prompt_token_ids),
                request.max_tokens,
                request.priority,
                request.arrival_time,
                salt,
            )
        )

    @harmless
    def before_step(self) -> None:
        """In front of `schedule`."""
        self.eyes.scheduling = True
        if self._flights is not None:
            self._held_back = self._flights.held_back()

    @harmless
    def stepped(self, output: Any) -> None:
        """Behind `schedule`."""
        eyes = self.eyes
        eyes.scheduling = False
        self._number += 1
        scheduled, cached = output.num_scheduled_tokens, output.scheduled_cached_reqs
        names: list[str] | None = list(scheduled)
        tokens: list[int] | None = list(scheduled.values())
        same = names == self._names
        if same:
            names = None
        else:
            self._names = list(scheduled)
        if tokens == self._tokens:
            tokens = None
        else:
            self._tokens = list(scheduled.values())
        if self._names:
            if not same or self._moved:
                self._moved = False
                live = self._scheduler.requests
                self._added = [_ADDED(live[name]) if name in live else [] for name in self._names]
            self._frames.append(Frame(output, self._number, self._names, self._added))
        known = cached.req_ids
        grown, gone = self._reading.tables()
        told = records.Stepped(
            names,
            tokens,
            None if known == self._names else known,
            cached.num_computed_tokens,
            cached.new_block_ids,
            self._reading.books(),
            self._reading.preemptions(),
            eyes.happened,
            grown,
            gone,
        )
        if output.scheduled_new_reqs:
            self._admitted(told, output.scheduled_new_reqs)
        if again := seams.resumed(cached):
            for name in known:
                if name in again:
                    some = seams.resumed_tokens(cached, name)
                    told.resumed.append((name, None if some is None else len(some)))
        if drafts := output.scheduled_spec_decode_tokens:
            told.drafts = list(zip(drafts, map(len, drafts.values()), strict=True))
        if eyes.hits:
            told.hits = eyes.hits
        if self._flights is not None:
            told.held_back = self._held_back
            self._flights.dispatch(self._number, output)
            self._flights.frames.clear()  # they are kept here; its grants are what is needed
        if not self._names:
            told.idle = not self._scheduler.requests
            told.paused = "pause" in self._traits and self._scheduler.pause_state.name != "UNPAUSED"
        self.channel.put(told)
        eyes.forget()

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
        frame = next((frame for frame in frames if frame.output is output), None)
        if frame is None:
            return  # an empty one
        frames.remove(frame)
        rows = self._rows(frame.names, sampled)
        counts = list(map(len, rows))
        tokens = list(_flat(rows))
        if tokens and type(tokens[0]) is not int:
            tokens = list(map(int, tokens))
        ones = counts.count(1) == len(counts)
        self._landing = frame, tokens, None if ones else counts, list(map(len, frame.added))

    def _rows(self, names: list[str], sampled: Any) -> Any:
        """The sampled tokens of each of `names`: the runner has an order of its own."""
        rows, index = sampled.sampled_token_ids, sampled.req_id_to_index
        order, indices = list(index), list(index.values())
        if order != self._order or indices != self._indices or names is not self._ordered:
            self._order, self._indices, self._ordered = order, indices, names
            at = [index.get(name, -1) for name in names]
            count = len(names)
            if -1 in at:
                self._arrange = lambda rows: [rows[i] if 0 <= i < len(rows) else [] for i in at]
            elif at == list(range(count)):
                self._arrange = None
            else:
                self._arrange = itemgetter(*at) if count > 1 else lambda rows: [rows[at[0]]]
        if self._arrange is not None and rows:
            return self._arrange(rows)
        return rows if len(rows) == len(names) else [*rows, *([[]] * (len(names) - len(rows)))][: len(names)]

    @harmless
    def after_outputs(self, answer: Any) -> None:
        """Behind `update_from_output`."""
        landing, self._landing = self._landing, None
        if landing is None:
            if self.eyes.ended:
                raise Untellable("requests ended while no frame came back")
            return
        frame, tokens, counts, before = landing
        added = frame.added
        growth = list(map(sub, map(len, added), before))
        told = records.Landed(frame.number, tokens, counts)
        # What was added to the requests: the last of each where everybody got one, otherwise all of it.
        if counts is not None or growth.count(1) != len(growth) or list(map(_LAST, added)) != tokens:
            really: list[Any] = list(map(getitem, added, map(slice, before, repeat(None))))
            if growth != (counts or [1] * len(growth)) or list(_flat(really)) != tokens:
                told.added = really
        shown = list(_flat(map(_OUTPUTS, answer.values())))
        names = list(map(ID, shown))
        texts = list(map(_SHOWN, shown))
        due = frame.names if counts is None else list(compress(frame.names, counts))
        lengths = list(map(len, texts))
        expected = lengths.count(1) == len(lengths) if counts is None else lengths == list(filter(None, counts))
        if names != due or not expected or list(_flat(texts)) != tokens:
            told.shown = list(zip(names, texts, strict=True))
        eyes = self.eyes
        if eyes.ended:
            told.ended = eyes.ended
        if eyes.happened:
            # Labels of blocks belong to the outputs; anything else is told with the step that comes.
            told.happened = [one for one in eyes.happened if isinstance(one, (records.Published, records.Withdrawn))]
        self.channel.put(told)
        if eyes.happened:
            eyes.happened[:] = [
                one for one in eyes.happened if not isinstance(one, (records.Published, records.Withdrawn))
            ]
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
        """Behind it."""
        grown, gone = self._reading.tables()
        small = self._reading.small() if self._reading.source.small else None
        self.channel.put(records.Cleared(self.eyes.happened, grown, gone, small))
        self.eyes.forget()

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

    def _freed(self, name: str, left: int) -> None:
        """A table was cut to so many blocks."""
        self._moved = True
        self._reading.freed(name, left)
