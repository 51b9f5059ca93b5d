"""Output files: whole or not at all, and errors that name them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from preempt_oracle.cli.errors import unusable


def write(path: str, data: bytes) -> None:
    """Write a file, replacing an older one only when the new one is whole. "-": standard output."""
    if path == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    target = Path(path).resolve()
    try:
        if target.exists() and not target.is_file():  # a device or pipe must not be replaced by a file
            target.write_bytes(data)
            return
        temporary = target.with_name(f".{target.name[:200]}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(data)
            temporary.replace(target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    except (OSError, ValueError) as e:
        raise unusable(f"cannot write {path}: {getattr(e, 'strerror', None) or e}") from None


def writable(path: str | None) -> None:
    """Find out before minutes of work that the result could not be written."""
    if path in (None, "-"):
        return
    target = Path(str(path)).resolve()
    folder = target.parent
    if target.is_dir():
        raise unusable(f"cannot write {path}: it is a folder")
    if not folder.is_dir():
        raise unusable(f"cannot write {path}: there is no folder {folder}")
    if not os.access(target if target.exists() else folder, os.W_OK):
        raise unusable(f"cannot write {path}: permission denied")


def read_text(path: str) -> str:
    """A text file, or standard input for "-"."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode()
    except UnicodeDecodeError:
        raise unusable(f"{path}: not a text file (UTF-8)") from None
    except (OSError, ValueError) as e:
        raise unusable(f"{path}: cannot read: {getattr(e, 'strerror', None) or e}") from None
