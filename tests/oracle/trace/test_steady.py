"""Steady lines, read as what is new in them: the same events and the same errors as lines read whole."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preempt_oracle.trace import wire
from preempt_oracle.trace.errors import TraceError
from preempt_oracle.trace.reader import parse, read, read_steadily
from preempt_oracle.trace.repeats import LineDecoder
from preempt_oracle.trace.steady import Steady, whole
from preempt_oracle.trace.writer import create

REQUESTS = ("a", "b:1", 'q"\\', "d")
Outcome = tuple[list[wire.Line], str]


def trace(steps: int, frames: int = 1, start: int = 0, requests: tuple[str, ...] = REQUESTS) -> bytes:
    """Requests that decode, `frames` of them in flight; a table grows now and then, and one comes and goes."""
    limits = wire.Limits(max_running=8, budget=64, max_length=2**40, frames=frames)
    header = wire.Header("demo", "1", "vllm-fcfs", limits, pools=(wire.Pool("device", 0, 40),))
    out = io.BytesIO()
    with create(out, header) as to:
        for i in range(steps + frames - 1):
            here = requests if i % 7 != 3 else requests[:-1]
            if i < steps:
                blocks = (wire.Delta("a", 0, (i % 40,)),) if i % 3 == 1 else ()
                sent = tuple(wire.Sent(d.request, 0, d.blocks) for d in blocks)
                ones, starts = (1,) * len(here), tuple(start + i + 90 * k for k in range(len(here)))
                observed = wire.Observed(free=(i,)) if i % 2 else wire.NOTHING_OBSERVED
                to.write(wire.Step(i, here, ones, starts, blocks, sent, observed=observed))
            if i >= frames - 1:
                back = i - frames + 1
                here = requests if back % 7 != 3 else requests[:-1]
                to.write(wire.Deliver(back, here, tuple((1000 * k + i,) for k in range(len(here)))))
    return out.getvalue()


def outcome(lines: Iterator[tuple[int, wire.Line | Steady]], taken: Counter[str] | None = None) -> Outcome:
    """What is read, whole, and the error it ends with."""
    found: list[wire.Line] = []
    try:
        for number, line in lines:
            assert number == len(found) + 1
            if taken is not None:
                taken[type(line).__name__] += 1
            found.append(line if isinstance(line, wire.Header | wire.Footer) else whole(line))
    except TraceError as error:
        return found, f"{error.line}: {error.field}: {error.reason}"
    return found, ""


def steadily(content: bytes, taken: Counter[str] | None = None) -> Outcome:
    return outcome(read_steadily(io.BytesIO(content)), taken)


def wholly(content: bytes) -> Outcome:
    """By the reader that hands out whole lines; it shares the decoder, so each is held to what it says by itself."""
    found = outcome(read(io.BytesIO(content)))
    assert found[0] == [parse(line) for line in content.split(b"\n")[: len(found[0])]]
    return found


def amid(kind: str, frame: int) -> tuple[list[bytes], int]:
    """The lines of a trace, and which of them is that event."""
    lines, begin = trace(30, requests=("a", "b:1", "c", "d")).split(b"\n"), f'{{"event":"{kind}","frame":{frame},'
    return lines, next(i for i, line in enumerate(lines) if line.startswith(begin.encode()))


@pytest.mark.parametrize("frames", [1, 2, 3])
@pytest.mark.parametrize("start", [0, 93, 10**12])
def test_the_same_events(frames: int, start: int):
    content, taken = trace(60, frames, start, ("a", "b:1", "c", "d")), Counter[str]()
    found = steadily(content, taken)
    assert found == wholly(content)
    assert found[1] == ""
    assert taken["SteadyStep"] > 15
    assert taken["SteadyDeliver"] == 60


def test_numbers_that_may_leave_64_bits_are_read_one_by_one():
    taken = Counter[str]()
    assert steadily(trace(30, start=2**62), taken) == wholly(trace(30, start=2**62))
    assert "SteadyStep" not in taken


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"tokens":[[', b'"tokens":[5['),
        (b'"tokens":[[', b'"tokens":[[['),
        (b'"tokens":[[', b'"tokens":[[],['),
        (b"]]}", b"]5]}"),
        (b"]]}", b"]]5"),
        (b"]]}", b"]] }"),
        (b"]]}", b"]]}}"),
        (b"]]}", b",7]]}"),
        (b"]]}", b'],[8]],"source":"plan"}'),
        (b"]]}", b']],"frame":9}'),
        (b"]]}", b']],"tokens":[[1],[2],[3],[4]]}'),
        (b"]]}", b']],"acts":[]}'),
        (b"],[", b"],["[:1] + b"6" + b",["),
        (b"],[", b"],6["),
        (b"],[", b"] , ["),
        (b"],[", b","),
        (b"],[", b"],[-"),
        (b"],[", b"],[0"),
        (b"],[", b"],[ "),
        (b"],[", b"],[1e5"),
        (b"],[", b"],[9999999999999999999999"),
        (b"],[", b"],[\"1\"],["),
    ],
)  # fmt: skip
def test_a_delivery_that_is_not_quite_one(old: bytes, new: bytes):
    lines, at = amid("deliver", 20)
    where = lines[at].index(old, lines[at].index(b'"tokens"'))
    lines[at] = lines[at][:where] + new + lines[at][where + len(old) :]
    content = b"\n".join(lines)
    assert steadily(content) == wholly(content)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"start":[', b'"start":[0'),
        (b'"start":[', b'"start":[ '),
        (b'"start":[', b'"start":[-'),
        (b'"start":[', b'"starts":['),
        (b'"start":[', b'"start":[1,'),
        (b'"start":[', b'"start":[],"start":['),
        (b'"start":[20,', b'"start":[21,'),
        (b'"start":[20,', b'"start":[20.0,'),
        (b'"start":[20,', b'"start":['),
        (b'"start":[20,110,', b'"start":[20110,'),
        (b"]}", b"],}"),
        (b"]}", b']}"'),
        (b"]}", b'],"frame":20}'),
        (b"]}", b'],"start":[20,110,200,290]}'),
        (b"]}", b'],"requests":["a","b:1","c","d"]}'),
        (b"]}", b'],"hits":[],"hits":[]}'),
        (b"]}", b'],"hits":[["a",9999999999999999999999]]}'),
        (b"]}", b'],"source":"worker"}'),
        (b"]}", b'],"blocks":[["a",0,[40]]]}'),
        (b"]}", b'],"blocks":[["a",1,[4]]]}'),
        (b"]}", b'],"acts":[{"act":"unpin","blocks":[1],"after":9}]}'),
        (b"]}", b'],"acts":[{"act":"unpin","blocks":[1],"after":1,"after":1}]}'),
        (b"]}", b'],"observed":{"free":[1,2]}}'),
        (b"]}", b'],"observed":{"free":[1],"free":[1]}}'),
        (b"]}", b'],"reason":"a:b"}'),
        (b"]}", b""),
    ],
)
def test_a_step_that_is_not_quite_the_next(old: bytes, new: bytes):
    lines, at = amid("step", 20)
    assert b"blocks" not in lines[at]
    assert b"observed" not in lines[at]
    assert lines[at].count(old) == 1
    lines[at] = lines[at].replace(old, new)
    content = b"\n".join(lines)
    assert steadily(content) == wholly(content)


NAMES = ("a", ",", "x]],[y", "b,c", "q\\", "ü", "d:1", "],false]", "\\u0061", "e", '"f"', "g", "[", "h")


def turnover(seed: int, names: tuple[str, ...], frames: int = 1) -> bytes:
    """Requests that decode, end and are admitted; tables grow as they are told, or nearly so."""
    random = Random(seed)
    limits = wire.Limits(max_running=8, budget=64, max_length=2**40, frames=frames)
    header = wire.Header("demo", "1", "vllm-fcfs", limits, pools=(wire.Pool("device", 0, 40),))
    out, running, flying = io.BytesIO(), list(names[:5]), list[tuple[str, ...]]()
    with create(out, header) as to:
        for i in range(40):
            start = dict(zip(names, range(i, 10**6, 997), strict=False))
            if random.random() < 0.4:
                gone = random.choice(running)
                if random.random() < 0.8:
                    end = random.choice([wire.Finish, wire.Abort])
                    to.write(end(gone) if gone.isascii() and '"' not in gone else wire.Finish("a"))
                running = [r for r in running if r != gone] or [*names[:3]]
            coming = [r for r in names if r not in running] if random.random() < 0.4 else []
            here = tuple(running + coming[:1])
            counts = (1,) * len(running) + (7,) * (len(here) - len(running))
            running = [*here]
            blocks = tuple(wire.Delta(r, 0, (random.randrange(40),)) for r in here if random.random() < 0.3)
            sent = tuple(wire.Sent(d.request, 0, d.blocks, random.random() < 0.03) for d in blocks)
            if random.random() < 0.1:
                sent = sent[1:]
            observed = wire.Observed(free=(i,)) if random.random() < 0.8 else wire.NOTHING_OBSERVED
            to.write(wire.Step(i, here, counts, tuple(start[r] for r in here), blocks, sent, observed=observed))
            flying.append(here)
            if len(flying) == frames:
                back = flying.pop(0)
                to.write(wire.Deliver(i - frames + 1, back, tuple((random.randrange(10**6),) for _ in back)))
    return out.getvalue()


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_requests_that_come_and_go(frames: int, seed: int):
    names, taken = tuple(Random(seed).sample(NAMES, len(NAMES))), Counter[str]()
    content = turnover(seed, names if seed else ("a", "b", "c", "d", "e", "f", "g"), frames)
    found = steadily(content, taken)
    assert found == wholly(content)
    assert found[1] == ""
    assert taken["SteadyStep"] > 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"sent":', b'"sent" :'),
        (b'"sent":', b'"sent":[],"sent":'),
        (b'"sent":', b'"blocks":[],"sent":'),
        (b"],false]]", b"]]]"),
        (b"],false]]", b"],true]]"),
        (b"],false]]", b"],false],[]]"),
        (b"],false]]", b"],false]] "),
        (b"],false]]", b'],false]],"blocks":[]'),
        (b"],false]]", b'],false]],"sent":[]'),
        (b"],false]]", b'],false]],"blocks":[["b",0,[7]]]'),
        (b"],false]]", b'],false]],"sent":[["b",0,[7],false]]'),
        (b"],false]]", b'],false]],"start":[1,2,3,4]'),
        (b'"blocks":[["a",0,[1', b'"blocks":[["a",0,[2'),
        (b'"blocks":[["a",0,[1', b'"blocks":[["a" ,0,[1'),
        (b'"a",0,[1', b'"a",1,[1'),
        (b'"a",0,[1', b'"a",0,[4'),
        (b'"a",0,[1', b'"a",0,[-1'),
        (b'"a",0,[1', b'"a",0,[01'),
        (b'"a",0,[1', b'"a",0,["1'),
        (b'"a",0,[1', b'"a",0,[99999999999999999991'),
        (b'"a",0,[1', b'"a",0,[],[1'),
        (b'["a",0,[1', b'["a",0,[]],["b",0,[1'),
        (b'["a",0,[1', b'["\\u0061",0,[1'),
        (b'["a",0,[1', b'["]],[",0,[1'),
        (b'["a",0,[1', b'["a",0,[1]],["a",0,[1'),
        (b'["a",0,[1', b"[7,0,[1"),
        (b'["a",0,[1', b'["a","0",[1'),
        (b'["a",0,[1', b'["a\xff",0,[1'),
    ],
)
def test_growth_that_is_not_quite_told(old: bytes, new: bytes):
    """What is changed is so wherever it stands in the line."""
    lines, at = amid("step", 13)
    assert b'"blocks":[["a",0,[13]]],"sent":[["a",0,[13],false]],"observed":' in lines[at]
    assert old in lines[at]
    lines[at] = lines[at].replace(old, new)
    content = b"\n".join(lines)
    assert steadily(content) == wholly(content)


@pytest.mark.parametrize(
    ("before", "gone", "behind"),
    [
        (("a", ",x", ",", "b"), ",", ("ax", ",", "b")),
        (('"a', "c", "a", "b"), "a", ('"c', "a", "b")),
        (("a", "a", "b"), "a", ("a", "b")),
        (("ba", "a", "b"), "a", ("ba", "b")),
        (("a",), "a", ("b",)),
        (("a", "b"), "b", ("a", "c")),
        (("é", "a", "b"), "é", ("a", "b")),
    ],
)
def test_who_is_left(before: tuple[str, ...], gone: str, behind: tuple[str, ...]):
    """What is taken out of the requests, and out of their text, is the same."""
    limits, out = wire.Limits(max_running=8, budget=64, max_length=999), io.BytesIO()
    with create(out, wire.Header("demo", "1", "vllm-fcfs", limits, pools=(wire.Pool("device", 0, 40),))) as to:
        to.write(wire.Step(0, before, (1,) * len(before), tuple(range(len(before)))))
        to.write(wire.Finish(gone))
        to.write(wire.Step(1, behind, (1,) * len(behind), tuple(range(len(behind)))))
    found = steadily(out.getvalue())
    assert found == wholly(out.getvalue())
    assert found[1] == ""


def test_a_name_that_looks_like_the_end_of_a_table():
    lines, at = amid("step", 13)
    told = b'"blocks":[["x]]y",0,[13]]],"sent":[["x],false]y",0,[13],false]],'
    before = b'"blocks":[["a",0,[13]]],"sent":[["a",0,[13],false]],'
    assert before in lines[at]
    lines[at] = lines[at].replace(before, told)
    content = b"\n".join(lines)
    assert steadily(content) == wholly(content)


def test_what_repeats_is_made_once():
    """Else all is still right, and slow: nothing but this would show it."""
    ids = tuple(f"r{i}" for i in range(5))
    events = [
        wire.Step(0, ids, (7, 1, 1, 1, 1)),
        wire.Deliver(0, ids, ((5,),) * 5),
        wire.Step(1, ids, (8, 1, 1, 1, 1)),
        wire.Finish("r2"),
        wire.Step(2, ("r0", "r1", "r3", "r4", "new"), (7, 1, 1, 1, 1)),
    ]
    decoder = LineDecoder()
    first, delivered, second, _, third = [decoder.decode(wire.ENCODER.encode(e)) for e in events]
    assert isinstance(first, wire.Step)
    assert isinstance(delivered, wire.Deliver)
    assert isinstance(second, wire.Step)
    assert isinstance(third, wire.Step)
    assert first.requests is delivered.requests is second.requests
    made = [first.requests[i] for i in (0, 1, 3, 4)]
    assert all(a is b for a, b in zip(third.requests, made, strict=False))
    assert third.tokens is first.tokens


@settings(max_examples=400, derandomize=True)
@given(st.integers(0, 2**32), st.sampled_from([1, 3]))
def test_damaged_turnover(seed: int, frames: int):
    random, content = Random(seed), turnover(seed, ("a", "b", "c,d", "]]", "e", "f", "g"), frames)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(content))
        piece = random.choice([b"", b"0", b"]", b"[", b",", b'"', b'","', b"]]", b"},{", b" ", b'"a"', b"],false]"])
        content = content[:at] + piece + content[at + random.randint(0, 3) :]
    assert steadily(content) == wholly(content)


@settings(max_examples=400, derandomize=True)
@given(st.integers(0, 2**32), st.sampled_from([1, 3]))
def test_damaged_lines(seed: int, frames: int):
    random, content = Random(seed), trace(24, frames, 80)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(content))
        piece = random.choice([b"", b"0", b"9", b"]", b"[", b",", b'"', b":", b"}", b"\n", b" ", b"-", b'"frame":1,'])
        content = content[:at] + piece + content[at + random.randint(0, 2) :]
    assert steadily(content) == wholly(content)


def test_a_file_is_read_steadily_too(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(trace(20))
    assert outcome(read_steadily(path)) == wholly(trace(20))
