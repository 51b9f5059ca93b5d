"""What stands in a recorded trace for tokens, salts and names: keyed hashes, chained over the prefix.

The value at a position depends on the key and on every token up to it, so that equal values mean equal prefixes. That
is all the rules ask of content: the monitor compares prefixes, and judges a hashed trace as it judges a plain one.

The key is the salt of the series: 32 random bytes that live in memory alone and are never written, since whoever knew
it could try every token of the vocabulary at each position. Without it a file shows lengths, times and which requests
share a prefix, and nothing of what they say.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from hashlib import blake2b

#: Bytes of a position's value: a JSON number of 13 digits at most. Prefixes are compared position by position, so that
#: two that differ look alike by chance once in 2^40.
WIDTH = 5
_STATE = 8  # bytes carried from position to position; more than is shown


class Hashed:
    """The streams of the live requests, as far as they are known: a few bytes each, whatever their length."""

    kind = "hashed"

    def __init__(self, key: bytes | None = None) -> None:
        """`key`: for tests; otherwise random."""
        self._key = secrets.token_bytes(32) if key is None else key
        self._ends: dict[str, bytes] = {}

    def begin(self, request: str, prompt: Iterable[int]) -> list[int]:
        """The values of a new request's prompt."""
        values, self._ends[request] = self._chain(bytes(_STATE), prompt)
        return values

    def next(self, request: str, tokens: Iterable[int], *, keep: bool) -> list[int]:
        """The values of tokens behind what is known of a request; `keep`: they belong to its stream from now on."""
        values, end = self._chain(self._ends.get(request, bytes(_STATE)), tokens)
        if keep and request in self._ends:
            self._ends[request] = end
        return values

    def end(self, request: str) -> None:
        """The request is over."""
        self._ends.pop(request, None)

    def word(self, text: str) -> str:
        """What stands for a salt or a name that is not to be shown; "" for none."""
        return blake2b(self._key + b"word" + text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest() * bool(
            text
        )

    def _chain(self, state: bytes, tokens: Iterable[int]) -> tuple[list[int], bytes]:
        key, hashed, number = self._key, blake2b, int.from_bytes
        values = []
        for token in tokens:
            state = hashed(key + state + int(token).to_bytes(8, "little", signed=True), digest_size=_STATE).digest()
            values.append(number(state[:WIDTH], "little"))
        return values, state


class Plain:
    """Tokens as they are."""

    kind = "plain"

    def begin(self, request: str, prompt: Iterable[int]) -> list[int]:
        """See `Hashed`."""
        return list(prompt)

    def next(self, request: str, tokens: Iterable[int], *, keep: bool) -> list[int]:
        """See `Hashed`."""
        return [int(token) for token in tokens]

    def end(self, request: str) -> None:
        """See `Hashed`."""

    def word(self, text: str) -> str:
        """See `Hashed`."""
        return text


def content(kind: str) -> Hashed | Plain:
    """The content of trace v1's header field of that name."""
    return Hashed() if kind == "hashed" else Plain()
