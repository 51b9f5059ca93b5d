"""The common mistakes about swap and recompute, each as a wrong model of a few lines, and the property that catches it.

A model answers what each of the two ways costs. `Right` calls the shipped functions; a mistake changes one answer, so
that its error is its own. A property holds of the right model in every setting that it applies to, and fails of its
mistake in each of them: no lucky numbers are needed. By how much each mistake errs, and between which bandwidths its
decision flips, is proved in `theorems.mistakes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from attrs import evolve, frozen

from preempt_spec.cost.copies import Affine
from preempt_spec.cost.decide import Choice, Setting, achieved_bandwidth, cached, recompute_cost, swap_cost
from preempt_spec.cost.number import N
from preempt_spec.cost.recompute import Run, gemm_flops, gemm_rate, weight_time
from preempt_spec.cost.swap import Directions, Transfer, Trip, crossings, moved_bytes, one_way_time


class Right:
    """The shipped model."""

    def swap(self, setting: Setting[N], length: N) -> N:
        """Seconds to swap a request of `length` tokens."""
        return swap_cost(setting, length)

    def recompute(self, setting: Setting[N], length: N) -> N:
        """Seconds to recompute it."""
        return recompute_cost(setting, length)

    def choose(self, setting: Setting[N], length: N) -> Choice:
        """The cheaper way; of equals recompute, as `decide.choose` does."""
        return Choice.SWAP if self.swap(setting, length) < self.recompute(setting, length) else Choice.RECOMPUTE

    def break_even(self, setting: Setting[N], length: N) -> N:
        """Effective bytes/s per direction that this model takes for break-even: what copies achieve, by its speed-up.

        Of the right model that is `decide.break_even_bandwidth`.
        """
        return achieved_bandwidth(setting, length) * self.swap(setting, length) / self.recompute(setting, length)


class Mistake(Right):
    """A wrong model."""

    sentence: ClassVar[str]
    caught_by: ClassVar[Property]
    #: Ids of the theorems that say by how much it errs, and between which bandwidths it decides wrongly.
    theorems: ClassVar[tuple[str, ...]]


@frozen
class Property:
    """What a model must say, whatever its formulas."""

    sentence: str
    applies: Callable[[Setting[N], N], bool]
    holds: Callable[[Right, Setting[N], N], bool]


def _serial_round_trip(setting: Setting[N], length: N) -> bool:
    transfer = setting.transfer
    serial = transfer.trip is Trip.ROUND_TRIP and transfer.directions is Directions.SERIAL
    return serial and isinstance(transfer.out, Affine)


def _slower_out(transfer: Transfer[N]) -> Transfer[N]:
    """The same transfer with half of the bandwidth on the way out."""
    out = transfer.out
    assert isinstance(out, Affine)
    return evolve(transfer, out=evolve(out, bandwidth=out.bandwidth / 2))


def _feels_the_way_out(model: Right, setting: Setting[N], length: N) -> bool:
    slower = evolve(setting, transfer=_slower_out(setting.transfer))
    return model.swap(setting, length) < model.swap(slower, length)


def _within_the_link(model: Right, setting: Setting[N], length: N) -> bool:
    out, back = setting.transfer.out, setting.transfer.back
    assert isinstance(out, Affine)
    assert isinstance(back, Affine)
    moved = moved_bytes(setting.shape, setting.transfer, length, cached(setting, length))
    return crossings(setting.transfer) * moved <= max(out.bandwidth, back.bandwidth) * model.swap(setting, length)


def _equal_links_without_fixed_costs(setting: Setting[N], length: N) -> bool:
    """Where a doubled bandwidth shows in full: neither a fixed cost nor the slower direction hides it."""
    laws = (setting.transfer.out, setting.transfer.back)
    if not all(isinstance(law, Affine) and law.overhead <= 0 for law in laws):
        return False
    out, back = laws
    assert isinstance(out, Affine)
    assert isinstance(back, Affine)
    return not (out.bandwidth < back.bandwidth or back.bandwidth < out.bandwidth)


def _riding_with_attention(setting: Setting[N], length: N) -> bool:
    """Where arithmetic is the whole cost, full attention is a part of it, and nothing is cached."""
    full = any(layers.window is None and layers.pair_flops > 0 for layers in setting.shape.layers)
    return setting.run is Run.PIGGYBACK and setting.hit is None and full


def _later_tokens_cost_more(model: Right, setting: Setting[N], length: N) -> bool:
    return 2 * model.recompute(setting, length) < model.recompute(setting, 2 * length)


def _riding_with_a_hit(setting: Setting[N], length: N) -> bool:
    """Where the prefix cache gives at least one token back, and arithmetic is the whole cost."""
    return setting.run is Run.PIGGYBACK and setting.hit is not None and cached(setting, length) > 0 * length


def _hits_save(model: Right, setting: Setting[N], length: N) -> bool:
    return model.recompute(setting, length) < model.recompute(evolve(setting, hit=None), length)


def _partly_hit_with_attention(setting: Setting[N], length: N) -> bool:
    return _riding_with_a_hit(setting, length) and _riding_with_attention(evolve(setting, hit=None), length)


def _cached_tokens_are_the_cheap_ones(model: Right, setting: Setting[N], length: N) -> bool:
    kept = cached(setting, length)
    without = model.recompute(evolve(setting, hit=None), length)
    return model.recompute(setting, length) * length > (length - kept) * without


BOTH_WAYS = Property("A slower way out makes a round trip longer.", _serial_round_trip, _feels_the_way_out)
LINK = Property(
    "Bytes cross the link, direction by direction, at no more than its bandwidth.",
    _equal_links_without_fixed_costs,
    _within_the_link,
)
QUADRATIC = Property(
    "A request twice as long takes more than twice as long to recompute.",
    _riding_with_attention,
    _later_tokens_cost_more,
)
HITS = Property("A prefix hit makes a recompute shorter.", _riding_with_a_hit, _hits_save)
FRONT = Property(
    "A prefix hit saves less than its share of the recompute: the cached tokens are the ones that see few others.",
    _partly_hit_with_attention,
    _cached_tokens_are_the_cheap_ones,
)


class OneWay(Mistake):
    """A preempted request must come back, so its KV crosses the link twice."""

    sentence = "Counts the swap one way only."
    caught_by = BOTH_WAYS
    theorems = ("mistakes/t25-one-way", "mistakes/n88-one-way-half")

    def swap(self, setting: Setting[N], length: N) -> N:
        """The way back alone."""
        return one_way_time(setting.shape, setting.transfer, setting.transfer.back, length, cached(setting, length))


class Bidirectional(Mistake):
    """128 GB/s is both directions of PCIe Gen5 x16 together; a request goes one way at a time."""

    sentence = "Takes the bidirectional figure of the link for the bandwidth of each direction."
    caught_by = LINK
    theorems = (
        "mistakes/t26-bidirectional-band",
        "mistakes/t26-bidirectional-is-one-way",
        "mistakes/n89-bidirectional-with-fixed-cost",
    )

    def swap(self, setting: Setting[N], length: N) -> N:
        """At twice the bandwidth each way."""
        out, back = setting.transfer.out, setting.transfer.back
        assert isinstance(out, Affine)
        assert isinstance(back, Affine)
        doubled = evolve(
            setting.transfer,
            out=evolve(out, bandwidth=2 * out.bandwidth),
            back=evolve(back, bandwidth=2 * back.bandwidth),
        )
        return swap_cost(evolve(setting, transfer=doubled), length)


class NoAttention(Mistake):
    """At 32K tokens attention is a third of the prefill of an 8B model, and it grows from there."""

    sentence = "Leaves the attention term out of the recompute."
    caught_by = QUADRATIC
    theorems = ("mistakes/t27-no-attention", "mistakes/t27-no-attention-error", "mistakes/n90-no-attention-unbounded")

    def recompute(self, setting: Setting[N], length: N) -> N:
        """Products with weights, and the weight read."""
        work = gemm_flops(setting.shape, length, cached(setting, length)) / gemm_rate(setting.device)
        if setting.run is Run.PIGGYBACK:
            return work
        return max(weight_time(setting.shape, setting.device), work)


class NoHits(Mistake):
    """Freed blocks keep their hashes until they are reallocated: a resumed request often finds most of its own."""

    sentence = "Treats recompute as wasted work although the prefix cache holds most of it."
    caught_by = HITS
    theorems = ("mistakes/n91-no-hits", "mistakes/n92-no-hits-error")

    def recompute(self, setting: Setting[N], length: N) -> N:
        """As if nothing were cached."""
        return recompute_cost(evolve(setting, hit=None), length)


class ScaledHits(Mistake):
    """The half of the tokens that a hit of 50% leaves is the half that attends to all of the others."""

    sentence = "Scales the whole recompute by the share of tokens that the prefix cache does not hold."
    caught_by = FRONT
    theorems = ("mistakes/t32-scaled-hits", "mistakes/n106-scaled-hits-band")

    def recompute(self, setting: Setting[N], length: N) -> N:
        """(1 − h) times the recompute without a hit."""
        return (length - cached(setting, length)) / length * recompute_cost(evolve(setting, hit=None), length)


MISTAKES: tuple[Mistake, ...] = (OneWay(), Bidirectional(), NoAttention(), NoHits(), ScaledHits())
PROPERTIES: tuple[Property, ...] = (BOTH_WAYS, LINK, QUADRATIC, HITS, FRONT)
