"""What becomes of an event once it was seen: its content hashed, written to the parts, judged online.

Runs in the process beside the engine. The file and the judge are independent: what ends one leaves the other at work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from preempt_oracle.record.content import Hashed, Plain
from preempt_oracle.record.online import Online
from preempt_oracle.record.parts import Parts, Stopped
from preempt_oracle.trace import wire
from preempt_oracle.trace.fields import RequestId

Log = Callable[[str], None]
Seen = dict[str, Any]  # an event as the adapters tell it

_KINDS: Final[Mapping[str, type[wire.Event]]] = {
    "arrive": wire.Arrive,
    "abort": wire.Abort,
    "control": wire.Control,
    "step": wire.Step,
    "deliver": wire.Deliver,
    "finish": wire.Finish,
    "engine_error": wire.EngineError,
}


class Sink:
    """Takes events in order. `take` raises nothing that an event or a disk could cause."""

    def __init__(self, content: Hashed | Plain, parts: Parts | None, online: Online | None, log: Log) -> None:
        self._content = content
        self.parts = parts
        self.online = online
        self._log = log
        self._renamed: dict[str, str] = {}  # live requests whose ids no trace can have
        self.taken = 0

    @property
    def idle(self) -> bool:
        """Whether nobody listens any more."""
        return self.parts is None and (self.online is None or self.online.ended)

    def take(self, seen: Seen) -> None:
        """Write and judge one event."""
        self.taken += 1
        try:
            event = self._event(seen)
        except Exception as error:  # ours, whatever it is: the engine goes on
            self.stop(f"an event cannot be told: {type(error).__name__}: {error}", 1)
            return
        parts = self.parts
        file, line = (0, 0) if parts is None else (parts.number, parts.lines + 1)
        if parts is not None:
            try:
                parts.write(event)
            except Stopped as why:
                self.parts = None
                self._log(f"the recording stops: {why}")
            except Exception as error:
                self._end(f"an event is none of this trace: {type(error).__name__}: {error}", 1)
        if self.online is not None:
            try:
                self.online.feed(event, lambda: "" if self.parts is None else f"{self.parts.file(file)}, line {line}")
            except Exception as error:
                self.online.ended = True
                self._log(f"nothing is judged any more: {type(error).__name__}: {error}")

    def flush(self) -> None:
        """Write what is gathered."""
        if self.parts is not None:
            try:
                self.parts.flush()
            except Stopped as why:
                self.parts = None
                self._log(f"the recording stops: {why}")

    def stop(self, why: str, lost: int) -> None:
        """Events are missing from here on: end the file, say so in it, and judge no further."""
        if not self.idle:
            self._end(why, lost)
        if self.online is not None:
            self.online.ended = True

    def close(self) -> None:
        """The engine is over: end the file."""
        self._end("", 0)

    def _end(self, why: str, lost: int) -> None:
        if why:
            self._log(f"the recording stops: {why}")
        parts, self.parts = self.parts, None
        if parts is not None:
            try:
                parts.close(lost)
            except Stopped as end:
                self._log(f"the recording ends early: {end}")

    # -- from what was seen to what is written -------------------------------------------------------------------------

    def _event(self, seen: Seen) -> wire.Event:
        kind = seen["event"]
        if kind == "deliver":
            self._delivered(seen)
        elif kind == "arrive":
            self._arrived(seen)
        elif kind in ("finish", "abort"):
            self._content.end(seen["request"])
        elif kind == "engine_error" and self._content.kind == "hashed":
            seen["message"] = ""  # it may quote what must not be told
        if self._renamed:
            over = seen["request"] if kind in ("finish", "abort") else None
            seen = _renamed(seen, self._renamed)
            if over is not None:
                self._renamed.pop(over, None)
        return msgspec.convert({k: v for k, v in seen.items() if k != "event"}, _KINDS[kind])

    def _arrived(self, seen: Seen) -> None:
        name = seen["request"]
        seen["prompt"] = self._content.begin(name, seen["prompt"])
        seen["salt"] = self._content.word(seen["salt"])
        try:
            msgspec.convert(name, RequestId)
        except msgspec.ValidationError:
            self._renamed[name] = f"unnamed-{Hashed(name.encode('utf-8', 'surrogatepass')).word('id')}"

    def _delivered(self, seen: Seen) -> None:
        """Both streams in the context of what the engine has appended so far; that goes on with what it appended now.

        Where they are equal, as nearly always, they are told once.
        """
        content, names = self._content, seen["requests"]
        emitted = seen.pop("emitted")
        if seen["tokens"] == emitted:
            seen["tokens"] = [content.next(name, some, keep=True) for name, some in zip(names, emitted, strict=True)]
        else:
            seen["tokens"] = [
                content.next(name, some, keep=False) for name, some in zip(names, seen["tokens"], strict=True)
            ]
            seen["emitted"] = [content.next(name, some, keep=True) for name, some in zip(names, emitted, strict=True)]
        if all(word == "delivered" for word in seen["disposition"]):
            del seen["disposition"]


def _renamed(seen: Any, names: Mapping[str, str]) -> Any:
    """A copy with other request ids. An id that no trace can have is no word of the trace's either."""
    if isinstance(seen, str):
        return names.get(seen, seen)
    if isinstance(seen, dict):
        return {key: _renamed(value, names) for key, value in seen.items()}
    if isinstance(seen, (list, tuple)):
        return [_renamed(value, names) for value in seen]
    return seen
