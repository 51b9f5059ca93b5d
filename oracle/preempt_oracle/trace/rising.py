"""A column of numbers as text, each to be one more in the next line.

While requests decode steadily, each of them starts one token further in every step. Making sixty numbers a line, to
compare them with sixty others, costs more than all the rest of such a line; so the text that the next line must have is
made of the text of this one, and only the two texts are compared.

A text is one large number, a byte per character. Made up to 0xFF, a "9" carries into the digit before it when one is
added, as in decimal. What carries into a comma needs one more digit: no text is foretold then.
"""

from __future__ import annotations

_UP = 0xFF - ord("9")  # a nine becomes 0xFF, a nought 0xF6
_HIGH = _UP + ord("0")


class Rising:
    """Numbers without sign, in decimal, between commas: `text`, which `rise` makes that of the numbers behind it."""

    __slots__ = ("_add", "_commas", "_digits", "_off", "_size", "_value", "text")

    def __init__(self, text: bytes) -> None:
        """`text` is of digits and commas alone, no number is empty."""
        self.text = text
        self._size = size = len(text) + 1
        value = int.from_bytes(b"," + text, "big")  # the comma in front is for the first number to carry into
        ones = int.from_bytes(b"\x01" * size, "big")
        self._digits = digits = value >> 4 & ones  # 0x10 is set in all digits, and not in a comma
        self._commas = commas = ones ^ digits
        last = (commas << 8 | 1) & digits
        self._value = value
        self._add = digits * _UP + last
        self._off = digits * ord("0")

    def rise(self) -> bool:
        """Each number is one more; False, and nothing is right any more, if one of them needs another digit."""
        value = self._value + self._add
        kept = value >> 7 & self._digits  # a digit that did not wrap has its highest bit still
        # Of a digit that wrapped nothing is left: it becomes "0". Of the others what was put on is taken off.
        self._value = value = value + self._off - kept * _HIGH
        if value & self._commas:
            return False  # one of them, 0x2C, was carried into
        self.text = value.to_bytes(self._size, "big")[1:]
        return True
