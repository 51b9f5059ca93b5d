"""Decoding lines fast: what repeats from line to line is decoded once, and what nearly always is so is tried first.

While requests decode steadily, a step names the same requests as the step and the delivery before it, and grants them
the same counts. Making sixty strings a line costs more than all the rest of it; comparing the bytes costs next to
nothing. So these arrays are taken as raw bytes first, and equal bytes give the very tuple they gave before. A delivery
brings one token each, and tuples of a fixed length are decoded twice as fast.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.json import Decoder

from . import wire
from .fields import Count, Int64
from .wire import Deliver, Step

_NONE: Final = Raw(b"[]")


class _Step(Step, frozen=True, tag="step"):
    requests: Raw = _NONE  # type: ignore[assignment]
    tokens: Raw = _NONE  # type: ignore[assignment]


class _Deliver(Deliver, frozen=True, tag="deliver"):
    requests: Raw = _NONE  # type: ignore[assignment]
    tokens: tuple[tuple[Int64], ...] = ()


_Other: TypeAlias = (
    wire.Header
    | wire.Arrive
    | wire.Reject
    | wire.Abort
    | wire.Finish
    | wire.Control
    | wire.CopyStart
    | wire.CopyDone
    | wire.EngineError
    | wire.Footer
)
_DECODER: Final[Decoder[_Step | _Deliver | _Other]] = Decoder(_Step | _Deliver | _Other)
_IDS: Final = Decoder(tuple[str, ...])
_COUNTS: Final = Decoder(tuple[Count, ...])


class LineDecoder:
    """`wire.DECODER` for the lines of one trace, in order: the same events, the same errors."""

    def __init__(self) -> None:
        """Nothing is remembered yet."""
        self._ids: tuple[Raw, tuple[str, ...]] = (_NONE, ())
        self._counts: tuple[Raw, tuple[int, ...]] = (_NONE, ())

    def decode(self, raw: bytes) -> wire.Line:
        """One line. Raises what `wire.DECODER` raises."""
        try:
            line: Any = _DECODER.decode(raw)  # a cast would cost as much as a field
            if type(line) is _Deliver:
                ids = self._ids
                if line.requests != ids[0]:
                    ids = self._ids = (line.requests, _IDS.decode(line.requests))
                if line.source is None:
                    return Deliver(
                        line.frame, ids[1], line.tokens, line.accepted, line.disposition, line.emitted, line.proposed,
                        line.acts,
                    )  # fmt: skip
            elif type(line) is _Step:
                ids, counts = self._ids, self._counts
                if line.requests != ids[0]:
                    ids = self._ids = (line.requests, _IDS.decode(line.requests))
                if line.tokens != counts[0]:
                    counts = self._counts = (line.tokens, _COUNTS.decode(line.tokens))
                if line.source is None:
                    return Step(
                        line.frame, ids[1], counts[1], line.start, line.blocks, line.sent, line.resumed, line.hits,
                        line.drafts, line.acts, line.reason, line.observed,
                    )  # fmt: skip
            else:
                whole: wire.Line = line
                return whole
        except msgspec.MsgspecError:
            pass  # of a part it says where in the part; the whole line says it whole
        return wire.DECODER.decode(raw)
