"""The table of vLLM's versions, without any vLLM."""

from __future__ import annotations

from itertools import pairwise

import pytest

from preempt_oracle.engines import environments, vllm_versions
from preempt_oracle.engines.environments import ENGINES
from preempt_spec.policies.profiles import PROFILES

SPEC = ENGINES["vllm"]
VERSIONS = vllm_versions.VERSIONS


def test_versions_are_in_order_and_each_is_at_least_run():
    assert list(VERSIONS) == sorted(VERSIONS, key=vllm_versions.order)
    assert set(vllm_versions.EVERY_RUN) <= set(vllm_versions.FULL) <= set(VERSIONS)
    assert {"0.11.0", "0.20.0", "0.31.0", "0.33.0"} <= set(vllm_versions.FULL)
    assert SPEC.versions == VERSIONS
    assert [SPEC.standing(v) for v in ("0.11.0", "0.13.0", "0.33.0", "0.12.0")] == [
        "verified",
        "runs",
        "verified",
        "unverified",
    ]
    assert environments.requirement("vllm") == ("vllm", "0.33.0")


def test_a_trait_comes_with_a_listed_version_and_stays():
    assert set(vllm_versions.SINCE.values()) <= set(VERSIONS)
    assert vllm_versions.traits("0.11.0") == frozenset()
    assert vllm_versions.traits("0.33.0") == frozenset(vllm_versions.SINCE)
    for older, newer in pairwise(VERSIONS):
        assert vllm_versions.traits(older) <= vllm_versions.traits(newer)


@pytest.mark.parametrize(("text", "numbers"), [("0.31.0", (0, 31, 0)), ("0.34.0rc1", (0, 34)), ("1.0.dev3+g1", (1, 0))])
def test_versions_compare_as_numbers(text, numbers):
    assert vllm_versions.order(text) == numbers


def test_requirements_are_pinned_and_those_of_the_newest_are_the_common_ones():
    for version in (*VERSIONS, "0.12.0", "0.17.1"):
        pins = SPEC.pins(version)
        assert pins[0] == f"vllm=={version}"
        assert all(pin.count("==") == 1 for pin in pins)
        assert len({pin.partition("==")[0] for pin in pins}) == len(pins)
    assert SPEC.pins("0.33.0") == ("vllm==0.33.0",)
    assert "setproctitle==1.3.8" in SPEC.pins("0.11.0")


def test_other_engines_check_and_drive_each_of_their_versions():
    for spec in ENGINES.values():
        assert set(spec.driven) <= set(spec.checked) <= set(spec.versions)
    assert ENGINES["vidur"].checked == ENGINES["vidur"].driven == ENGINES["vidur"].versions


def test_deviations_are_told_of_listed_versions_only():
    for profile in PROFILES.values():
        for deviation in profile.deviations:
            assert set(deviation.versions) <= set(ENGINES[deviation.engine].versions)


def test_a_self_preempted_requester_ends_the_pass_before_0_33():
    built = {v: PROFILES["vllm-priority"].as_built("vllm", v)[0].after_self.name for v in VERSIONS}
    assert built == {v: "CONTINUE" if v == "0.33.0" else "STOP" for v in VERSIONS}
