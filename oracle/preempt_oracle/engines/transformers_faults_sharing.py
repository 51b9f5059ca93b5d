"""Faults of continuous batching: pages that several requests share. See `transformers_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
else:
    from faults import Fault, Injection

CACHING: dict[str, Any] = {"config": {"caching": True}}


def _allocator(cb: Any) -> Any:
    (allocator,) = cb.cache.cache_allocators.values()
    return allocator


def _hits_too_much(into: Injection, cb: Any) -> None:
    allocator = _allocator(cb)

    def match(original: Any, prompt: list[int]) -> Any:
        found = list(original(prompt))
        others = [b for b in allocator.ledger.hash_to_block.values() if b not in found]
        if found and others and (len(found) + 1) * allocator.tokens_per_page < len(prompt):
            into.acted()
            found.append(others[0])
        return found

    into.wrap(allocator, "match_prefix_blocks", match)


def _publishes_unwritten(into: Injection, cb: Any) -> None:
    def count(original: Any, state: Any, length: int) -> Any:
        counts = dict(original(state, length))
        for name, allocator in cb.cache.cache_allocators.items():
            page = allocator.tokens_per_page
            # The token that this pass samples fills the page; the pass after it computes it.
            fills = cb.cache.use_prefix_sharing and (state.current_len() + length) % page == page - 1
            if fills and not state.remaining_prefill_tokens:
                into.acted()
                counts[name] = counts.get(name, 0) + 1
        return counts

    into.wrap(cb.cache, "count_new_complete_blocks", count)


def _exchanges_for_another(into: Injection, cb: Any) -> None:
    allocator = _allocator(cb)

    def register(original: Any, block: int, block_hash: int) -> Any:
        ledger = allocator.ledger
        if ledger.hash_to_block.get(block_hash) is None:
            mine = {b for table in allocator.block_table.values() if block in table for b in table}
            others = [b for b in ledger.hash_to_block.values() if b not in mine]
            if others:
                into.acted()
                return others[0]
        return original(block, block_hash)

    into.wrap(allocator.ledger, "register_new_hash", register)


def _shares_uncounted(into: Injection, cb: Any) -> None:
    ledger = _allocator(cb).ledger

    def acquire(original: Any, block: int) -> Any:
        if block in ledger.cached_blocks:
            return original(block)
        into.acted()
        return None

    into.wrap(ledger, "acquire", acquire)


SHARING: tuple[Fault, ...] = (
    Fault("hits-too-much", "Takes one page more than it found.", ("resume/hit",), _hits_too_much, **CACHING),
    Fault(
        "publishes-unwritten",
        "Lets a page be found whose last token was sampled, and not computed yet.",
        ("resume/publish",),
        _publishes_unwritten,
        **CACHING,
    ),
    Fault(
        "exchanges-for-another",
        "Replaces a page by one of other content.",
        ("resume/provenance",),
        _exchanges_for_another,
        **CACHING,
    ),
    Fault(
        "shares-uncounted",
        "Does not count who shares a page that somebody holds.",
        ("pool/refcount",),
        _shares_uncounted,
        also=("pool/conserve",),  # the first who gives it up takes it from the others
        **CACHING,
    ),
)
