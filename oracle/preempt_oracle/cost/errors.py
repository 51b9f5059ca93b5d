"""What is wrong with a quantity, a name, a config or a curve, and where; safe to print."""

from __future__ import annotations

import attrs

from preempt_oracle.trace.errors import visible

_LONGEST_REASON = 600  # characters; a reason may quote what was given


@attrs.define(slots=False)
class CostInputError(Exception):
    """Input of the cost model that cannot be used: the one exception that this package raises for what a user gave.

    `str()` gives "WHERE: FIELD: reason" on one line, unprintable characters escaped, parts that do not apply left out.
    """

    where: str  # an option (--bandwidth), a file, or FILE:LINE
    field: str  # inside a file: a path such as text_config.num_attention_heads, or a column; "" of an option
    reason: str

    def __str__(self) -> str:
        """WHERE: FIELD: reason."""
        parts = (visible(self.where, 300), visible(self.field, 200), visible(self.reason, _LONGEST_REASON))
        return ": ".join(part for part in parts if part)


def quoted(value: object, limit: int = 60) -> str:
    """A value as a short quotation for a message; never longer than `limit` characters and the marks."""
    text = value if isinstance(value, str) else _shown(value)
    return f"'{visible(text, limit)}'"


def _shown(value: object) -> str:
    """`repr`, except of what is too deep or too long to be written out: its type says enough."""
    if isinstance(value, bool | float) or value is None:
        return repr(value)
    if isinstance(value, int):
        # Python refuses to write out integers of more than 4300 digits.
        return str(value) if value.bit_length() < 256 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else type(value).__name__


def near(name: str, known: list[str], cutoff: float = 0.5) -> str:
    """A "did you mean …?" with the nearest of `known`, or "" if none is near."""
    from difflib import get_close_matches  # only when something went wrong

    found = get_close_matches(name[:100], known, n=3, cutoff=cutoff)
    return f"; did you mean {' or '.join(found)}?" if found else ""
