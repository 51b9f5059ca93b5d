"""Damaged traces: the reader yields events or raises TraceError, nothing else; what it yields is what is written."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from preempt_oracle.trace import wire
from preempt_oracle.trace.errors import TraceError
from preempt_oracle.trace.reader import read

Mutation = tuple[str, int, int, bytes]

#: Pieces that mean something in JSON, in the formats or in a terminal.
PIECES = [b'"', b"\\", b":", b",", b"{", b"}", b"[", b"]", b"\n", b"\r", b" ", b"\0", b"\x1b[31m", b"\xff", b"0", b"-"]
PIECES += [b"1e9", b".0", b"true", b"null", b"NaN", b'"frame":1,', b'"tokens":[],', b'"acts":[],', b"9" * 30]
PIECES += [b"[" * 3000]

MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "delete", "insert", "cut", "repeat", "swap", "double", "key"]),
        st.integers(0, 1 << 16),
        st.integers(0, 255),
        st.sampled_from(PIECES) | st.binary(max_size=3),
    ),
    min_size=1,
    max_size=3,
)


def mutate(content: bytes, mutations: list[Mutation]) -> bytes:
    for kind, place, amount, piece in mutations:
        at = place % (len(content) + 1)
        if kind == "flip" and at < len(content):
            content = content[:at] + bytes([content[at] ^ (amount or 1)]) + content[at + 1 :]
        elif kind == "delete":
            content = content[:at] + content[at + 1 + amount % 8 :]
        elif kind == "insert":
            content = content[:at] + piece + content[at:]
        elif kind == "cut":
            content = content[:at]
        elif kind == "repeat":
            content = content[:at] + content[at : at + amount] + content[at:]
        else:
            lines = content.split(b"\n")
            i, j = place % len(lines), amount % len(lines)
            if kind == "swap":
                lines[i], lines[j] = lines[j], lines[i]
            elif kind == "double":
                lines.insert(i, lines[j])
            elif b'":' in lines[i]:  # one of the line's own keys, once more
                key = lines[i].split(b'":')[amount % lines[i].count(b'":')].rpartition(b'"')[2]
                lines[i] = b'{"' + key + b'":' + (piece or b"1") + b"," + lines[i][1:]
            content = b"\n".join(lines)
    return content


def events_of(content: bytes) -> list[wire.Line] | None:
    """The lines of a trace, None if the reader refuses it. Any exception but TraceError gets through."""
    try:
        return [line for _, line in read(io.BytesIO(content), name="t")]
    except TraceError as error:
        message = str(error)
    assert message.startswith("t:")
    assert message.isprintable()
    return None


def strict(text: bytes) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(items)) == len(items), "a duplicate key was accepted"
        return dict(items)

    return json.loads(text, object_pairs_hook=pairs)


def covers(found: Any, original: Any) -> bool:
    """Whether `found` says all that `original` says, defaults at the end of arrays apart; it may spell out others."""
    if isinstance(original, dict):
        return isinstance(found, dict) and all(k in found and covers(found[k], v) for k, v in original.items())
    if isinstance(original, list):
        rest = original[len(found) :] if isinstance(found, list) else original
        return isinstance(found, list) and rest in ([], [False], [None]) and all(map(covers, found, original))
    return type(found) is type(original) and bool(found == original)


@settings(max_examples=1200, derandomize=True)
@given(MUTATIONS)
def test_plain(lines: list[bytes], mutations: list[Mutation]):
    content = b"\n".join(lines) + b"\n"
    mutated = mutate(content, mutations)
    found = events_of(mutated)
    if found is None:
        return
    # Accepted: each line reads, by another parser, as the event that came back; no key of it was lost.
    written = [strict(line) for line in mutated.removesuffix(b"\n").split(b"\n")]
    assert len(written) == len(found)
    for line, event in zip(written, found, strict=True):
        assert covers(line, json.loads(wire.ENCODER.encode(event)))
        assert event == wire.DECODER.decode(json.dumps(line))


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def zstd_with_sum(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


@pytest.mark.parametrize("pack", [gzipped, zstd_with_sum])
def test_packed(lines: list[bytes], pack: Callable[[bytes], bytes]):
    content = b"\n".join(lines) + b"\n"
    original = events_of(content)
    whole = pack(content)
    halves = pack(b"\n".join(lines[:6]) + b"\n") + pack(b"\n".join(lines[6:]) + b"\n")

    @settings(max_examples=600, derandomize=True)
    @given(MUTATIONS, st.sampled_from([whole, halves]))
    def damaged(mutations: list[Mutation], packed: bytes) -> None:
        mutated = mutate(packed, mutations)
        assert events_of(mutated) in (None, original)  # both formats have a checksum

    damaged()


@settings(max_examples=300, derandomize=True)
@given(MUTATIONS, st.sampled_from([gzipped, zstd.compress]))
def test_damaged_then_packed(lines: list[bytes], mutations: list[Mutation], pack: Callable[[bytes], bytes]):
    mutated = mutate(b"\n".join(lines) + b"\n", mutations)
    assert events_of(pack(mutated)) == events_of(mutated)


@settings(max_examples=300, derandomize=True)
@given(st.binary(max_size=200), st.sampled_from([b"", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"{", b"\n", b"P*M\x18"]))
def test_noise(noise: bytes, start: bytes):
    assert events_of(start + noise) is None
