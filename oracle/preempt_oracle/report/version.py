"""Which preempt-oracle this is."""

from __future__ import annotations


def version() -> str:
    """The installed version; `unknown` in a source tree that nobody installed."""
    from importlib import metadata  # takes longer to import than the rest of a start

    try:
        return metadata.version("preempt-oracle")
    except metadata.PackageNotFoundError:
        return "unknown"
