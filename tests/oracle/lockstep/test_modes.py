"""Modes: all of them, by name, and workloads that are of them and inside vLLM's contract."""

from __future__ import annotations

import pytest

from preempt_oracle.lockstep.modes import FLIGHTS, NOT_MODELLED, POLICIES, SWITCHES, Unmodelled, generated, select
from preempt_properties.scenario import Add
from preempt_spec.policies.blocks import blocks_for


def test_every_combination_once():
    every = select(POLICIES, "")
    assert len(every) == len(set(every)) == 560
    assert len({(m.policy, m.words) for m in every}) == 560, "words name a mode"
    assert {m.flight for m in every} == set(FLIGHTS)


def test_the_words_of_a_mode_select_it_alone():
    for mode in select(POLICIES, "")[:40]:
        assert select((mode.policy,), ",".join(mode.words)) == [mode]


def test_words_restrict():
    found = select(("vllm-fcfs",), " async, caching ,drafts,")
    assert found
    assert all(m.flight.name == "async" and m.caching and m.drafts for m in found)
    assert len(select(POLICIES, "unchunked")) == 112


@pytest.mark.parametrize("word", NOT_MODELLED)
def test_what_is_not_modelled_is_refused_by_name(word: str):
    with pytest.raises(Unmodelled, match=f"{word} is not predicted: .*lockstep.md"):
        select(POLICIES, f"caching,{word}")


def test_no_combination():
    with pytest.raises(Unmodelled, match="no modelled combination is all of pipeline,drafts"):
        select(POLICIES, "pipeline,drafts")


def test_a_word_nobody_knows():
    with pytest.raises(ValueError, match=r"'fast' is no mode; words are async, caching.*watermark"):
        select(POLICIES, "fast")


def test_workloads_are_of_their_mode_and_inside_the_contract():
    modes = select(POLICIES, "")
    for seed in range(1120):
        mode = modes[seed % len(modes)]
        scenario = generated(seed, mode)
        c = scenario.config
        assert c == generated(seed, mode).config
        for attribute, _ in SWITCHES.values():
            assert bool(getattr(c, attribute)) is getattr(mode, attribute), attribute
        assert (c.policy, c.frames) == (mode.policy, mode.flight.frames)
        assert c.max_length <= c.blocks * c.page_size
        assert c.budget >= c.max_running
        assert c.chunked or c.budget >= c.max_length
        assert c.long_prefill <= c.max_length
        assert c.drafts < c.budget
        assert not c.long_prefill or c.drafts < c.long_prefill
        assert c.watermark < c.blocks + 1
        assert all(blocks_for(len(a.prompt), c.page_size) <= c.blocks for a in scenario.script if isinstance(a, Add))
