"""Known failures: violations that somebody has looked at, each with its rule, family of scenarios and reason."""

from preempt_oracle.known.entry import Bounds, Known, Scene, Scenery
from preempt_oracle.known.file import KnownError, load
from preempt_oracle.known.ledger import Ledger, Line

__all__ = ["Bounds", "Known", "KnownError", "Ledger", "Line", "Scene", "Scenery", "load"]
