"""`rules`, `smoke` and `engines`."""

from __future__ import annotations

import pytest

from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import RULES


def test_every_rule_is_listed_once(run):
    result = run("rules")
    assert result.exit_code == 0
    assert sorted(line.split()[0] for line in result.stdout.splitlines()) == sorted(RULES)


def test_a_family(run):
    result = run("rules", "queue")
    assert all(line.startswith("queue/") for line in result.stdout.splitlines())
    assert len(result.stdout.splitlines()) == sum(r.family == "queue" for r in RULES.values())


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_explained_with_its_clauses_observations_and_known_bad(run, rule):
    result = run("rules", rule)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{rule} ({RULES[rule].kind.value}): {RULES[rule].sentence}\n")
    assert "Clauses" in result.stdout
    assert all(f"  {name}: " in result.stdout for needs in RULES[rule].needs for name in needs)


def test_known_bad_schedulers_are_named(run):
    assert "RequeuesAtTheBack: Puts a victim behind everybody who waits." in run("rules", "queue/front").stdout


def test_an_unknown_rule_gets_the_nearest(run):
    result = run("rules", "queue/frnt")
    assert result.exit_code == 2
    assert "near it: queue/front" in result.stderr
    assert run("rules", "\x1b[31m").exit_code == 2


def test_markdown(run):
    assert run("rules", "--markdown").stdout.count("### ") == len(RULES)


@pytest.mark.parametrize("policy", PROFILES)
def test_smoke_says_what_is_seen_and_reached(run, here, policy):
    result = run("smoke", "reference", "--policy", policy)
    assert result.exit_code in (0, 4)
    assert f"rules: {len(RULES)} of {len(RULES)} are observable" in result.stdout
    assert "reached: preemption: yes; resume: yes; several victims in one step: yes" in result.stdout


def test_smoke_of_a_broken_scheduler(run, here, adapters):
    result = run("smoke", "--adapter", f"{adapters}:Back")
    assert result.exit_code == 1
    assert "breaks queue/front" in result.stdout


def test_engines_are_listed_with_their_state(run, here):
    result = run("engines", "list")
    assert result.exit_code == 0
    assert "vidur==0.0.26" in result.stdout
    assert "absent" in result.stdout


@pytest.mark.parametrize(("words", "message"), [(("gpt",), "unknown engine 'gpt'"), (("vidur==a b",), "not a version")])
def test_what_cannot_be_installed(run, here, words, message):
    result = run("engines", "install", *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_an_install_that_fails_is_a_broken_harness(run, here, monkeypatch):
    from preempt_oracle.engines import environments

    def fail(*_: object) -> None:
        raise environments.EnvironmentFailure("pip found nothing\nsee the log")

    monkeypatch.setattr(environments, "install", fail)
    result = run("engines", "install", "vidur", "--pip-args", "--no-index")
    assert result.exit_code == 3
    assert "pip found nothing" in result.stderr
