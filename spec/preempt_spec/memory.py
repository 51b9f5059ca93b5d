"""The blocks of one tier and group, pure: what each slot was last written for.

A slot remembers the whole prefix it was written for, salt included, so that content is compared exactly. A slot whose
token still flies is `Ahead`: it becomes a prefix when the token is appended, and nothing when it is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, field, frozen

from preempt_spec.events import Group

Prefix = tuple[str, tuple[int, ...]]  # salt and every token up to and including a slot


@frozen
class Ahead:
    """What a slot holds that was written for `upto` tokens of a live request, of which the last ones still fly."""

    request: str
    upto: int


Slot = Prefix | Ahead | None


@frozen
class Block:
    """What is known of a block: per slot what it was last written for; pins, a fence, the prefix published."""

    slots: tuple[Slot, ...]
    pins: int = 0
    fence: int | None = None
    published: Prefix | None = None


@frozen
class Memory:
    """The blocks of one tier and group. Not listed: on the device, blocks never touched; on the host, unused ones."""

    group: Group
    total: int
    reserved: int
    blocks: Mapping[int, Block] = field(factory=dict)

    @property
    def page(self) -> int:
        """Tokens per block."""
        return self.group.page_size

    @property
    def slots(self) -> int:
        """Slots per block: a recurrent group has one, the state behind its last token."""
        return 1 if self.group.kind == "recurrent" else self.group.page_size

    def block(self, b: int) -> Block:
        """The block, untouched ones included."""
        return self.blocks.get(b) or Block((None,) * self.slots)

    def having(self, changed: Mapping[int, Block]) -> Memory:
        """With some blocks replaced."""
        return evolve(self, blocks={**self.blocks, **changed})

    def without(self, blocks: tuple[int, ...]) -> Memory:
        """With some blocks unused."""
        return evolve(self, blocks={b: block for b, block in self.blocks.items() if b not in blocks})

    def resolved(self, request: str, salt: str, tokens: tuple[int, ...], upto: int | None) -> Memory:
        """What `request` wrote ahead is known by now as far as `tokens` go; what lies beyond `upto` never will be."""
        changed = {}
        for b, block in self.blocks.items():
            if any(isinstance(s, Ahead) and s.request == request for s in block.slots):
                changed[b] = evolve(block, slots=resolve(block.slots, request, salt, tokens, upto))
        return self.having(changed) if changed else self


def resolve(
    slots: tuple[Slot, ...], request: str, salt: str, tokens: tuple[int, ...], upto: int | None
) -> tuple[Slot, ...]:
    """Slots with what `request` wrote ahead known as far as `tokens` go, and lost beyond `upto`."""
    return tuple(_resolved(slot, request, salt, tokens, upto) for slot in slots)


def _resolved(slot: Slot, request: str, salt: str, tokens: tuple[int, ...], upto: int | None) -> Slot:
    if not isinstance(slot, Ahead) or slot.request != request:
        return slot
    if upto is not None and slot.upto > upto:
        return None
    return (salt, tokens[: slot.upto]) if slot.upto <= len(tokens) else slot


def is_page(block: Block, prefix: Slot) -> bool:
    """Whether every slot holds its part of the page that ends `prefix`."""
    if prefix is None or isinstance(prefix, Ahead):
        return False
    salt, tokens = prefix
    first = len(tokens) - len(block.slots) + 1
    return all(slot == (salt, tokens[: first + i]) for i, slot in enumerate(block.slots))
