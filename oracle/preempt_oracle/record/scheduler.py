"""A scheduler class of vLLM that records what it does: its public methods, each told of before and behind the call.

The engine's own answer, or its own exception, is what the caller gets, always. Configuration and version are looked at
in the constructor, where a refusal harms nobody: the engine has not begun to serve.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from preempt_oracle.record import content as contents
from preempt_oracle.record import settings as configured
from preempt_oracle.record.observer import Observer
from preempt_oracle.record.online import Online
from preempt_oracle.record.parts import Parts, Stopped
from preempt_oracle.record.recorder import Recorder
from preempt_oracle.record.shape import header
from preempt_oracle.record.sink import Sink
from preempt_oracle.verdict import UnknownPolicy
from preempt_spec.micro import Malformed

LOGGER = logging.getLogger("preempt_oracle.record")


class CannotRecord(RuntimeError):
    """What this recorder does not record, found at start: leave out `--scheduler-cls`, or change what is named."""


def begin(scheduler: Any, version: str, traits: frozenset[str], listed: bool) -> Observer:
    """Start to record a scheduler. Raises BadSetting, CannotRecord, Unsupported."""
    settings = configured.read(os.environ)
    if not listed and not settings.unverified:
        raise CannotRecord(
            f"vLLM {version} is none of the versions this recorder was run with: what it reads of the scheduler may "
            f"mean something else there. {configured.PREFIX}UNVERIFIED=record records it all the same"
        )
    shape = header(scheduler, version, traits, settings.content, listed)
    content = contents.content(settings.content)
    log = LOGGER.warning
    try:
        online = Online(shape.header, log) if settings.online else None
    except (UnknownPolicy, Malformed) as error:
        raise CannotRecord(f"this scheduler cannot be judged: {error}") from None
    try:
        parts = None
        if settings.directory is not None:
            parts = Parts(settings.directory, shape.header, part=settings.part, limit=settings.limit)
    except Stopped as error:
        raise CannotRecord(str(error)) from None
    recorder = Recorder(Sink(content, parts, online, log), settings.queue, log)
    try:
        observer = Observer(
            scheduler, traits, recorder, page_size=shape.page_size, stages=shape.stages, drafts=shape.drafts
        )
    except BaseException:
        recorder.close()
        raise
    if parts is not None:
        LOGGER.info("recording to %s", parts.path)
    return observer


def recording(base: Any, start: Callable[[Any], Observer]) -> Any:
    """A subclass of a scheduler class of vLLM that records. `start(scheduler)` begins, at the constructor's end."""

    class Recording(base):  # type: ignore[misc]
        """See the module."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.observer = start(self)

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            """One decision: a `step`."""
            observer = self.observer
            observer.before_step()
            return observer_call(observer, super().schedule, observer.stepped, *args, **kwargs)

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any, *args: Any, **kwargs: Any) -> Any:
            """A frame comes back: a `deliver`, and a `finish` for whoever ends with it."""
            observer = self.observer
            observer.before_outputs(scheduler_output, model_runner_output)
            call = super().update_from_output
            return observer_call(
                observer, call, observer.after_outputs, scheduler_output, model_runner_output, *args, **kwargs
            )

        def add_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            """An `arrive`."""
            known = request.request_id in self.requests
            answer = super().add_request(request, *args, **kwargs)
            self.observer.arrived(request, known)
            return answer

        def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
            """An `abort` for each; what the scheduler ends while it works belongs to the frame that comes back."""
            observer = self.observer
            if observer.inside:
                return super().finish_requests(*args, **kwargs)
            observer.before_finish()
            return observer_call(observer, super().finish_requests, lambda _: observer.after_finish(), *args, **kwargs)

        def reset_prefix_cache(self, reset_running_requests: bool = False, *args: Any, **kwargs: Any) -> Any:
            """A `control`, if it preempts; otherwise it withdraws hashes, which the next step tells."""
            observer, call = self.observer, super().reset_prefix_cache
            if not reset_running_requests:
                return call(reset_running_requests, *args, **kwargs)
            observer.before_reset()
            return observer_call(observer, call, lambda _: observer.after_reset(), True, *args, **kwargs)

        def set_pause_state(self, pause_state: Any, *args: Any, **kwargs: Any) -> Any:
            """A `control`."""
            before = self.pause_state.name
            answer = super().set_pause_state(pause_state, *args, **kwargs)
            self.observer.paused(before, self.pause_state.name)
            return answer

        def update_draft_token_ids(self, draft_token_ids: Any, *args: Any, **kwargs: Any) -> Any:
            """What was proposed behind the last `deliver`."""
            answer = super().update_draft_token_ids(draft_token_ids, *args, **kwargs)
            self.observer.drafted(list(draft_token_ids.req_ids))
            return answer

        def shutdown(self, *args: Any, **kwargs: Any) -> Any:
            """The end of the recording."""
            self.observer.close()
            return super().shutdown(*args, **kwargs)

    return Recording


def observer_call(
    observer: Observer, call: Callable[..., Any], then: Callable[[Any], None], *args: Any, **kwargs: Any
) -> Any:
    """The engine's call, told of behind it: its answer, or what it raised."""
    observer.inside += 1
    try:
        answer = call(*args, **kwargs)
    except Exception as error:
        observer.raised(error)
        raise
    finally:
        observer.inside -= 1
    then(answer)
    return answer
