"""The types of single fields of trace v1, and the struct bases that fix how a record is written."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
VERSION: Final = 1

#: 1 to 128 characters; no control, whitespace, markup or quote characters, nothing invisible or that reorders text
#: (soft hyphen, joiners, bidi marks, variation selectors, fillers, interlinear marks, tags). Written so that Python and
#: ECMA regular expressions agree; the lookahead stands for Python's \Z, since $ would let a final newline pass.
ID_PATTERN: Final = (
    r"^[^\u0000-\u0020\u007f-\u00a0<>&\"'`\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f"
    r"\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000e0000-\U000e0fff"
    r"]{1,128}(?![\s\S])"
)

Count: TypeAlias = Annotated[int, Meta(ge=0, le=INT64_MAX)]  # tokens, blocks, frames, indexes
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=INT64_MAX)]
Int64: TypeAlias = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]  # token ids, priorities, engine's own figures
RequestId: TypeAlias = Annotated[str, Meta(pattern=ID_PATTERN, description="request id")]

Source: TypeAlias = Literal["environment", "plan", "worker"]
GroupKind: TypeAlias = Literal["full", "sliding", "recurrent"]
Tier: TypeAlias = Literal["device", "host"]
Content: TypeAlias = Literal["plain", "hashed"]
Cause: TypeAlias = Literal["growth", "admission", "starvation", "reset", "pause"]
Direction: TypeAlias = Literal["out", "in"]
Queue: TypeAlias = Literal["waiting", "swapped"]
Disposition: TypeAlias = Literal["delivered", "empty", "dropped"]
Origin: TypeAlias = Literal["engine", "adapter", "protocol"]
ControlKind: TypeAlias = Literal["reset", "pause", "resume", "caps"]
Blocks: TypeAlias = tuple[Count, ...]
GroupBlocks: TypeAlias = tuple[Blocks, ...]  # one tuple of block ids per group
Copied: TypeAlias = tuple[tuple[Count, Count, Count], ...]  # (source, destination, group) of each copied block


# gc=False is safe throughout: a struct is decoded from JSON or built from frozen parts, so it can be in no cycle.
class Record(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """An object without a tag."""


class Small(Struct, frozen=True, array_like=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A JSON array in field order."""


def _snake(name: str) -> str:
    return "".join("_" * (i > 0 and c.isupper()) + c.lower() for i, c in enumerate(name))


class TaggedLine(Record, frozen=True, tag_field="event", tag=_snake):
    """A line of a trace."""


class TaggedEvent(TaggedLine, frozen=True, kw_only=True):
    """A line between header and footer; `source` absent means the default of its type, see `wire.source_of`."""

    source: Source | None = None


class TaggedAct(Record, frozen=True, tag_field="act", tag=_snake):
    """A sub-step record."""
