"""How a recorder is configured: environment variables, read once at start. A bad value is refused by name.

Environment variables, because a scheduler class named on a command line is given nothing else, and because they reach
the processes that an engine starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import frozen

PREFIX = "PREEMPT_ORACLE_RECORD_"
MB = 1 << 20


class BadSetting(ValueError):
    """A variable that cannot be used; `str()` names it, and says why and what it may be."""


@frozen
class Settings:
    """What to record, and how much of it."""

    directory: Path | None = None  # where the parts are written; None: nowhere
    online: bool = False  # judge as it goes
    content: str = "hashed"  # of trace v1: "hashed" or "plain"
    part: int = 64 * MB  # bytes; a part of the series ends behind the event that reaches it
    limit: int = 4096 * MB  # bytes of a whole series; the recording stops there
    buffer: int = 64 * MB  # bytes that may wait in the engine's process
    unverified: bool = False  # record a version that no adapter was run with


#: Variable without its prefix -> what it may be.
VARIABLES: Mapping[str, str] = {
    "DIR": "an existing directory that can be written to; the files go there",
    "ONLINE": "on or off (the default): judge every event as it comes, and log the first violation",
    "CONTENT": "hashed (the default), or plain: token ids as they are",
    "PART_MB": "a whole number of at least 1: megabytes at which a file ends and the next one begins (64)",
    "LIMIT_MB": "a whole number, at least PART_MB: megabytes at which the recording stops (4096)",
    "BUFFER_MB": "a whole number of at least 1: megabytes that may wait to be written, in the engine's memory (64)",
    "UNVERIFIED": "record, or refuse (the default): what to do with a version of the engine that nobody has checked",
}


def read(environ: Mapping[str, str]) -> Settings:
    """The settings in some environment variables. Raises BadSetting naming the first that is unusable."""
    given = {name.removeprefix(PREFIX): value for name, value in environ.items() if name.startswith(PREFIX)}
    for name in sorted(given):
        if name not in VARIABLES:
            raise BadSetting(f"{PREFIX}{name}: there is no such setting; there are {', '.join(VARIABLES)}")

    def word(name: str, default: str, *others: str) -> str:
        value = given.get(name, default)
        if value not in (default, *others):
            raise _bad(name, value)
        return value

    def whole(name: str, default: int, least: int) -> int:
        text = given.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 9 and int(text) >= least):
            raise _bad(name, text)
        return int(text)

    part = whole("PART_MB", 64, 1)
    limit = whole("LIMIT_MB", max(4096, part), part)
    settings = Settings(
        directory=_directory(given["DIR"]) if "DIR" in given else None,
        online=word("ONLINE", "off", "on") == "on",
        content=word("CONTENT", "hashed", "plain"),
        part=part * MB,
        limit=limit * MB,
        buffer=whole("BUFFER_MB", 64, 1) * MB,
        unverified=word("UNVERIFIED", "refuse", "record") == "record",
    )
    if settings.directory is None and not settings.online:
        raise BadSetting(f"{PREFIX}DIR is not set and {PREFIX}ONLINE is off: there is nothing to do")
    return settings


def _bad(name: str, value: str) -> BadSetting:
    return BadSetting(f"{PREFIX}{name}: {value!r}: must be {VARIABLES[name]}")


def _directory(text: str, allowed: Callable[[str, int], bool] = os.access) -> Path:
    path = Path(text)
    try:
        usable = path.is_dir() and allowed(text, os.W_OK | os.X_OK)
    except (OSError, ValueError):  # a name too long, a NUL
        usable = False
    if not text or not usable:
        raise _bad("DIR", text)
    return path
