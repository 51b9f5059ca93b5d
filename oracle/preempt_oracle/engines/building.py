"""Folders that are either whole or not there: locks, stamps and pip for the environments of `environments`.

A folder is made as a temporary sibling, stamped last, and renamed into place. Whatever carries no stamp, or another
one, was interrupted, damaged or made from other pins: it is never used, and the next install replaces it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STAMP = "preempt-oracle.json"

Log = Callable[[str], None]


class EnvironmentFailure(Exception):
    """An engine's environment cannot be made or used; the message says why and names the log, if there is one."""


def root() -> Path:
    """Where environments live: `preempt-oracle/engines` in $PREEMPT_ORACLE_CACHE, $XDG_CACHE_HOME or ~/.cache."""
    for variable in ("PREEMPT_ORACLE_CACHE", "XDG_CACHE_HOME"):
        value = os.environ.get(variable, "")
        if value:
            base = Path(value).expanduser()
            break
    else:
        try:
            base = Path.home() / ".cache"
        except RuntimeError as error:
            raise EnvironmentFailure(f"no cache directory: {error}; set PREEMPT_ORACLE_CACHE") from None
    return base.absolute() / "preempt-oracle" / "engines"


def digest(lines: Sequence[str]) -> str:
    """A short fingerprint of pins, in order."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def stamp(name: str, version: str, pins: Sequence[str]) -> dict[str, str]:
    """What a whole folder says of itself. The interpreter counts: compiled wheels do not fit another one."""
    python = f"{sys.implementation.cache_tag} {sys.platform}"
    return {"engine": name, "version": version, "python": python, "pins": digest(pins)}


def stamped(folder: Path, expected: dict[str, str]) -> bool:
    """Whether `folder` was finished, and from exactly these pins."""
    try:
        return bool(json.loads((folder / STAMP).read_text(encoding="utf-8")) == expected)
    except (OSError, ValueError):
        return False


@contextmanager
def locked(folder: Path, log: Log) -> Iterator[None]:
    """Hold the lock of `folder` against other processes; say so when it has to be waited for.

    The lock is the kernel's, on a file beside the folder: it vanishes with its holder, so that a killed install
    blocks nobody.
    """
    path = folder.with_name(folder.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise EnvironmentFailure(f"cannot write to the cache directory: {error}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log(f"waiting for another install of {folder.name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(folder: Path, seal: dict[str, str], fill: Callable[[Path], None], check: Callable[[Path], None]) -> None:
    """Make `folder`: `fill` a temporary sibling, stamp it, rename it into place, then `check` it there.

    Call it with the lock of `folder` held. A folder that fails its check loses its stamp again.
    """
    prefix = f".{folder.name}.build-"
    try:
        for left_over in folder.parent.glob(prefix + "*"):  # of an install that was killed: we hold the lock
            shutil.rmtree(left_over, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    except OSError as error:
        raise EnvironmentFailure(f"cannot write to the cache directory: {error}") from None
    try:
        made = work / "new"
        made.mkdir()
        fill(made)
        (made / STAMP).write_text(json.dumps(seal, indent=1) + "\n", encoding="utf-8")
        if folder.exists() or folder.is_symlink():
            folder.replace(work / "old")  # a folder that is not empty cannot be replaced in one go
        made.replace(folder)
    except OSError as error:
        raise EnvironmentFailure(f"cannot make {folder}: {error}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    try:
        check(folder)
    except BaseException:
        (folder / STAMP).unlink(missing_ok=True)
        raise


def pip(python: str, arguments: Sequence[str], log_file: Path) -> None:
    """Run `python -m pip install` with these arguments; its output goes to the end of `log_file`.

    Raises `EnvironmentFailure` with pip's own last error line: no pip, no network, no such version, no wheel.
    """
    command = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *arguments]
    run(command, log_file, "pip failed")


def run(command: Sequence[str], log_file: Path, failure: str) -> None:
    """Run a command of an install. Raises `EnvironmentFailure` with its last line of complaint and the log's name."""
    # PYTHONPATH and PYTHONHOME of the caller would make pip look at, or count as installed, somebody else's packages.
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        with log_file.open("a", encoding="utf-8") as out:
            out.write("$ " + " ".join(command) + "\n")
            out.flush()
            start = out.tell()
            code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=clean).returncode
        if code == 0:
            return
        with log_file.open("rb") as back:
            back.seek(start)
            text = back.read().decode("utf-8", "replace")
    except OSError as error:
        raise EnvironmentFailure(f"{failure}: {error}") from None
    if "No module named pip" in text:
        raise EnvironmentFailure(f"this Python has no pip, which installs engines: {command[0]}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    why = (errors or lines or [f"exit code {code}"])[-1]
    raise EnvironmentFailure(f"{failure} (exit code {code}): {why}; full output in {log_file}")
