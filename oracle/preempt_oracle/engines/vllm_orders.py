"""What a KV connector of vLLM tells its worker with a step, whichever connector it is; and what is asked of a reader.

Pure standard library. One reader per connector (`vllm_orders_offloading`, `vllm_orders_simple`) makes `Orders` of that
connector's messages, and looks into its books on the host; everything else is done once, in `vllm_offload`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines.vllm_copies import Job, Pairs
else:
    from vllm_copies import Job, Pairs


@dataclass(frozen=True)
class Order:
    """One copy that a message asks for: its number among all copies of a run, and for whom it is, as far as is told."""

    number: int
    requests: tuple[str, ...]
    pairs: Pairs  # (source, destination)


@dataclass(frozen=True)
class Orders:
    """A message. `flush`: copies that must be over before the frame runs, those of this very message among them."""

    loads: tuple[Order, ...] = ()
    stores: tuple[Order, ...] = ()
    flush: frozenset[int] = frozenset()
    flush_all: bool = False  # whatever began with an earlier frame must be over


class Reader(Protocol):
    """One connector's messages and books. Whatever it reads is checked to be there when it is made."""

    #: Whether its worker has one stream per direction, on which copies end in the order in which they began.
    in_order: bool

    def orders(self, message: Any) -> Orders:
        """A message for the worker. Raises `Unsupported` for one that it does not understand."""
        ...

    def evicted(self, filled: Iterable[int]) -> list[int]:
        """Host blocks, of those that copies have filled, that were given up since the last call."""
        ...

    def free(self) -> int:
        """The host pool's own count of free blocks; what a message asks to fill counts as taken."""
        ...

    def answer(self, over: list[Job]) -> tuple[set[str], Any]:
        """Whose loads are over, and what else a worker would report of these copies; None if there is nothing."""
        ...
