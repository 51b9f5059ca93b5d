"""What is wrong with a trace, and where; safe to print."""

from __future__ import annotations

import attrs

_LONGEST_REASON = 400  # characters; a reason may quote the trace, and a line may be 64 MiB long


def visible(text: str, limit: int | None = None) -> str:
    r"""`text` with everything a terminal might obey or hide (control, bidi, zero-width …) as \x1b, cut to `limit`."""
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:limit])
    return escaped if limit is None or len(text) <= limit >= len(escaped) else escaped[:limit] + "…"


@attrs.define(slots=False)
class Fault(Exception):
    """Something wrong with one line, found by code that does not know where the line stands."""

    field: str  # path inside the line, such as acts[2].after; "" if the line as a whole is wrong
    reason: str


@attrs.define(slots=False)
class TraceError(Exception):
    """Input that cannot be used as a trace, or output that cannot be written: the one exception of this package.

    `str()` gives "FILE:LINE: FIELD: reason" on one line, with unprintable characters escaped, so that a hostile file
    cannot write to the terminal. Parts that do not apply are left out.
    """

    file: str
    line: int  # from 1; 0 if no line is to blame (a file that cannot be opened)
    field: str
    reason: str

    def __str__(self) -> str:
        """FILE:LINE: FIELD: reason."""
        where = visible(self.file) + (f":{self.line}" if self.line else "")
        field = f"{visible(self.field, _LONGEST_REASON)}: " if self.field else ""
        return f"{where}: {field}{visible(self.reason, _LONGEST_REASON)}"
