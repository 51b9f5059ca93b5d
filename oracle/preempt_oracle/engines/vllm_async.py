"""Frames of a vLLM scheduler that fly: one at a time, or several when it schedules ahead of its outputs.

Runs in the engine's Python (standard library only). A frame's requests are kept as objects, because a request that is
over is in none of vLLM's books, and what vLLM appends to it all the same must not go unseen. Outputs come back in the
order of dispatch, as in vLLM's engine core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines.child import Refused, require
else:
    from child import Refused, require

#: Why a running request is passed over although it could decode: see `Flights.held_back`.
CADENCE = "cadence: its last decode is still in the pipeline"


class Frame:
    """What the worker was told to run, and for whom."""

    __slots__ = ("output", "requests")

    def __init__(self, output: Any, requests: dict[str, Any]) -> None:
        self.output = output
        self.requests = requests


class Flights:
    """The undelivered frames of one scheduler, oldest first."""

    def __init__(self, scheduler: Any, stages: int) -> None:
        """`stages`: pipeline stages, which space the decodes of a request."""
        require(scheduler, ("update_from_output", "requests", "running"))
        if stages > 1:
            require(scheduler, ("current_step",))
        self.scheduler = scheduler
        self.stages = stages
        self.frames: dict[int, Frame] = {}
        self.granted: dict[str, int] = {}  # live requests: the step of their last grant, with several stages

    def __len__(self) -> int:
        return len(self.frames)

    def carries(self, request: str) -> bool:
        """Whether some frame still flies for a request of this id."""
        return any(request in frame.requests for frame in self.frames.values())

    def dispatch(self, number: int, output: Any) -> None:
        """A frame leaves; an empty one is none."""
        scheduled = output.num_scheduled_tokens
        if not scheduled:
            return
        live = self.scheduler.requests
        self.frames[number] = Frame(output, {name: live[name] for name in scheduled if name in live})
        if self.stages > 1:
            step = self.scheduler.current_step
            self.granted = {name: at for name, at in self.granted.items() if name in live}
            self.granted.update(dict.fromkeys(scheduled, step))

    def held_back(self) -> list[str]:
        """Who may not decode in the step to come: vLLM leaves as many steps between decodes as there are stages.

        vLLM's word for it counts only where the steps themselves, counted here, bear it out.
        """
        if self.stages < 2:
            return []
        step = self.scheduler.current_step + 1
        return [
            r.request_id
            for r in self.scheduler.running
            if step < r.next_decode_eligible_step and step - self.granted.get(r.request_id, 0) < self.stages
        ]

    def comes_back(self, number: int, names: list[str], tokens: list[list[int]]) -> Landing:
        """The oldest frame, with what the worker sampled, before the scheduler gets it. Raises `Refused`."""
        if number not in self.frames:
            raise Refused(f"frame {number} does not fly")
        if number != min(self.frames):
            raise Refused(f"frame {number}: frame {min(self.frames)} comes first")
        frame = self.frames[number]
        sampled: dict[str, list[int]] = {name: [] for name in frame.output.num_scheduled_tokens}
        for name, some in zip(names, tokens, strict=True):
            if name not in sampled:
                raise Refused(f"frame {number} has no grant of {name!r}")
            sampled[name] = list(some)
        del self.frames[number]
        return Landing(frame, sampled)


class Landing:
    """A frame whose outputs the scheduler is about to get: `sampled`, by request, those without any included."""

    __slots__ = ("before", "frame", "sampled")

    def __init__(self, frame: Frame, sampled: dict[str, list[int]]) -> None:
        self.frame = frame
        self.sampled = sampled
        self.before = {name: request.num_output_tokens for name, request in frame.requests.items()}

    def landed(self, outputs: Any) -> dict[str, list[int]]:
        """For each of its requests, what the scheduler made of the outputs; `outputs` is its answer to them.

        That is what vLLM appended to the request and showed the user; of two that differ, the wrong one.
        """
        sampled, before, requests = self.sampled, self.before, self.frame.requests
        emitted: dict[str, list[int]] = {}
        for client in outputs.values():
            for output in client.outputs:
                emitted.setdefault(output.request_id, []).extend(output.new_token_ids)
        landed: dict[str, list[int]] = {}
        for name in {**sampled, **emitted}:
            request = requests.get(name)
            appended = [] if request is None else list(request.output_token_ids[before[name] :])
            shown = emitted.get(name, [])
            right = sampled.get(name, [])
            if appended == right or appended == right[: len(appended)]:
                appended = shown
            landed[name] = appended
        return landed
