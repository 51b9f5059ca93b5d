"""A vLLM scheduler at work, seen from inside the engine that drives it: its calls, turned into events.

The eyes are the adapter's (`engines.vllm_watch`, `vllm_books`, `vllm_telling`). What differs is who is in charge: the
engine is, so nothing in here may raise into it. A fault of ours, or something trace v1 has no words for, ends the
recording and takes the eyes off.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from preempt_oracle.engines.child import describe as engine_error
from preempt_oracle.engines.vllm_async import Flights, Landing
from preempt_oracle.engines.vllm_books import Books
from preempt_oracle.engines.vllm_telling import Teller
from preempt_oracle.engines.vllm_watch import Watch
from preempt_oracle.record.recorder import Recorder, describe
from preempt_oracle.record.sink import Seen

P = ParamSpec("P")
_NANO = 1_000_000_000


class Untellable(Exception):
    """Something happened that trace v1 has no words for."""


class Eyes(Watch):
    """The adapter's watch, except that it never comes between the engine and what the engine calls."""

    def __init__(self, books: Books, page_size: int, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._blind = False
        self._wrappers: list[tuple[Any, str, Callable[..., Any]]] = []
        super().__init__(books, page_size)

    def _wrap(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        original = getattr(owner, name)
        if name == "allocate_slots":
            self._put_on(owner, name, self._quick(original))
            return

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._blind:
                return original(*args, **kwargs)
            done: list[Any] = []  # the engine's answer, once there is one
            its: list[BaseException] = []  # what the engine raised

            def once(*a: Any, **k: Any) -> Any:
                try:
                    answer = original(*a, **k)
                except BaseException as error:
                    its.append(error)
                    raise
                done.append(answer)
                return answer

            # A fault of ours may come before the call: what can be read only once must still be there for the engine.
            args = tuple(list(a) if hasattr(a, "__next__") else a for a in args)
            try:
                return wrapper(once, *args, **kwargs)
            except BaseException as error:
                if its and error is its[0]:
                    raise
                self._blind = True
                self._failed(error)
                if its:
                    raise its[0] from None
                return done[0] if done else original(*args, **kwargs)

        self._put_on(owner, name, call)

    def _put_on(self, owner: Any, name: str, call: Callable[..., Any]) -> None:
        setattr(owner, name, call)
        self._wrappers.append((owner, name, call))

    def _quick(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """As `_wrap` does, for the call that every request makes in every step; nothing of ours comes before it."""
        owned, allocated = self.owned, self._allocated

        def call(request: Any, num_new_tokens: int, *args: Any, **kwargs: Any) -> Any:
            if self._blind:
                return original(request, num_new_tokens, *args, **kwargs)
            before = len(owned.get(request.request_id, ()))
            self._late = []
            granted = original(request, num_new_tokens, *args, **kwargs)
            try:
                allocated(before, granted, request, num_new_tokens, args, kwargs)
            except Exception as error:
                self._blind = True
                self._failed(error)
            return granted

        return call

    def close(self) -> None:
        """Take the wrappers off where nobody has put another on top; they let everything through in any case."""
        self._blind = True
        for owner, name, call in self._wrappers:
            if vars(owner).get(name) is call:
                delattr(owner, name)
        self._wrappers.clear()


def harmless(
    method: Callable[Concatenate[Observer, P], None],
) -> Callable[Concatenate[Observer, P], None]:
    """A method that does nothing but count once the recording is over, and ends it where it would raise."""
    tells = not method.__name__.startswith("before")

    @wraps(method)
    def guarded(self: Observer, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if not self.over and not self.recorder.active:
            self.end("")
        if self.over:
            self.recorder.lost += tells
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.failed(error)

    return guarded


class Observer:
    """Told by the recording scheduler of each of its calls, before or behind it. No method raises, once it is built."""

    def __init__(
        self, scheduler: Any, traits: frozenset[str], recorder: Recorder, *, page_size: int, stages: int, drafts: bool
    ) -> None:
        """`stages`: see `Flights`. `drafts`: proposed behind each delivery. Raises Unsupported."""
        self.recorder = recorder
        self.over = False
        books = Books(scheduler, traits)
        self._watch = Eyes(books, page_size, self.failed)
        self._flights = Flights(scheduler, stages)
        self.teller = Teller(self._watch, self._flights, traits)
        self._drafts = drafts
        self._landing: tuple[int, Landing, list[str], list[list[int]]] | None = None
        self._deliver: Seen | None = None  # told when nobody can propose drafts for it any more
        self._finished: list[Seen] = []
        self.inside = 0  # calls of the engine that are under way: what it does inside of one belongs to that

    # -- the end -----------------------------------------------------------------------------------------------------

    def failed(self, error: BaseException) -> None:
        """A fault of ours, or an event without words: the recording ends."""
        if isinstance(error, Untellable):
            self.end(str(error))
        else:
            self.end(f"the recorder failed: {describe(error)}")

    def end(self, why: str) -> None:
        """Take the eyes off the scheduler. `why`: "" if the recorder has said so itself."""
        if self.over:
            return
        self.over = True
        try:
            self._tell_delivery()
            if why:
                self.recorder.stop(why)
            self._watch.close()
        except Exception as error:
            self.recorder.stop(f"the recorder failed: {describe(error)}")

    def close(self) -> None:
        """The engine shuts down: a regular end."""
        self.end("")
        self.recorder.close()

    # -- calls of the engine -------------------------------------------------------------------------------------------

    @harmless
    def arrived(self, request: Any, known: bool) -> None:
        """Behind `add_request`. `known`: a request of that id was alive."""
        name = request.request_id
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
        lora = getattr(request, "lora_request", None)
        salt = getattr(request, "cache_salt", None) or ""
        if lora is not None:  # vLLM keeps the blocks of adapters apart by name
            salt = f"{salt}\0{lora.lora_name}"
        self._put(
            {
                "event": "arrive",
                "request": name,
                "prompt": list(request.prompt_token_ids),
                "max_tokens": request.max_tokens,
                "priority": request.priority,
                "arrival": int(request.arrival_time * _NANO),
                "salt": salt,
            }
        )

    @harmless
    def before_step(self) -> None:
        """In front of `schedule`."""
        self._tell_delivery()
        self.teller.before()

    @harmless
    def stepped(self, output: Any) -> None:
        """Behind `schedule`."""
        self._put(self.teller.step(output))

    @harmless
    def before_outputs(self, output: Any, sampled: Any) -> None:
        """In front of `update_from_output`: the worker's answer to a frame."""
        self._landing = None
        self._tell_delivery()
        self._watch.finished.clear()
        number = next((n for n, frame in self._flights.frames.items() if frame.output is output), None)
        if number is None:
            return  # an empty one
        rows = sampled.sampled_token_ids
        names, tokens, index_of = [], [], sampled.req_id_to_index.get
        for name in output.num_scheduled_tokens:
            index = index_of(name)
            if index is not None and index < len(rows) and len(rows[index]):
                names.append(name)
                tokens.append(list(rows[index]))
        self._landing = number, self._flights.comes_back(number, names, tokens), names, tokens

    @harmless
    def after_outputs(self, answer: Any) -> None:
        """Behind `update_from_output`."""
        landing, self._landing = self._landing, None
        if landing is None:
            if self._watch.finished:
                raise Untellable("requests ended while no frame came back")
            return
        number, landed, names, tokens = landing
        became = landed.landed(answer)
        stopped = {name for name, status, _ in self._watch.finished if status.name == "FINISHED_STOPPED"}
        for i, name in enumerate(names):
            # Drafts accepted behind a stop token were never anybody's: trace v1 has no stop tokens.
            if (
                name in stopped
                and len(became[name]) < len(tokens[i])
                and became[name] == tokens[i][: len(became[name])]
            ):
                tokens[i] = became[name]
        told = self.teller.deliver(number, names, tokens, became)
        self._finished = [{"event": "finish", **one} for one in told.pop("finished")]
        self._deliver = told
        if not self._drafts:
            self._tell_delivery()

    @harmless
    def drafted(self, names: list[str]) -> None:
        """Behind `update_draft_token_ids`: what counts is what the scheduler kept of the drafts."""
        told = self._deliver
        if told is None:
            return
        live = self._watch.books.scheduler.requests
        kept = {name: len(live[name].spec_token_ids) for name in names if name in live}
        for name in kept:
            if kept[name] and name not in told["requests"]:
                for field, value in (("requests", name), ("tokens", []), ("emitted", []), ("disposition", "delivered")):
                    told[field].append(value)
        if any(kept.values()):
            told["proposed"] = [kept.get(name, 0) for name in told["requests"]]

    @harmless
    def before_finish(self) -> None:
        """In front of `finish_requests`."""
        self._tell_delivery()
        self._watch.finished.clear()

    @harmless
    def after_finish(self) -> None:
        """Behind `finish_requests`: cancelled, in one call. The engine's books stand as they are behind the last."""
        finished, self._watch.finished = self._watch.finished, []
        for i, (name, status, blocks) in enumerate(finished):
            seen: Seen = {"event": "abort", "request": name, "blocks": [blocks]}
            if i == len(finished) - 1:
                seen["observed"] = self._watch.books.observed()
            if status.name != "FINISHED_ABORTED":
                seen["reason"] = status.name.removeprefix("FINISHED_").lower()
            self.teller.told.discard(name)
            self._put(seen)

    @harmless
    def before_reset(self) -> None:
        """In front of `reset_prefix_cache` under running requests."""
        self._tell_delivery()
        self._watch.begin()

    @harmless
    def after_reset(self) -> None:
        """Behind it."""
        _, acts, _ = self._watch.take({})
        self._put({"event": "control", "kind": "reset", "acts": acts})

    @harmless
    def paused(self, before: str, state: str) -> None:
        """Behind `set_pause_state`; the names of the states."""
        self._tell_delivery()
        if before == state:
            return
        kinds = {"PAUSED_ALL": "pause", "UNPAUSED": "resume"}
        if {before, state} - kinds.keys():
            raise Untellable(f"the scheduler was put into the state {state}: a pause of admission alone has no words")
        self._put({"event": "control", "kind": kinds[state]})

    @harmless
    def raised(self, error: BaseException) -> None:
        """The engine raised inside of one of its calls: the last event there is."""
        self._tell_delivery()
        told = engine_error(error, "vllm")
        if told["origin"] == "engine":
            self._put(told)
            self.close()
        else:
            raise error

    # -- telling -----------------------------------------------------------------------------------------------------

    def _tell_delivery(self) -> None:
        """A delivery, held back for the drafts that are proposed behind it, and whoever ended with it."""
        told, self._deliver = self._deliver, None
        finished, self._finished = self._finished, []
        if told is not None:
            for seen in (told, *finished):
                self.recorder.put(seen)

    def _put(self, seen: Seen) -> None:
        self._tell_delivery()
        self.recorder.put(seen)
