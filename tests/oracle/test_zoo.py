"""The kill matrix: who is searched for, what a search says, and what it says when something is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from preempt_oracle import zoo
from preempt_oracle.zoo import Kill, NoSuchVariant, chosen, hunt, matrix, summary, tasks, unattended
from preempt_oracle.zoo_kept import kept_otherwise
from preempt_properties.evidence import Evidence, Heard
from preempt_properties.evidence import load as evidence
from preempt_properties.known_bad import ZOO
from preempt_properties.known_bad.kinds import load
from preempt_properties.known_bad.queues import RequeuesAtTheBack
from preempt_properties.known_bad.right import Right
from preempt_spec import events as ev
from preempt_spec.rules import Violation

KINDS = load()


def test_a_search_ends_with_the_rule_that_is_broken():
    kill = hunt("RequeuesAtTheBack", "vllm-fcfs", 0)
    assert kill.named == ("queue/front",)
    assert kill.fault == ""
    assert kill.workloads >= 1
    assert kill.events > 0
    assert "requeued" in kill.message
    assert kept_otherwise((kill,)) == []
    assert "kills.toml says" in kept_otherwise((evolve(kill, workloads=kill.workloads + 1),))[0]


def test_a_search_is_the_same_in_any_number_of_processes():
    todo = [("RequeuesAtTheBack", "vllm-fcfs"), ("GrantsTwice", "nano-vllm"), ("AdmitsOneTooMany", "vidur-vllm")]
    told: list[str] = []
    alone = matrix(todo, 7, 1, lambda kill: told.append(kill.name))
    assert told == [name for name, _ in todo]
    both = matrix(todo, 7, 2, lambda _: None)
    assert [evolve(k, seconds=0.0) for k in alone] == [evolve(k, seconds=0.0) for k in both]


def test_seeds_draw_other_workloads():
    assert len({hunt("AdmitsOneTooMany", "nano-vllm", seed).events for seed in range(4)}) > 1


def test_who_is_right_is_driven_and_not_accused(monkeypatch):
    monkeypatch.setattr(zoo, "SURVIVED", 5)
    kill = hunt("Right", "vllm-fcfs", 0)
    assert (kill.named, kill.workloads, kill.fault) == ((), 5, "")


def test_an_accusation_of_who_is_right_is_wrong(monkeypatch):
    monkeypatch.setattr(Right, "choose_victim", lambda self, request: self.state.running[0])
    kill = hunt("Right", "vllm-fcfs", 0)
    assert kill.named == ("victim/choice",)
    assert "is right and was accused of victim/choice" in kill.fault
    assert summary([kill]).faults == [f"Right, vllm-fcfs: {kill.fault}"]


def test_what_is_not_caught_in_time_is_wrong(monkeypatch):
    monkeypatch.setattr(zoo, "WORST", 0.05)
    monkeypatch.setattr(RequeuesAtTheBack, "_act", Right._act)
    monkeypatch.setattr(RequeuesAtTheBack, "requeue", Right.requeue)
    kill = hunt("RequeuesAtTheBack", "vllm-fcfs", 0)
    assert "was not caught in" in kill.fault


def test_the_wrong_rule_is_wrong(monkeypatch):
    monkeypatch.setattr(RequeuesAtTheBack, "rule", "queue/order")
    kill = hunt("RequeuesAtTheBack", "vllm-fcfs", 0)
    assert "was accused of queue/front and not of queue/order" in kill.fault


def test_a_stream_that_makes_no_sense_is_no_catch(monkeypatch):
    def aborts_a_stranger(self: Right, request: str) -> ev.Abort:
        return ev.Abort("stranger", "user", (), ev.Observed())

    monkeypatch.setattr(Right, "abort", aborts_a_stranger)
    kill = hunt("Right", "vllm-fcfs", 0)
    assert kill.named == ("(malformed)",)
    assert kill.fault


def test_a_rule_that_may_be_named_instead_does_not_end_the_search(monkeypatch):
    answers: Iterator[list[Violation]] = iter([[Violation("live/progress", "?")], [], [Violation("queue/front", "!")]])
    monkeypatch.setattr(zoo, "shown", lambda *_: next(answers))
    monkeypatch.setattr(RequeuesAtTheBack, "also", frozenset({"live/progress"}))
    kill = hunt("RequeuesAtTheBack", "vllm-fcfs", 0)
    assert (kill.workloads, kill.message, kill.fault) == (3, "!", "")


def test_slow_searches_are_wrong():
    kill = Kill("RequeuesAtTheBack", "vllm-fcfs", "queue/front", ("queue/front",), 9, 99, 31.0, "")
    assert summary([kill]).faults == [
        "RequeuesAtTheBack, vllm-fcfs: took 31.0 s, more than 30",
        "half of the searches took more than 31.0 s; 1 are allowed",
    ]
    assert summary([]).faults == []


def test_who_is_searched_for():
    assert chosen((), KINDS) == list(ZOO)
    assert [v.__name__ for v in chosen(("GrantsTwice", "GrantsNothing"), KINDS)] == ["GrantsTwice", "GrantsNothing"]
    by_letter, by_name = chosen(("I",), KINDS), chosen(("abort",), KINDS)
    assert by_letter == by_name
    assert {KINDS.letter(v.__name__) for v in by_letter} == {"I"}
    assert {v.rule for v in chosen(("edge/stats",), KINDS)} == {"edge/stats"}
    with pytest.raises(NoSuchVariant, match="neither a rule nor"):
        chosen(("GrantsTwice", "Nobody"), KINDS)
    assert list(tasks([RequeuesAtTheBack])) == [("RequeuesAtTheBack", p) for p in RequeuesAtTheBack.policies]


def test_every_rule_is_needed_or_says_why_not():
    assert unattended(evidence()) == []
    nobody = Evidence({}, {v.__name__: Heard("queue/front", "vllm-fcfs", 0) for v in ZOO})
    told = unattended(nobody)
    assert any(line.startswith("queue/front is the only one") for line in told)
    assert not any(line.startswith("pool/capacity") for line in told)  # says why
