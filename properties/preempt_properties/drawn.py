"""Bytes instead of a source of randomness: what decodes a workload reads its choices off them, one byte each.

So a workload can be changed a little by changing a byte, which is what a search needs, and what a shrinker needs: fewer
and smaller bytes make a shorter and plainer workload. Importable without Hypothesis.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from random import Random
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Indexed(Protocol[T_co]):
    """What can be chosen from."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> T_co: ...


class Bytes(Random):
    """A `Random` that reads its numbers off given bytes; when they are used up, everything is 0.

    A choice among up to 256 takes one byte, any other as many as it needs: `Random` itself would reject numbers out of
    range and draw again, so that a change of one byte would shift the meaning of all that follow.
    """

    def __new__(cls, data: bytes) -> Bytes:
        """As `Random`, which would hash the bytes for a seed."""
        return super().__new__(cls)

    def __init__(self, data: bytes) -> None:
        """Over these bytes, from the first."""
        self.data, self.at, self._size = data, 0, len(data)
        super().__init__(0)

    def below(self, n: int) -> int:
        """A number in [0, n)."""
        if n <= 256:
            at = self.at
            self.at = at + 1
            return self.data[at] % n if at < self._size else 0
        return self.getrandbits(n.bit_length() + 8) % n

    def getrandbits(self, k: int, /) -> int:
        """The next bytes, as many as hold k bits."""
        n = -(-k // 8)
        part = self.data[self.at : self.at + n]
        self.at += n
        return int.from_bytes(part, "little") & ((1 << k) - 1)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """A number in the range. ValueError: it is empty."""
        numbers = range(start) if stop is None else range(start, stop, step)
        if not numbers:
            raise ValueError(f"empty range: {numbers}")
        return numbers[self.below(len(numbers))]

    def randint(self, a: int, b: int) -> int:
        """A number in [a, b]. ValueError: there is none."""
        if b < a:
            raise ValueError(f"empty range: {a} to {b}")
        return a + self.below(b - a + 1)

    def choice(self, seq: _Indexed[T]) -> T:
        """One of them. IndexError: there is none."""
        return seq[self.below(len(seq))] if len(seq) else seq[0]

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Into another order, or the same."""
        for i in range(len(x) - 1, 0, -1):
            j = self.below(i + 1)
            x[i], x[j] = x[j], x[i]

    def random(self) -> float:
        """The next two bytes, as a number in [0, 1)."""
        return self.getrandbits(16) / 65536

    def seed(self, *_: Any, **__: Any) -> None:
        """Back to the first byte."""
        self.at = 0
