"""A scheduler class of vLLM that records what it does: its public methods, each told of before and behind the call.

The engine's own answer, or its own exception, is what the caller gets, always. Configuration and version are looked at
in the constructor, where a refusal harms nobody: the engine has not begun to serve.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from preempt_oracle.engines.vllm_books import Books
from preempt_oracle.record import capture, records
from preempt_oracle.record import channel as channels
from preempt_oracle.record import settings as configured
from preempt_oracle.record.capture import Capture
from preempt_oracle.record.shape import header

LOGGER = logging.getLogger("preempt_oracle.record")


class CannotRecord(RuntimeError):
    """What this recorder does not record, found at start: leave out `--scheduler-cls`, or change what is named."""


Connect = Callable[[records.Begun, int], capture.Channel]


def begin(
    scheduler: Any, version: str, traits: frozenset[str], listed: bool, connect: Connect = channels.Channel
) -> Capture:
    """Start to record a scheduler. Raises BadSetting, CannotRecord, Unsupported."""
    settings = configured.read(os.environ)
    if not listed and not settings.unverified:
        raise CannotRecord(
            f"vLLM {version} is none of the versions this recorder was run with: what it reads of the scheduler may "
            f"mean something else there. {configured.PREFIX}UNVERIFIED=record records it all the same"
        )
    shape = header(scheduler, version, traits, settings.content, listed)
    books = Books(scheduler, traits)
    begun = records.Begun(
        shape.header,
        sorted(traits),
        shape.page_size,
        books.small,
        scheduler.policy.value == "priority",
        shape.drafts,
        settings.online,
        None if settings.directory is None else str(settings.directory.absolute()),
        settings.part,
        settings.limit,
    )
    try:
        channel = connect(begun, settings.buffer)
    except channels.CannotStart as error:
        raise CannotRecord(str(error)) from None
    try:
        return Capture(books, traits, channel, stages=shape.stages)
    except BaseException:
        channel.close(records.Bye(), lambda: 0)
        raise


def recording(base: Any, start: Callable[[Any], Capture]) -> Any:
    """A subclass of a scheduler class of vLLM that records. `start(scheduler)` begins, at the constructor's end."""

    class Recording(base):  # type: ignore[misc]
        """See the module."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.capture = start(self)
            self._engine_schedule = super().schedule
            self._engine_update = super().update_from_output

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            """One decision: a `step`."""
            capture = self.capture
            if capture.paced:
                capture.before_step()
            try:
                answer = self._engine_schedule(*args, **kwargs)
            except Exception as error:
                capture.raised(error)
                raise
            capture.stepped(answer)
            return answer

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any, *args: Any, **kwargs: Any) -> Any:
            """A frame comes back: a `deliver`, and a `finish` for whoever ends with it."""
            capture = self.capture
            capture.before_outputs(scheduler_output, model_runner_output)
            capture.inside = True
            try:
                answer = self._engine_update(scheduler_output, model_runner_output, *args, **kwargs)
            except Exception as error:
                capture.raised(error)
                raise
            finally:
                capture.inside = False
            capture.after_outputs(answer)
            return answer

        def add_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            """An `arrive`."""
            known = request.request_id in self.requests
            answer = super().add_request(request, *args, **kwargs)
            self.capture.arrived(request, known)
            return answer

        def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
            """An `abort` for each; what the scheduler ends while it works belongs to the frame that comes back."""
            capture = self.capture
            if capture.inside:
                return super().finish_requests(*args, **kwargs)
            capture.before_finish()
            return observed(capture, super().finish_requests, lambda _: capture.after_finish(), *args, **kwargs)

        def reset_prefix_cache(self, reset_running_requests: bool = False, *args: Any, **kwargs: Any) -> Any:
            """A `control`, if it preempts; otherwise it withdraws hashes, which the next step tells."""
            capture, call = self.capture, super().reset_prefix_cache
            if not reset_running_requests:
                return call(reset_running_requests, *args, **kwargs)
            return observed(capture, call, lambda _: capture.after_reset(), True, *args, **kwargs)

        def set_pause_state(self, pause_state: Any, *args: Any, **kwargs: Any) -> Any:
            """A `control`."""
            before = self.pause_state.name
            answer = super().set_pause_state(pause_state, *args, **kwargs)
            self.capture.paused(before, self.pause_state.name)
            return answer

        def update_draft_token_ids(self, draft_token_ids: Any, *args: Any, **kwargs: Any) -> Any:
            """What was proposed behind the last `deliver`."""
            answer = super().update_draft_token_ids(draft_token_ids, *args, **kwargs)
            self.capture.drafted(list(draft_token_ids.req_ids))
            return answer

        def shutdown(self, *args: Any, **kwargs: Any) -> Any:
            """The end of the recording."""
            self.capture.close()
            return super().shutdown(*args, **kwargs)

    return Recording


def observed(capture: Capture, call: Callable[..., Any], then: Callable[[Any], None], *args: Any, **kwargs: Any) -> Any:
    """The engine's call, told of behind it: its answer, or what it raised."""
    try:
        answer = call(*args, **kwargs)
    except Exception as error:
        capture.raised(error)
        raise
    then(answer)
    return answer
