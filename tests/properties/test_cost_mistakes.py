"""Each common mistake is caught by its property in every setting, and errs by what is said of it."""

from __future__ import annotations

from fractions import Fraction as Q

import pytest
from attrs import evolve
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from preempt_properties.cost_mistakes import (
    MISTAKES,
    PROPERTIES,
    Bidirectional,
    NoAttention,
    NoHits,
    OneWay,
    Property,
    Right,
    ScaledHits,
)
from preempt_properties.theorems import THEOREMS
from preempt_spec.cost.copies import Affine
from preempt_spec.cost.decide import Choice, Setting, break_even_bandwidth, choose
from preempt_spec.cost.recompute import Device, Run
from preempt_spec.cost.shape import Layers, Shape, State
from preempt_spec.cost.swap import Copies, Directions, Hit, Transfer, Trip

GIGA = Q(10**9)
#: A mistake that is caught everywhere needs no search.
few = settings(max_examples=30)


def whole(least: int, most: int) -> st.SearchStrategy[Q]:
    return st.integers(least, most).map(Q)


def times(unit: int, least: int, most: int) -> st.SearchStrategy[Q]:
    return st.integers(least, most).map(lambda n: Q(n * unit))


LAWS = st.builds(Affine[Q], st.just(Q(0)) | st.builds(Q, st.integers(1, 20), st.just(10**6)), times(10**9, 1, 400))
LAYERS = st.builds(Layers[Q], whole(256, 10**6), whole(0, 10**7), whole(1, 160), st.none() | whole(128, 10**5))
SHAPES = st.builds(
    Shape[Q],
    whole(10**7, 10**11),
    whole(10**7, 10**12),
    st.lists(LAYERS, min_size=1, max_size=2).map(tuple),
    st.none() | st.builds(State[Q], whole(1, 10**8), whole(1, 100)),
)
SHARES = st.integers(1, 100).map(lambda percent: Q(percent, 100))
DEVICES = st.builds(Device[Q], times(10**12, 10, 5_000), times(10**12, 1, 8), SHARES, SHARES)


@st.composite
def transfers(draw: st.DrawFn) -> Transfer[Q]:
    out = draw(LAWS)
    rest = st.builds(
        Transfer[Q],
        st.just(out),
        st.just(out) | LAWS,
        whole(1, 64),
        st.sampled_from(Copies),
        st.booleans(),
        st.sampled_from(Trip),
        st.sampled_from(Directions),
        st.sampled_from(Hit),
    )
    return draw(rest)


SETTINGS = st.builds(Setting[Q], SHAPES, DEVICES, transfers(), st.sampled_from(Run), st.none() | SHARES)
LENGTHS = whole(1, 200_000)


def suited(setting: Setting[Q], wanted: Property) -> Setting[Q]:
    """The setting, brought to where most properties apply: a drawn one rarely is there by itself."""
    layers = (evolve(setting.shape.layers[0], window=None, pair_flops=Q(524_288)), *setting.shape.layers[1:])
    transfer = setting.transfer
    if wanted is OneWay.caught_by:
        transfer = evolve(transfer, trip=Trip.ROUND_TRIP, directions=Directions.SERIAL)
    if wanted is Bidirectional.caught_by:
        assert isinstance(transfer.out, Affine)
        free = evolve(transfer.out, overhead=Q(0))
        transfer = evolve(transfer, out=free, back=free)
    hit = None if wanted is NoAttention.caught_by else setting.hit or Q(1, 2)
    return evolve(setting, shape=evolve(setting.shape, layers=layers), transfer=transfer, run=Run.PIGGYBACK, hit=hit)


@pytest.mark.parametrize("wanted", PROPERTIES, ids=lambda p: p.sentence)
@few
@given(setting=SETTINGS, length=LENGTHS)
def test_the_shipped_model_has_every_property(wanted, setting, length):
    for drawn in (setting, suited(setting, wanted)):
        assert not wanted.applies(drawn, length) or wanted.holds(Right(), drawn, length)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: type(m).__name__)
@few
@given(setting=SETTINGS, length=LENGTHS)
def test_its_property_catches_a_mistake_wherever_it_applies(mistake, setting, length):
    wanted = mistake.caught_by
    setting = suited(setting, wanted)
    assume(wanted.applies(setting, length))
    assert not wanted.holds(mistake, setting, length)


@few
@given(setting=SETTINGS, length=LENGTHS)
def test_the_right_model_decides_as_the_shipped_functions_do(setting, length):
    assert Right().choose(setting, length) is choose(setting, length)
    assert Right().break_even(setting, length) == break_even_bandwidth(setting, length)


def test_every_mistake_has_its_property_and_its_theorems():
    assert {m.caught_by.sentence for m in MISTAKES} == {p.sentence for p in PROPERTIES}
    for mistake in MISTAKES:
        assert mistake.sentence.endswith(".")
        assert type(mistake).__doc__
        assert all(id in THEOREMS for id in mistake.theorems)


def llama(gigabytes: Q, hit: Q | None = None) -> Setting[Q]:
    """Llama-3.1-8B in BF16 on an H100 at half of its peak, recompute riding along, as the seed counts."""
    law = Affine(Q(0), gigabytes * GIGA)
    return Setting(
        Shape(Q(8_030_000_000), Q(16_060_000_000), (Layers(Q(131_072), Q(524_288), Q(64)),)),
        Device(Q(989 * 10**12), Q(3_350 * 10**9), Q(1, 2), Q(1, 2)),
        Transfer(law, law, Q(16), Copies.GATHERED, whole_blocks=False),
        Run.PIGGYBACK,
        hit,
    )


@pytest.mark.parametrize(
    ("mistake", "length", "hit", "right", "wrong"),
    [
        (OneWay(), 4_096, None, 7.566, 3.783),
        (Bidirectional(), 4_096, None, 7.566, 3.783),
        (NoAttention(), 4_096, None, 7.566, 8.072),
        (NoAttention(), 32_768, None, 5.259, 8.072),
        (NoHits(), 32_768, Q(9, 10), 40.033, 5.259),
        (ScaledHits(), 32_768, Q(9, 10), 40.033, 52.588),
    ],
)
def test_break_even_of_llama_as_each_mistake_has_it(mistake, length, hit, right, wrong):
    setting = llama(Q(50), hit)
    assert float(Right().break_even(setting, Q(length)) / GIGA) == pytest.approx(right, abs=5e-3)
    assert float(mistake.break_even(setting, Q(length)) / GIGA) == pytest.approx(wrong, abs=5e-3)


@pytest.mark.parametrize(
    ("mistake", "gigabytes", "length", "hit", "thought"),
    [
        (OneWay(), 5, 4_096, None, Choice.SWAP),
        (Bidirectional(), 5, 4_096, None, Choice.SWAP),
        (NoAttention(), 6, 32_768, None, Choice.RECOMPUTE),
        (NoHits(), 20, 32_768, Q(9, 10), Choice.SWAP),
        (ScaledHits(), 50, 32_768, Q(9, 10), Choice.RECOMPUTE),
    ],
)
def test_a_bandwidth_of_today_at_which_each_mistake_decides_wrongly(mistake, gigabytes, length, hit, thought):
    setting = llama(Q(gigabytes), hit)
    assert mistake.choose(setting, Q(length)) is thought
    assert choose(setting, Q(length)) is not thought
