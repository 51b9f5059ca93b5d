"""Faults for continuous batching of transformers: see `faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault
else:
    from faults import Fault

FAULTS: tuple[Fault, ...] = ()
