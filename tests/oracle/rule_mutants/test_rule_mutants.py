"""The mutation run of rules and monitor notices what it should, and its files are about mutants that there are."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from preempt_oracle.rule_mutants import __main__ as command
from preempt_oracle.rule_mutants.by_cases import RULE_CODE, ByCases, asked, every_clause, place_of
from preempt_oracle.rule_mutants.by_streams import MONITOR_CODE, told
from preempt_oracle.rule_mutants.cases import Cases, events_of
from preempt_oracle.rule_mutants.changes import every
from preempt_oracle.rule_mutants.hunt import mutants, name, sampled
from preempt_oracle.rule_mutants.kept import ENDS, SCORE, Row, argued, dump_score, score, scored
from preempt_properties.catch import generated
from preempt_properties.known_bad.kept import scenes
from preempt_properties.known_bad.queues import RequeuesAtTheBack
from preempt_properties.known_bad.right import Right
from preempt_properties.mutants.children import run
from preempt_properties.mutants.operators import functions
from preempt_properties.mutants.session import NotReady

SOURCE = '''
def f(s, e):
    """A clause."""
    for r in s.running:
        if r in s.waiting and r.place is Place.RUNNING:
            continue
        yield None if 0 <= r < 3 else f"{r}"
    yield "x".join(q for q in e if q) if e else None
    s.n += 1
    e.go()
'''


def test_small_changes_of_every_kind():
    [(name_, function)] = functions("m", SOURCE).items()
    changes = {(m.was, m.now) for m in every("m", name_, function)}
    test = "r in s.waiting and r.place is Place.RUNNING"
    assert {
        ("s.running", "s.waiting"),
        ("s.waiting", "s.running"),
        ("r in s.waiting", "r not in s.waiting"),
        (test, "r in s.waiting"),
        (test, "r.place is Place.RUNNING"),
        (test, "r in s.waiting or r.place is Place.RUNNING"),
        ("Place.RUNNING", "Place.WAITING"),
        ("0 <= r < 3", "0 <= r"),
        ("0 <= r < 3", "r < 3"),
        (f"if {test}", "if True"),
        (f"if {test}", "if False"),
        ("continue", "pass"),
        ("s.n += 1", "pass"),
        ("e.go()", "pass"),
        ("(q for q in e if q)", "(q for q in e)"),
        ("(yield (None if 0 <= r < 3 else f'{r}'))", "(yield None)"),
        ("(yield (None if 0 <= r < 3 else f'{r}'))", "(yield f'{r}')"),
    } <= changes


@pytest.mark.long
@pytest.mark.parametrize("what", ["rules", "monitor"])
def test_ids_are_unique_and_every_mutant_compiles(what):
    seen = set()
    for mutant in mutants(what):
        assert mutant.id not in seen
        seen.add(mutant.id)
        ast.parse(mutant.source)
    assert len(seen) > 1_500
    assert 0 < len(sampled(mutants(what), 20)) < len(seen) / 10
    assert {id for id in (*argued().reasons, *argued().open) if id.startswith(f"{what}/")} <= {
        f"{what}/{id}" for id in seen
    }


def test_a_clause_is_a_function_of_its_module():
    shipped = RULE_CODE.shipped()
    assert {place_of(clause) for clause in every_clause()} <= shipped.keys()
    for at in MONITOR_CODE.shipped():
        MONITOR_CODE.live(at)


@pytest.fixture(scope="module")
def few() -> ByCases:
    """What one known-bad scheduler and the reference make of all clauses."""
    cases = Cases()
    scene = scenes()["RequeuesAtTheBack"]
    head, contract, events = events_of(RequeuesAtTheBack, scene)
    assert cases.play(events, head, contract, frozenset({"queue/front"}), "RequeuesAtTheBack", each=True)
    for seed in range(3):
        head, contract, events = events_of(Right, generated(Right, "vllm-fcfs", seed))
        assert not cases.play(events, head, contract, frozenset(), "Right")
    return asked(cases)


def answer(work):
    answers: list[Any] = []
    run([(work, answers.append)])
    return answers[0]


def killed(few: ByCases, function: tuple[str, str], was: str, now: str) -> str:
    mutant = next(m for m in every(*function, RULE_CODE.shipped()[function]) if (m.was, m.now) == (was, now))

    def change() -> str:
        RULE_CODE.put(mutant)
        return few.killed(function)

    return str(answer(change))


def test_a_rule_that_misses_its_scheduler_is_noticed(few):
    condition = "e.index is not None and s.request(e.request).place is Place.LIMBO"
    assert killed(few, ("queue", "at_its_place"), f"if {condition}", "if False") == (
        "RequeuesAtTheBack is not caught (known bad)"
    )


def test_a_rule_that_accuses_who_is_right_is_noticed(few):
    assert "is accused" in killed(
        few, ("queue", "within_budget"), "spent <= s.limits.budget", "spent > s.limits.budget"
    )


def test_a_rule_as_it_is_kills_nothing(few):
    assert few.killed(("queue", "at_its_place")) == ""
    assert few.killed(("queue", "no_such_function")) == ""
    assert few.rules(("queue", "_fits")) == ("queue/admission",)


def test_a_stream_that_accuses_somebody_else_is_refused():
    head, contract, events = events_of(RequeuesAtTheBack, scenes()["RequeuesAtTheBack"])
    with pytest.raises(NotReady, match="queue/front"):
        Cases().play(events, head, contract, frozenset({"pool/conserve"}), "?")


def test_a_monitor_that_differs_is_noticed():
    from preempt_oracle.equality import quiet

    [stream] = quiet("vllm-fcfs", range(1))
    right = told(stream)
    assert right.differs() == ""
    function = ("change", "arrive")
    mutant = next(
        m for m in every(*function, MONITOR_CODE.shipped()[function]) if m.now == "pass" and "insert" in m.was
    )

    def change() -> str:
        MONITOR_CODE.put(mutant)
        return right.differs()

    assert answer(change)


def test_a_short_cut_that_is_not_taken_any_more_is_noticed():
    from preempt_oracle.equality import quiet

    [stream] = quiet("vllm-fcfs", range(1))
    right = told(stream).noted()
    assert right.differs() == ""
    function = ("cohort", "Cohort._ready")
    every_step = (m for m in every(*function, MONITOR_CODE.shipped()[function]) if "paused" in m.was)
    mutant = next(m for m in every_step if m.now == "if True")

    def change() -> str:
        MONITOR_CODE.put(mutant)
        return right.differs()

    assert answer(change).startswith("more is judged clause by clause in event ")


def test_the_score_is_read_as_it_is_written():
    kept, one_of = score()
    assert one_of.keys() == kept.keys()
    assert dump_score(kept, one_of) == SCORE.read_text(encoding="utf-8")
    assert all(set(ends) == set(ENDS) for rows in kept.values() for ends in rows.values())
    rows = [Row("a", ("x", "y"), "test"), Row("b", ("x",), "open"), Row("c", (), "argued")]
    assert scored(rows)["x"] == {"evidence": 0, "monitor": 0, "test": 1, "argued": 0, "open": 1}
    assert scored(rows)["(called by none)"]["argued"] == 1


@pytest.mark.long
def test_usage(capsys):
    for wrong in (["--sample", "0"], ["--write", "queue."]):
        with pytest.raises(SystemExit) as left:
            command.options(wrong)
        assert left.value.code == 2
    wanted = command.options(["queue.at_its_place"])
    assert all(name("rules", m).startswith("rules/queue.at_its_place") for m in command.chosen("rules", wanted))
    assert command.chosen("monitor", command.options(["rules"])) == []
    capsys.readouterr()
