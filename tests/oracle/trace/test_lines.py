"""Bad lines: every kind is refused with the line, the field and the reason, and nothing reaches the terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preempt_oracle.trace.errors import TraceError
from preempt_oracle.trace.reader import read


def joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def refused(content: bytes, **options: Any) -> TraceError:
    with pytest.raises(TraceError) as caught:
        list(read(io.BytesIO(content), name="t.jsonl", **options))
    assert str(caught.value).startswith("t.jsonl")
    return caught.value


def edited(lines: list[bytes], number: int, edit: Callable[[dict[str, Any]], object]) -> bytes:
    """The trace with one line, from 1, changed in place."""
    line = json.loads(lines[number - 1])
    edit(line)
    return joined([*lines[: number - 1], json.dumps(line).encode(), *lines[number:]])


GROUP = "group 2 does not exist, the header has 2"


@pytest.mark.parametrize(
    ("line", "edit", "message"),
    [
        (1, lambda h: h.update(groups=[]), "1: groups: empty"),
        (1, lambda h: h["pools"].pop(1), "1: pools: no device pool of group 1"),
        (1, lambda h: h["pools"][1].update(group=2), f"1: pools[1].group: {GROUP}"),
        (1, lambda h: h["pools"][1].update(group=0), "1: pools[1]: a second device pool of group 0"),
        (1, lambda h: h["pools"][0].update(reserved=41), "1: pools[0].reserved: 41 blocks reserved of 40"),
        (1, lambda h: h["observes"].append("moods"), "1: observes: unknown: moods (known: blocks, copies, counts"),
        (1, lambda h: h["observes"].append("free"), "1: observes: a name stands there twice"),
        (1, lambda h: h["groups"][0].update(page_size=0), "1: groups[0].page_size: Expected `int` >= 1"),
        (1, lambda h: h["limits"].pop("budget"), "1: limits.budget: Object missing required field `budget`"),
        (1, lambda h: h.update(trace=0), "1: trace: version 0 is not supported, only version 1"),
        (2, lambda a: a.update(prompt=[1, 2.0]), "2: prompt[1]: Expected `int`, got `float`"),
        (2, lambda a: a.update(prompt=[True]), "2: prompt[0]: Expected `int`, got `bool`"),
        (2, lambda a: a.update(max_tokens=-1), "2: max_tokens: Expected `int` >= 0"),
        (2, lambda a: a.update(max_tokens=10**30), "2: max_tokens: Expected `int` <= 9223372036854775807"),
        (2, lambda a: a.update(request="a b"), "2: request: not a request id: 1 to 128 characters"),
        (2, lambda a: a.update(colour="red"), "2: colour: Object contains unknown field `colour`"),
        (2, lambda a: a.update(event="meow"), "2: event: Invalid value 'meow'"),
        (5, lambda s: s["tokens"].pop(), "5: tokens: 1 elements for 2 requests: parallel arrays have equal length"),
        (5, lambda s: s.pop("tokens"), "5: tokens: 0 elements for 2 requests"),
        (5, lambda s: s["start"].append(0), "5: start: 3 elements for 2 requests"),
        (5, lambda s: s["requests"].append("c"), "5: tokens: 2 elements for 3 requests"),
        (5, lambda s: s["acts"][0].update(after=3), "5: acts[0].after: 3, but only 2 grants are made"),
        (5, lambda s: s["acts"][3].update(after=0), "5: acts[3].after: 0 behind 1: acts stand in the order"),
        (5, lambda s: s["acts"][0].update(blocks=[[]]), "5: acts[0].blocks: 1 lists for 2 groups"),
        (5, lambda s: s["acts"][3].update(blocks=[[], [8]]), "5: acts[3].blocks[1]: block 8 is outside the device"),
        (5, lambda s: s["acts"][6].update(group=2), f"5: acts[6]: {GROUP}"),
        (5, lambda s: s["acts"][7].update(blocks=[8]), "5: acts[7]: block 8 is outside the device pool of group 1"),
        (5, lambda s: s["blocks"][0].__setitem__(1, 2), f"5: blocks[0]: {GROUP}"),
        (5, lambda s: s["blocks"][0][2].append(40), "5: blocks[0]: block 40 is outside the device pool of group 0"),
        (5, lambda s: s["sent"][0][2].append(40), "5: sent[0]: block 40 is outside"),
        (5, lambda s: s["sent"][0].append(1), "5: Expected `array` of at most length 4"),
        (5, lambda s: s["observed"].update(free=[1]), "5: observed.free: 1 counts for 2 groups"),
        (5, lambda s: s["observed"].update(free_ids=[]), "5: observed.free_ids: 0 lists for 2 groups"),
        (5, lambda s: s["observed"].update(free_ids=[[40], []]), "5: observed.free_ids[0]: block 40 is outside"),
        (5, lambda s: s["observed"].update(refs=[[2, 0, 2]]), f"5: observed.refs[0]: {GROUP}"),
        (1, lambda h: h["groups"][1].update(window=0), "1: groups[1].window: 0 in a sliding group"),
        (1, lambda h: h["groups"][1].update(kind="full"), "1: groups[1].window: 48 in a full group"),
        (1, lambda h: h["limits"].update(frames=0), "1: limits.frames: Expected `int` >= 1"),
        (5, lambda s: s["acts"][11].update(blocks=[8]), "5: acts[11]: block 8 is outside the device pool of group 1"),
        (5, lambda s: s["acts"][12]["blocks"][0].__setitem__(1, 20), "5: acts[12].blocks[0]: block 20 is outside"),
        (5, lambda s: s["acts"][12]["blocks"][0].__setitem__(2, 1), "5: acts[12].blocks[0]: the header gives no host"),
        (5, lambda s: s["acts"][13]["blocks"].pop(), "5: acts[13].blocks: 1 lists for 2 groups"),
        (5, lambda s: s["acts"][14].update(blocks=[20]), "5: acts[14]: block 20 is outside the host pool of group 0"),
        (5, lambda s: s["acts"][14].update(group=1), "5: acts[14]: the header gives no host pool of group 1"),
        (5, lambda s: s["acts"][4].update(queue="back"), "5: acts[4].queue: Invalid enum value 'back'"),
        (5, lambda s: s["observed"].update(host_free=[1]), "5: observed.host_free: 1 counts for 2 groups"),
        (6, lambda d: d["proposed"].pop(), "6: proposed: 1 elements for 2 requests"),
        (6, lambda d: d["acts"].append({"act": "demote", "request": "a"}), "6: acts[1].act: demote is part of a step"),
        (6, lambda d: d["acts"][0].update(after=1), "6: acts[0].after: 1, but only 0 grants are made"),
        (6, lambda d: d["tokens"].pop(), "6: tokens: 1 elements for 2 requests"),
        (6, lambda d: d["accepted"].pop(), "6: accepted: 1 elements for 2 requests"),
        (6, lambda d: d["disposition"].pop(), "6: disposition: 1 elements for 2 requests"),
        (6, lambda d: d["emitted"].pop(), "6: emitted: 1 elements for 2 requests"),
        (6, lambda d: d["tokens"][0].append(None), "6: tokens[0][1]: Expected `int`, got `null`"),
        (7, lambda c: c["blocks"][0].__setitem__(2, 2), f"7: blocks[0]: {GROUP}"),
        (7, lambda c: c["blocks"][0].__setitem__(2, 1), "7: blocks[0]: the header gives no host pool of group 1"),
        (7, lambda c: c["blocks"][1].__setitem__(1, 20), "7: blocks[1]: block 20 is outside the host pool of group 0"),
        (7, lambda c: c.update(direction="in", blocks=[[1, 40, 0]]), "7: blocks[0]: block 40 is outside the device"),
        (7, lambda c: c["blocks"][0].pop(), "7: blocks[0]: Expected `array` of length 3"),
        (10, lambda c: c["acts"][0].update(after=1), "10: acts[0].after: 1, but only 0 grants are made"),
        (11, lambda f: f["blocks"].append([]), "11: blocks: 3 lists for 2 groups"),
        (12, lambda a: a.update(acts=[{"act": "demote", "request": "a"}]), "12: acts[0].act: demote cannot stand in"),
        (12, lambda a: a.update(acts=[{"act": "release", "request": "a"}]), "12: acts[0].act: release cannot stand in"),
        (12, lambda a: a.update(acts=[{"act": "pin", "blocks": [99]}]), "12: acts[0]: block 99 is outside the device"),
        (12, lambda a: a["observed"]["free"].append(1), "12: observed.free: 3 counts for 2 groups"),
        (13, lambda x: x.update(origin="weather"), "13: origin: Invalid enum value 'weather'"),
    ],
)
def test_bad_field(lines: list[bytes], line: int, edit: Callable[[dict[str, Any]], object], message: str):
    assert str(refused(edited(lines, line, edit))).startswith(f"t.jsonl:{message}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"event":"step","frame":NaN}', "2: JSON is malformed: invalid character (byte 24) (is NaN meant"),
        (b'{"event":"step","frame":Infinity}', "(is Infinity meant as a number? JSON has none)"),
        (b'{"event":"step","frame":-Infinity}', "(is Infinity meant as a number? JSON has none)"),
        (b'{"event":"step","frame":1,"frame":1}', "2: frame: duplicate key"),
        (b'{"event":"step","frame":1,"reason":"","reason":""}', "2: reason: duplicate key"),
        (b'{"event":"step","frame":1', "2: cut off: the line ends in the middle of its JSON"),
        (b'{"event":"step","frame":1}}', "2: JSON is malformed: trailing characters"),
        (b'{"event":"step","frame":1}{"event":"step","frame":1}', "2: JSON is malformed: trailing characters"),
        (b'{"event":"step","frame":1,}', "2: JSON is malformed: trailing comma"),
        (b'{"event":"step","frame":01}', "2: JSON is malformed: invalid number"),
        (b'{"event":"step","frame":1,"reason":"\xff"}', "2: Invalid UTF-8 encoded string"),
        (b'{"event":"step","frame":1,"reason":"\\ud800"}', "in the middle of its JSON, or a lone surrogate"),
        (b'{"event":"step","frame":1,"reason":"a\x00"}', "2: JSON is malformed: invalid character"),
        (b"null", "2: Expected `object`, got `null`"),
        (b"{" * 10**6, "2: JSON is malformed"),
        (b"[" * 10**6, "2: Expected `object`, got `array`"),
        (b'{"a":' * 10**6, "2: nested too deeply"),
        (b'{"x":' + b"[" * 10**6, "2: nested too deeply"),
        (b'{"event":"step","frame":1,"acts":' + b"[" * 10**6, "2: acts[0]: Expected `object`, got `array`"),
        (b'{"event":"step","frame":' + b"9" * 10**6 + b"}", "2: frame: Integer value out of range"),
        (b'{"event":"step","frame":"' + b"\\u001b[31m" + b'"}', "2: frame: Expected `int`, got `str`"),
    ],
)
def test_bad_line(lines: list[bytes], line: bytes, message: str):
    assert message in str(refused(joined([lines[0], line, *lines[1:]])))


@pytest.mark.parametrize("text", ["\x1b[31mred", "\r\n", "\u202e", "\u200b", "\x9b31m", "\ue000", "\U000e0041"])
def test_a_hostile_file_cannot_write_to_the_terminal(tmp_path: Path, lines: list[bytes], text: str):
    word = json.dumps(text).encode()
    hostile = [
        joined([lines[0], b'{"event":' + word + b"}"]),
        joined([lines[0], b'{"event":"step","frame":1,' + word + b":1}"]),
        joined([lines[0], b'{"event":"control","kind":' + word + b"}"]),
        joined([lines[0], b'{"event":"step","frame":1,' + word + b":1," + word + b":1}"]),
        edited(lines, 1, lambda header: header["observes"].append(text * 1000)),
    ]
    for content in hostile:
        message = str(refused(content))
        assert message.isprintable()
        assert len(message) < 1000
    path = tmp_path / f"a{text}b"
    with pytest.raises(TraceError) as caught:
        next(read(path))
    assert str(caught.value).isprintable()
