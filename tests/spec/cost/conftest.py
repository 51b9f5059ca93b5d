"""Settings to draw: real ones in size, and toy ones whose every edge lies within a few hundred tokens.

Session fixtures that hold strategies: a test draws from them with `data.draw(real_settings)`.
"""

from __future__ import annotations

from fractions import Fraction as Q

import pytest
from hypothesis import strategies as st

from preempt_spec.cost.copies import Affine, Law, Piecewise, Tabulated
from preempt_spec.cost.decide import Setting
from preempt_spec.cost.recompute import Device, Run
from preempt_spec.cost.shape import Architecture, Attention, Layers, Recurrent, Shape, State, shape_of
from preempt_spec.cost.swap import Copies, Directions, Hit, Transfer, Trip

GIGA = Q(10**9)
NANO = Q(1, 10**9)


def whole(least: int, most: int) -> st.SearchStrategy[Q]:
    return st.integers(least, most).map(Q)


#: Dyadic, so that a share of a whole number of tokens is the same number in a float.
HITS = st.none() | st.integers(0, 64).map(lambda k: Q(k, 64))


@st.composite
def tables(draw: st.DrawFn, step: Q, second: Q) -> Tabulated[Q]:
    """Points in rising order of size and, as measured ones mostly are, of time."""
    steps = draw(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=2, max_size=5))
    sizes, seconds = [step], [second]
    for wider, longer in steps:
        sizes.append(sizes[-1] + wider * step)
        seconds.append(seconds[-1] + longer * second)
    return Tabulated(tuple(sizes), tuple(seconds))


def laws(affine: st.SearchStrategy[Affine[Q]], step: Q, second: Q) -> st.SearchStrategy[Law[Q]]:
    simple: st.SearchStrategy[Law[Q]] = affine | tables(step, second)
    switches = st.integers(1, 100).map(lambda k: k * step)
    return simple | st.builds(Piecewise[Q], simple, switches, simple)


def transfers(
    law: st.SearchStrategy[Law[Q]], blocks: st.SearchStrategy[Q], rounding: st.SearchStrategy[bool]
) -> st.SearchStrategy[Transfer[Q]]:
    return st.builds(
        Transfer[Q],
        law,
        law,
        blocks,
        st.sampled_from(Copies),
        rounding,
        st.sampled_from(Trip),
        st.sampled_from(Directions),
        st.sampled_from(Hit),
    )


@st.composite
def attentions(draw: st.DrawFn) -> Attention[Q]:
    kv_heads, group = draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from((1, 2, 8)))
    dim = draw(st.sampled_from((64, 128, 192)))
    return Attention(
        draw(whole(1, 80)),
        Q(kv_heads * group),
        Q(kv_heads),
        Q(dim),
        Q(dim),
        draw(st.none() | whole(64, 8192)),
        draw(st.none() | whole(64, 1024)),
    )


@st.composite
def architectures(draw: st.DrawFn) -> Architecture[Q]:
    total = draw(whole(10**8, 10**12))
    recurrent = st.builds(Recurrent[Q], whole(1, 60), whole(10**4, 10**8), whole(1, 2))
    return Architecture(
        total,
        total / draw(st.integers(1, 30)),
        tuple(draw(st.lists(attentions(), min_size=1, max_size=2))),
        draw(st.none() | recurrent),
    )


SHARES = st.integers(5, 100).map(lambda k: Q(k, 100))
DEVICES = st.builds(
    Device[Q], st.integers(50, 5000).map(lambda k: k * 10**3 * GIGA), whole(10**11, 10**13), SHARES, SHARES
)
REAL_LAWS = laws(
    st.builds(Affine[Q], st.integers(0, 20_000).map(lambda k: k * NANO), st.integers(1, 500).map(lambda k: k * GIGA)),
    Q(4096),
    500 * NANO,
)
REAL = st.builds(
    Setting[Q],
    st.builds(
        shape_of,
        architectures(),
        st.sampled_from((Q(1), Q(2), Q(8))),
        st.sampled_from((Q(2), Q(1), Q(1, 2))),
        st.just(Q(2)),
    ),
    DEVICES,
    transfers(REAL_LAWS, st.sampled_from((Q(1), Q(16), Q(64), Q(256))), st.booleans()),
    st.sampled_from(Run),
    HITS,
)

TOY_LAYERS = st.builds(Layers[Q], whole(1, 30), whole(1, 40), whole(1, 4), st.none() | whole(2, 120))
TOY_SHAPES = st.builds(
    Shape[Q],
    whole(1, 60),
    st.one_of(whole(1, 50), whole(1, 20_000)),
    st.lists(TOY_LAYERS, min_size=1, max_size=2).map(tuple),
    st.none() | st.builds(State[Q], whole(1, 3000), whole(1, 2)),
)
TOY_DEVICES = st.builds(Device[Q], whole(1, 60), whole(1, 20), SHARES, SHARES)
TOY_LAWS = laws(
    st.builds(Affine[Q], st.just(Q(0)) | whole(1, 400), st.integers(1, 40).map(lambda k: Q(k, 20))), Q(60), Q(40)
)
TOY = st.builds(
    Setting[Q], TOY_SHAPES, TOY_DEVICES, transfers(TOY_LAWS, whole(1, 16), st.just(False)), st.sampled_from(Run), HITS
)


@pytest.fixture(scope="session")
def real_settings() -> st.SearchStrategy[Setting[Q]]:
    return REAL


@pytest.fixture(scope="session")
def toy_settings() -> st.SearchStrategy[Setting[Q]]:
    return TOY


@pytest.fixture(scope="session")
def llama_8b() -> Setting[Q]:
    """Llama 3.1 8B on an H100 at half of its peak; 32 KiB copies at 5 µs over 50 GB/s; whole blocks, alone."""
    attention = Attention(Q(32), Q(32), Q(8), Q(128), Q(128))
    shape = shape_of(Architecture(Q(8_030_000_000), Q(8_030_000_000), (attention,)), Q(1), Q(2), Q(2))
    law = Affine(Q(5, 10**6), 50 * GIGA)
    return Setting(shape, Device(Q(989 * 10**12), Q(335 * 10**10), Q(1, 2), Q(1, 2)), Transfer(law, law, Q(16)))
