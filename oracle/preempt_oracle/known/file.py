"""The file of `--known-failures`: TOML, one `[[known]]` per entry.

    [[known]]
    rules = ["resume/publish"]           # exact ids
    engine = "vllm"
    versions = ["0.31.0", "0.33.0"]      # exact
    policy = "vllm-priority"             # the profile the run is judged by
    where = { caching = true, long_prefill = { min = 1 } }
    within = 2000                        # optional, 1 by default: see `Known.within`
    reason = "F1 in docs/findings.md: …"

`where` holds conditions on the run's configuration, all of which must hold: a field of the trace header's limits,
`blocks`, `page_size`, `ties` (two requests with equal priority and arrival were live at once) or `drafted` (drafts were
proposed), with a value or, of a number, `{ min = …, max = … }` (inclusive, either may be left out). `trace = "NAME"`
describes recorded traces by file name instead, or in addition; `*`, `?` and `[…]` stand for what they do in a shell.
One of the two must be there; `where = {}` says that every configuration shows it.
"""

from __future__ import annotations

import re
import tomllib
from os import PathLike
from pathlib import Path
from typing import Any

from preempt_oracle.known.entry import FACTS, Bounds, Condition, Known
from preempt_oracle.trace.errors import visible
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import RULES

_FIELDS = ("rules", "engine", "versions", "policy", "reason", "where", "trace", "within")
_HEAD = re.compile(r"\s*\[\[\s*known\s*\]\]")


class KnownError(Exception):
    """A file that cannot be used. The message is FILE:LINE: FIELD: reason; the line stands there where it is known."""


class _Wrong(Exception):
    """Something wrong with one field of one entry."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


def load(path: str | PathLike[str]) -> tuple[Known, ...]:
    """The entries of a file. Raises KnownError."""
    name = visible(str(path), 300)
    try:
        text = Path(path).read_bytes().decode()
        data = tomllib.loads(text)
    except UnicodeDecodeError:
        raise KnownError(f"{name}: not a text file (UTF-8)") from None
    except tomllib.TOMLDecodeError as e:
        where = re.search(r" \(at line (\d+), column \d+\)$", str(e))
        said = str(e)[: where.start()] if where else str(e)
        raise KnownError(f"{name}{f':{where[1]}' if where else ''}: not TOML: {visible(said, 300)}") from None
    except RecursionError:
        raise KnownError(f"{name}: not TOML: nested too deeply") from None
    except (OSError, ValueError) as e:
        raise KnownError(f"{name}: cannot read: {getattr(e, 'strerror', None) or e}") from None
    entries = data.pop("known", None)
    if data:
        raise KnownError(f"{name}: {visible(next(iter(data)), 100)}: unknown field; entries are [[known]]")
    if not isinstance(entries, list) or not entries or not all(isinstance(e, dict) for e in entries):
        raise KnownError(f"{name}: known: expected one [[known]] or more")
    lines = _Lines(text, len(entries))
    found: list[Known] = []
    for i, entry in enumerate(entries):
        try:
            known = _entry(entry, f"{name}{lines.of(i)}")
            _not_twice(known, found)
        except _Wrong as e:
            where_ = lines.of(i, e.field.partition(".")[0])
            nth = "" if where_ else f" entry {i + 1}:"
            raise KnownError(f"{name}{where_}:{nth} {visible(e.field, 100)}: {visible(str(e), 400)}") from None
        found.append(known)
    return tuple(found)


class _Lines:
    """Where entries and their fields stand, as far as that can be told without a parser of our own."""

    def __init__(self, text: str, entries: int) -> None:
        self._lines = text.splitlines()
        heads = [n for n, line in enumerate(self._lines) if _HEAD.match(line)]
        # A head inside a text of several lines, or entries written as an array: no line is better than a wrong one.
        self._heads = [*heads, len(self._lines)] if len(heads) == entries else []

    def of(self, entry: int, field: str = "") -> str:
        """`:LINE` of a field if it stands there, else of its entry; "" if unknown."""
        if not self._heads:
            return ""
        first, last = self._heads[entry : entry + 2]
        at = re.compile(rf"\s*[\"']?{re.escape(field)}[\"']?\s*[=.]|\s*\[\s*known\s*\.\s*{re.escape(field)}\s*\]")
        lines = (n for n in range(first + 1, last) if field and at.match(self._lines[n]))
        return f":{next(lines, first) + 1}"


def _entry(entry: dict[str, Any], place: str) -> Known:
    for name in entry:
        if name not in _FIELDS:
            raise _Wrong(name, f"unknown field; there are {', '.join(_FIELDS)}")
    rules = _texts(entry, "rules")
    for rule in rules:
        if rule not in RULES:
            raise _Wrong("rules", f"there is no rule {rule!r}")
    policy = _text(entry, "policy")
    if policy not in PROFILES:
        raise _Wrong("policy", f"{policy!r} is unknown; profiles are {', '.join(PROFILES)}")
    if "where" not in entry and "trace" not in entry:
        raise _Wrong("where", "missing, and so is trace: an entry says which runs it describes (where = {}: all)")
    where = entry.get("where", {})
    if not isinstance(where, dict):
        raise _Wrong("where", "must be a table of conditions")
    within = entry.get("within", 1)
    if type(within) is not int or within < 1:
        raise _Wrong("within", f"must be a whole number from 1, not {within!r}")
    return Known(
        rules,
        _text(entry, "engine"),
        _texts(entry, "versions"),
        policy,
        _text(entry, "reason"),
        {name: _condition(name, value) for name, value in where.items()},
        _text(entry, "trace") if "trace" in entry else "",
        within,
        place,
    )


def _text(entry: dict[str, Any], name: str) -> str:
    if name not in entry:
        raise _Wrong(name, "missing")
    value = entry[name]
    if not isinstance(value, str) or not value.strip():
        raise _Wrong(name, "is empty" if value == "" or isinstance(value, str) else f"must be a text, not {value!r}")
    return value


def _texts(entry: dict[str, Any], name: str) -> tuple[str, ...]:
    value = entry.get(name)
    if value is None:
        raise _Wrong(name, "missing")
    if not isinstance(value, list) or not value or not all(isinstance(v, str) and v for v in value):
        raise _Wrong(name, f"must be a list of texts, one or more, not {value!r}")
    if len(set(value)) < len(value):
        raise _Wrong(name, f"{next(v for v in value if value.count(v) > 1)!r} stands there twice")
    return tuple(value)


def _condition(name: str, value: object) -> Condition:
    field = f"where.{name}"
    if name not in FACTS:
        raise _Wrong(field, f"unknown condition; there are {', '.join(FACTS)}")
    if not FACTS[name]:
        if isinstance(value, bool):
            return value
        raise _Wrong(field, f"must be true or false, not {value!r}")
    if type(value) is int:
        return value
    if not isinstance(value, dict) or not value or not value.keys() <= {"min", "max"}:
        raise _Wrong(field, f"must be a whole number or {{ min = …, max = … }}, not {value!r}")
    for bound in value.values():
        if type(bound) is not int:
            raise _Wrong(field, f"must have whole numbers as bounds, not {bound!r}")
    bounds = Bounds(**value)
    if bounds.min is not None and bounds.max is not None and bounds.min > bounds.max:
        raise _Wrong(field, f"nothing is {bounds}")
    return bounds


def _not_twice(known: Known, before: list[Known]) -> None:
    for other in before:
        same = (other.engine, other.policy, other.trace, other.where) == (
            known.engine,
            known.policy,
            known.trace,
            known.where,
        )
        if same and set(other.rules) & set(known.rules) and set(other.versions) & set(known.versions):
            twice = next(r for r in known.rules if r in other.rules)
            raise _Wrong("rules", f"{twice} is known for this family already ({other.place})")
