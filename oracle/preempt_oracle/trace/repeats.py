"""Decoding lines fast: what repeats from line to line is decoded once, and what nearly always is so is tried first.

While requests decode steadily, a step names the same requests as the step and the delivery before it, and grants them
the same counts. Making sixty strings a line costs more than all the rest of it; comparing the bytes costs next to
nothing. So a line is first held against the bytes it begins with if nothing has changed, and only what stands behind
them is decoded. Where that is not so, these arrays are taken as raw bytes, and equal bytes give the very tuple they
gave before. A delivery brings one token each, and tuples of a fixed length are decoded twice as fast.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from . import wire
from .raw import COUNTS, DELTAS, IDS, LINE, NONE, REST, TOKENS, Deltas, RawDeliver, RawStep
from .rising import Rising
from .steady import Steady, SteadyDeliver, SteadyStep, whole
from .strict import refuse_duplicate_keys, rest_keys
from .wire import Deliver, Step

_KEPT = 16  # frames whose requests are kept until they are delivered: more never fly, and any number would do
_TOKENS, _START = b',"tokens":', b'start":['
_BLOCKS, _SENT = b'blocks":', b',"sent":'
_OPEN = b'{"'  # an object that goes on with a key: its quote stands in what was passed over
_OFTEN, _LONG = 256, 4096  # columns of counts that are kept, and bytes of each
_FEW = 1 << 16  # bytes of requests in which it costs little to look for one that ended
_HUGE = 1 << 62  # far from where a number would not be one of 64 bits any more
Ids: TypeAlias = tuple[bytes, tuple[str, ...]]  # as they stand in a line, and decoded
Counts: TypeAlias = tuple[bytes, tuple[int, ...]]


class LineDecoder:
    """`wire.DECODER`, and `refuse_duplicate_keys`, for the lines of one trace in order: same events, same errors."""

    def __init__(self, steady: bool = False) -> None:
        """Nothing is remembered yet. `steady`: lines of which little is new are handed out as such."""
        self._steady = steady
        self._ids: Ids = (bytes(NONE), ())
        self._likely: Ids = self._ids  # those of the next step, but for who is admitted
        self._counts: Counts = (bytes(NONE), ())
        self._often: dict[bytes, tuple[int, ...]] = {}
        self._granted = b""  # what follows the frame in a step, if nothing changed; "" if nothing is remembered
        self._starts: Rising | None = None  # of the step before, if it granted one token each
        self._step = self._frame = 0  # the frames that are next, of steps and of deliveries
        self._flying: dict[int, Ids] = {}

    def decode(self, raw: bytes) -> wire.Line | Steady:
        """One line. Raises what `wire.DECODER` raises, and Fault for a key that stands there twice."""
        try:
            line = self._repeated(raw) or self._raw(raw)
        except msgspec.MsgspecError:
            line = None  # of a part it says where in the part; the whole line says it whole
        if line is None:
            line, self._starts = wire.DECODER.decode(raw), None
            refuse_duplicate_keys(raw, line)
        return line

    def _repeated(self, raw: bytes) -> Step | Steady | None:
        """A delivery to all whom its frame granted tokens, or a step that grants what the one before it did."""
        begin = b'{"event":"deliver","frame":%d,"requests":' % self._frame
        if raw.startswith(begin):
            return self._delivered(raw, len(begin)) if self._steady else None
        at = self._behind(raw, self._step)
        return self._stepped(raw, at) if at else None

    def _behind(self, raw: bytes, frame: int) -> int:
        """Where the line goes on behind its tokens, if it is a step that grants what is remembered; else 0."""
        begin = b'{"event":"step","frame":%d,"requests":' % frame
        if self._granted and raw.startswith(begin) and raw.startswith(self._granted, len(begin)):
            return len(begin) + len(self._granted)
        return 0

    def _delivered(self, raw: bytes, at: int) -> SteadyDeliver | None:
        frame = self._frame
        ids = self._flying.get(frame)
        if ids is None or not raw.startswith(ids[0], at) or not raw.startswith(_TOKENS, at + len(ids[0])):
            return None
        text, n = raw[at + len(ids[0]) + len(_TOKENS) :], len(ids[1])
        flat = text.translate(None, b"[]}")
        # All brackets are in these places; what stands between them is n numbers, and no key is among them.
        if not (text.startswith(b"[[") and text.endswith(b"]]}") and text.count(b"],[") == n - 1):
            return None
        column = TOKENS.decode(b"[" + flat + b"]")
        if len(text) - len(flat) != 2 * n + 3 or len(column) != n:
            return None
        self._frame = frame + 1
        del self._flying[frame]
        return SteadyDeliver(frame, ids[1], column)

    def _stepped(self, raw: bytes, at: int) -> Step | SteadyStep | None:
        frame, ids, counts, starts = self._step, self._ids[1], self._counts[1], self._starts
        step: Step | SteadyStep
        if starts is not None and starts.rise() and raw.startswith(b'%s%s],"' % (_START, starts.text), at):
            at += len(_START) + len(starts.text) + 3
            at, grown = self._grown(raw, at)
            rest = REST.decode(_OPEN + raw[at:])
            if rest.start is not None or (grown and (rest.blocks or rest.sent)):
                return None  # twice
            step = SteadyStep(frame, ids, counts, starts.text, grown, rest)
        else:
            rest = REST.decode(_OPEN + raw[at:])
            step = Step(
                frame, ids, counts, rest.start, rest.blocks, rest.sent, rest.resumed, rest.hits, rest.drafts,
                rest.acts, rest.reason, rest.observed,
            )  # fmt: skip
            self._starts = self._foreseen(raw, at, rest.start)
        if rest.source is not None:
            return None
        if raw.count(b":", at) != rest_keys(rest):
            refuse_duplicate_keys(raw, whole(step))
        self._left(frame, self._ids)
        return step

    def _grown(self, raw: bytes, at: int) -> tuple[int, Deltas]:
        """What joins tables, if that is next, and the worker is told of just that, and where the line goes on then."""
        end = raw.find(_SENT, at) if raw.startswith(_BLOCKS, at) else -1
        if end < 0:
            return at, ()
        text = raw[at + len(_BLOCKS) : end]
        sent = text.replace(b"]]", b"],false]") + b',"'
        end += len(_SENT)
        if not raw.startswith(sent, end):
            return at, ()
        grown = DELTAS.decode(text)
        # All brackets are those of arrays, so that none was replaced in a name.
        if text.count(b"]") != 2 * len(grown) + 1:
            return at, ()
        return end + len(sent), grown

    def _foreseen(self, raw: bytes, at: int, start: tuple[int, ...] | None) -> Rising | None:
        """The starts, of which each is expected to be one more in the next step, if one token is granted to each."""
        if not self._steady or not start or not raw.startswith(_START, at):
            return None
        ones = self._counts[0]  # as many as starts, each of one digit
        if len(ones) != 2 * len(start) + 1 or ones.translate(None, b"[1,]") or sum(start) >= _HUGE:
            return None
        text = raw[at + len(_START) : raw.find(b"]", at)]
        return None if text.translate(None, b"0123456789,") else Rising(text)

    def _left(self, frame: int, ids: Ids) -> None:
        """The frame leaves, and will be delivered."""
        self._step = frame + 1
        if ids[1]:
            self._flying[frame] = ids
            if len(self._flying) > _KEPT:
                del self._flying[next(iter(self._flying))]

    def _raw(self, raw: bytes) -> wire.Line | None:
        """Any line, as bytes where it often repeats; None if all of it must be decoded."""
        line: Any = LINE.decode(raw)  # a cast would cost as much as a field
        event: wire.Line = line
        if type(line) is RawDeliver:
            ids = self._known(line.requests, self._flying.pop(line.frame, self._ids))
            if line.source is not None:
                return None
            event = Deliver(
                line.frame, ids[1], line.tokens, line.accepted, line.disposition, line.emitted, line.proposed, line.acts
            )
            self._frame = line.frame + 1
        elif type(line) is RawStep:
            ids, counts = self._known(line.requests, self._likely), self._counted(bytes(line.tokens))
            if line.source is not None:
                return None
            event = Step(
                line.frame, ids[1], counts[1], line.start, line.blocks, line.sent, line.resumed, line.hits, line.drafts,
                line.acts, line.reason, line.observed,
            )  # fmt: skip
            if ids is not self._ids or counts is not self._counts:
                self._ids, self._counts = ids, counts
                # Arrays at their default count as no keys.
                self._granted = ids[0] + _TOKENS + counts[0] + b',"' if ids[1] and counts[1] else b""
            at = self._behind(raw, line.frame) if self._steady else 0
            self._starts = self._foreseen(raw, at, line.start) if at else None
            self._left(line.frame, ids)
            self._likely = ids
        elif type(line) is wire.Finish:
            self._gone(line.request)
        refuse_duplicate_keys(raw, event)
        return event

    def _counted(self, text: bytes) -> Counts:
        """Counts are all ones but for a few prompts: the same again and again."""
        if text == self._counts[0]:
            return self._counts
        counts = self._often.get(text)
        if counts is None:
            counts = COUNTS.decode(text)
            if len(self._often) == _OFTEN:
                self._often.clear()
            if len(text) <= _LONG:
                self._often[text] = counts
        return text, counts

    def _known(self, raw: msgspec.Raw, ids: Ids) -> Ids:
        """The ids of an array: these, or these and more behind them, or others."""
        text = bytes(raw)  # raw itself equals no bytes
        if text == ids[0]:
            return ids
        if text.startswith(ids[0][:-1] + b","):
            return text, ids[1] + IDS.decode(b"[" + text[len(ids[0]) :])
        return text, IDS.decode(text)

    def _gone(self, request: str) -> None:
        """The next step will grant it nothing: what is likely is the same without it, unless it was the last."""
        text, ids = self._likely
        # What stands between two quotes is a request, if there is no escape, or has a comma.
        if len(text) > _FEW or request not in ids or b"\\" in text or "," in request:
            return
        name = b'"%s",' % request.encode()
        at, i = text.find(name), ids.index(request)
        if at >= 0:
            self._likely = text[:at] + text[at + len(name) :], ids[:i] + ids[i + 1 :]
