"""The adapter protocol, from the harness's side.

A transport carries one command and brings one reply back, both plain objects (`Transport`). `Session` speaks the
protocol over any transport: it numbers commands, reads replies strictly into the events of trace v1, and turns
everything that is not a proper reply into `HarnessError`: no nonsense of an adapter may look like a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from attrs import asdict, frozen

from preempt_oracle.trace import wire
from preempt_oracle.trace.errors import Fault
from preempt_oracle.trace.structure import Structure
from preempt_properties.scenario import Add, Config


class HarnessError(Exception):
    """The adapter, or the process behind it, is broken: exit code 3. Never a verdict on the engine."""


class Transport(Protocol):
    """Carries commands to a scheduler.

    One that starts processes, or lets others start some, has once it is closed a text `outlived`: what it left behind.
    """

    @property
    def name(self) -> str:
        """What to call it in messages."""

    def exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        """Send a command, return its reply. Raises HarnessError."""

    def close(self) -> None:
        """End it; leaves no process behind. May be called twice."""


@frozen
class Refused:
    """The engine does not do this, and says why."""

    reason: str


@frozen
class Started:
    """What a scheduler said when it was started."""

    header: wire.Header
    capabilities: frozenset[str]


E = TypeVar("E", bound=msgspec.Struct)
Copied = wire.CopyStart | wire.CopyDone
Behind = Copied | wire.Finish

_EVENTS = {
    "add": (wire.Arrive, wire.Reject),
    "abort": (wire.Abort,),
    "control": (wire.Control,),
    "step": (wire.Step,),
    "deliver": (wire.Deliver,),
}


class Session:
    """The protocol over a transport."""

    def __init__(self, transport: Transport, options: Mapping[str, Any] | None = None) -> None:
        """`options`: engine-specific settings, passed with each start."""
        self.transport = transport
        self.options = dict(options or {})
        self._last = 0
        self._structure: Structure | None = None
        #: Copies that the last reply told of: what ended before its event, what began or ended behind it; there, too,
        #: who is over because of such an end.
        self.earlier: tuple[Copied, ...] = ()
        self.later: tuple[Behind, ...] = ()

    def start(self, config: Config, seed: int = 0) -> Started | Refused | wire.EngineError:
        """A fresh scheduler."""
        settings = asdict(config)
        for name in ("lookahead", "threshold"):
            if not settings[name]:
                del settings[name]  # it asks for nothing, and an adapter from before it was there may refuse it
        reply = self._ask("start", config={**settings, "seed": seed, "options": self.options})
        if reply.get("event") == "refused":
            return Refused(str(reply.get("reason", "")))
        if reply.get("event") == "engine_error":
            return self._read(reply, wire.EngineError)
        capabilities = reply.pop("capabilities", [])
        if not isinstance(capabilities, list) or not all(isinstance(c, str) for c in capabilities):
            raise HarnessError(f"{self.transport.name}: capabilities: expected a list of names")
        return Started(self._read(reply, wire.Header), frozenset(capabilities))

    def add(self, add: Add) -> wire.Arrive | wire.Reject | wire.EngineError | Refused:
        """A request arrives."""
        event = self._event("add", **asdict(add))
        assert isinstance(event, wire.Arrive | wire.Reject | wire.EngineError | Refused)
        return event

    def abort(self, request: str) -> wire.Abort | wire.EngineError | Refused:
        """A request is cancelled."""
        event = self._event("abort", request=request)
        assert isinstance(event, wire.Abort | wire.EngineError | Refused)
        return event

    def step(self) -> wire.Step | wire.EngineError | Refused:
        """One scheduling decision."""
        event = self._event("step")
        assert isinstance(event, wire.Step | wire.EngineError | Refused)
        return event

    def control(self, kind: str) -> wire.Control | wire.EngineError | Refused:
        """The operator acts: reset, pause or resume."""
        event = self._event("control", kind=kind)
        assert isinstance(event, wire.Control | wire.EngineError | Refused)
        return event

    def deliver(
        self,
        frame: int,
        requests: Sequence[str],
        tokens: Sequence[Sequence[int]],
        proposed: Sequence[int] | None = None,
    ) -> tuple[wire.Event, ...]:
        """A frame's sampled tokens, for all it owes one, stale and finished requests among them.

        `proposed`: drafts for the next grant of each. Returns the delivery and the finishes it caused.
        """
        more = {} if proposed is None else {"proposed": list(proposed)}
        reply = self._ask("deliver", frame=frame, requests=list(requests), tokens=[list(t) for t in tokens], **more)
        ended = reply.pop("finished", [])
        if not isinstance(ended, list) or not all(isinstance(e, dict) for e in ended):
            raise HarnessError(f"{self.transport.name}: finished: expected a list of objects")
        event = self._typed("deliver", reply)
        if isinstance(event, Refused):
            raise HarnessError(f"{self.transport.name}: refused a delivery: {event.reason}")
        if isinstance(event, wire.Deliver) and event.emitted == event.tokens:
            event = msgspec.structs.replace(event, emitted=None)  # read and equal is not written out
        if isinstance(event, wire.Deliver) and event.disposition and {*event.disposition} == {"delivered"}:
            event = msgspec.structs.replace(event, disposition=None)
        return (event, *(self._read({"event": "finish", **e}, wire.Finish) for e in ended))

    def stop(self) -> None:
        """End this scheduler; the session may start another."""
        self._ask("stop")

    def close(self) -> None:
        """End the session."""
        self.transport.close()

    # -- one command, one reply ----------------------------------------------------------------------------------------

    def _ask(self, do: str, **fields: Any) -> dict[str, Any]:
        self._last += 1
        reply = self.transport.exchange({"id": self._last, "do": do, **fields})
        if reply.get("id") != self._last:
            raise HarnessError(f"{self.transport.name}: answered {reply.get('id')!r} to command {self._last} ({do})")
        reply = {k: v for k, v in reply.items() if k != "id"}
        if not isinstance(reply.get("event"), str):
            raise HarnessError(f"{self.transport.name}: the reply to {do} has no event")
        return reply

    def _event(self, do: str, **fields: Any) -> wire.Event | Refused:
        return self._typed(do, self._ask(do, **fields))

    def _typed(self, do: str, reply: dict[str, Any]) -> wire.Event | Refused:
        self.earlier = self.later = ()
        if reply["event"] == "refused":
            return Refused(str(reply.get("reason", "")))
        if do in ("step", "deliver"):
            earlier, later = reply.pop("earlier", []), reply.pop("later", [])
            self.earlier = tuple(self._beside("earlier", earlier, (wire.CopyStart, wire.CopyDone)))
            event = self._expected(do, reply)
            self.later = tuple(self._beside("later", later, (wire.CopyStart, wire.CopyDone, wire.Finish)))
            return event
        return self._expected(do, reply)

    def _beside(self, field: str, told: object, kinds: tuple[type[E], ...]) -> Iterator[E]:
        if not isinstance(told, list) or not all(isinstance(e, dict) for e in told):
            raise HarnessError(f"{self.transport.name}: {field}: expected a list of objects")
        tags = {kind.__struct_config__.tag: kind for kind in kinds}
        for e in told:
            kind = tags.get(e.get("event"))
            if kind is None:
                what = repr(e.get("event"))[:60]
                raise HarnessError(f"{self.transport.name}: {field}: {what} is none of {', '.join(map(str, tags))}")
            yield self._read(e, kind)

    def _expected(self, do: str, reply: dict[str, Any]) -> wire.Event:
        kinds = (*_EVENTS[do], wire.EngineError)
        for kind in kinds:
            if reply["event"] == kind.__struct_config__.tag:
                event = self._read(reply, kind)
                assert isinstance(event, wire.Event)
                return event
        raise HarnessError(f"{self.transport.name}: answered {reply['event']!r} to {do}")

    def _read(self, reply: dict[str, Any], kind: type[E]) -> E:
        try:
            event = msgspec.convert(reply, kind)
            if isinstance(event, wire.Header):
                self._structure = Structure(event)
            elif self._structure is not None and isinstance(event, wire.Event):
                self._structure.check(event)
        except msgspec.ValidationError as e:
            raise HarnessError(f"{self.transport.name}: {reply['event']}: {e}") from None
        except Fault as e:
            raise HarnessError(f"{self.transport.name}: {reply['event']}: {e.field}: {e.reason}") from None
        return event
