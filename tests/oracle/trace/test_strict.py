"""Duplicate keys: none passes, and no valid line is refused, however the line is spelled."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from preempt_oracle.trace import wire
from preempt_oracle.trace.errors import Fault
from preempt_oracle.trace.reader import parse
from preempt_spec import events as e

DEFAULTS: dict[str, Any] = {"reason": "", "acts": [], "start": None, "hits": [], "observed": {}, "accepted": None}


class Speller:
    """Writes JSON in any legal way: spaces, escapes, keys in any order; and, on demand, a key twice."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.duplicates = 0

    def space(self) -> str:
        return self.rng.choice(["", "", "", " ", "\t\r "])

    def string(self, text: str) -> str:
        style = self.rng.randrange(4)
        if style == 0 and text:
            return f'"\\u{ord(text[0]):04x}{json.dumps(text[1:])[1:]}' if ord(text[0]) < 0x10000 else json.dumps(text)
        return json.dumps(text, ensure_ascii=style > 1)

    def value(self, value: Any) -> str:
        if isinstance(value, dict):
            pairs = list(value.items())
            if pairs and self.rng.randrange(12) == 0:
                key, old = self.rng.choice(pairs)
                pairs.append((key, self.rng.choice([old, *value.values()])))
                self.duplicates += 1
            self.rng.shuffle(pairs)
            items = [f"{self.string(k)}{self.space()}:{self.space()}{self.value(v)}" for k, v in pairs]
            return "{" + self.space() + ("," + self.space()).join(items) + "}"
        if isinstance(value, list):
            return "[" + ",".join(self.space() + self.value(item) for item in value) + "]"
        return self.string(value) if isinstance(value, str) else json.dumps(value)


def has_duplicate(text: str) -> bool:
    found = False

    def pairs(items: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or len(dict(items)) < len(items)

    json.loads(text, object_pairs_hook=pairs)
    return found


@pytest.mark.parametrize("index", range(14))
def test_exactly_the_lines_with_a_duplicate_key_are_refused(lines: list[bytes], index: int):
    rng = random.Random(index)
    outcomes = {spell_and_parse(lines[index], rng) for _ in range(250)}
    assert outcomes == {True, False}


def spell_and_parse(raw: bytes, rng: random.Random) -> bool:
    """Write the event of `raw` in some other way and parse that; whether it had a duplicate key."""
    line = json.loads(raw)
    if line["event"] in ("step", "deliver") and rng.random() < 0.5:
        odd = [rng.choice([":", '":', 'frame":1', '","frame":', "\\", "a", ":a"]) for _ in range(rng.randrange(4))]
        line.update(requests=odd, tokens=[1] * len(odd) if line["event"] == "step" else [[1]] * len(odd))
    expected = wire.DECODER.decode(json.dumps(line))
    for key, default in DEFAULTS.items():
        if key in type(expected).__struct_fields__ and key not in line and rng.random() < 0.5:
            line[key] = default
    speller = Speller(rng)
    text = speller.value(line)
    assert has_duplicate(text) == (speller.duplicates > 0)
    if speller.duplicates:
        with pytest.raises(Fault):
            parse(text.encode())
    else:
        assert parse(text.encode()) == expected
    return speller.duplicates > 0


MINIMAL_HEADER = (
    '{"event":"header","engine":"e","version":"1","policy":"p","limits":{"max_running":1,"budget":1,"max_length":1}'
)
STEP = '{"event":"step","frame":1,"requests":["a"],"tokens":[1]'


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (STEP + ',"tokens":[1]}', "tokens"),
        (STEP + ',"tokens":[2]}', "tokens"),
        (STEP + ',"frame":1}', "frame"),
        (STEP + ',"reason":"","reason":""}', "reason"),
        (STEP + ',"start":[0],"start":null}', "start"),
        (STEP + ',"acts":[{"act":"skip","request":"a","guard":"x"}],"acts":[]}', "acts"),
        (STEP + ',"fr\\u0061me":1}', "frame"),
        (STEP + ',"tokens" :[1]}', "tokens"),
        (STEP + ',"observed":{"free":[1],"free":[1]}}', "free"),
        (STEP + ',"observed":{"free":[1]},"observed":{}}', "observed"),
        (STEP + ',"acts":[{"act":"demote","request":"a","need":1,"need":1}]}', "need"),
        ('{"event":"step","frame":1,"requests":[":"],"requests":["\\u003a"],"tokens":[1]}', "requests"),
        ('{"event":"deliver","frame":1,"tokens":[],"tokens":[]}', "tokens"),
        ('{"event":"finish","request":"a","request":"b"}', "request"),
        ('{"event":"finish","request":"a:b:c","request":"b"}', "request"),
        (MINIMAL_HEADER + ',"engine":"e"}', "engine"),
        (MINIMAL_HEADER + ',"limits":{"max_running":1,"budget":1,"max_length":1}}', "limits"),
        ('{"event":"footer","lines":1,"steps":0,"grants":0,"preemptions":0,"steps":0}', "steps"),
    ],
)
def test_duplicates_that_look_harmless(line: str, key: str):
    with pytest.raises(Fault) as caught:
        parse(line.encode())
    assert (caught.value.field, caught.value.reason) == (key, "duplicate key")


def test_what_a_writer_of_this_package_writes_is_never_scanned(
    monkeypatch: pytest.MonkeyPatch, lines: list[bytes], spec_trace: tuple[e.Header, tuple[e.Event, ...]]
):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a scan of the whole line")

    monkeypatch.setattr("preempt_oracle.trace.strict.json.loads", refuse)
    for line in lines:
        if b"\\" not in line:
            parse(line)
            parse(line.replace(b",", b", ").replace(b'":', b'": '))  # as json.dumps writes by default
    parse(b'{"event":"step","frame":1,"requests":[],"tokens":[],"start":null,"acts":[],"reason":"","observed":{}}')
