"""The traceability table: every rule has its evidence or a reason, and a hole is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from preempt_oracle import docs
from preempt_oracle import traceability as tracing
from preempt_oracle.engines.environments import ENGINES
from preempt_oracle.report.traceability import page
from preempt_oracle.traceability import Fault, NoFaultsRead, holes, injected, stale, traces
from preempt_oracle.vectors.catalogue import load as vectors
from preempt_properties.evidence import Evidence
from preempt_properties.evidence import load as evidence
from preempt_properties.known_bad import ZOO
from preempt_spec.rules import RULES
from preempt_spec.rules.rule import EVIDENCE

FAULTS = injected()
TRACES = {t.rule.id: t for t in traces(faults=FAULTS)}
#: A rule that lacks nothing, for tests to take things away from.
WHOLE = next(id for id, t in TRACES.items() if not t.missing)


def test_there_is_no_hole():
    assert list(stale(evidence())) == []
    assert list(holes(TRACES.values(), FAULTS)) == []
    assert TRACES.keys() == RULES.keys()


def test_everything_stands_with_its_rule():
    assert sorted(v.__name__ for t in TRACES.values() for v in t.known_bad) == sorted(v.__name__ for v in ZOO)
    assert sorted(v.file for t in TRACES.values() for v in t.broken) == sorted(v.file for v in vectors() if v.base)
    for t in TRACES.values():
        assert t.clauses
        assert all(f.rules and t.rule.id in f.rules for f in t.faults)
        recorded = {v.file: v for v in vectors() if not v.base}
        assert all(t.rule.id not in recorded[name].rules for name in t.kept)


@pytest.mark.parametrize("what", EVIDENCE)
def test_a_hole_is_told_unless_the_reason_stands_beside_the_rule(what):
    kept, shipped = evidence(), vectors()
    id = WHOLE
    bare = {
        "property": lambda: traces(Evidence({}, kept.known_bad), shipped, FAULTS),
        "known-bad": lambda: traces(kept, shipped, FAULTS, [v for v in ZOO if v.rule != id]),
        "alone": lambda: traces(Evidence(kept.exercised, {}), shipped, FAULTS),
        "vector": lambda: traces(kept, [v for v in shipped if id not in v.rules], FAULTS),
    }[what]()
    (trace,) = (t for t in bare if t.rule.id == id)
    assert what in trace.missing
    (hole,) = (h for h in holes([trace], ()) if tracing._MEANS[what] in h)
    assert hole.startswith(f"{id}: ")
    excused = evolve(trace, rule=evolve(trace.rule, lacks=dict.fromkeys(trace.missing, "because")))
    assert list(holes([excused], ())) == []
    for reason, said in (("because", "has it"), (" ", "without a reason")):
        odd = trace if reason == " " else TRACES[id]
        lacks = dict.fromkeys(odd.missing or (what,), reason)
        assert any(said in h for h in holes([evolve(odd, rule=evolve(odd.rule, lacks=lacks))], ()))


def test_a_fault_that_names_no_rule_is_a_hole():
    fault = Fault("vllm", "wrong-victim", "Something.", ("victim/choise",))
    assert list(holes((), [fault])) == ["vllm, fault wrong-victim: there is no rule 'victim/choise'"]


def test_evidence_that_is_missing_or_of_something_gone_is_stale():
    kept = evidence()
    name = ZOO[0].__name__
    without = {k: v for k, v in kept.known_bad.items() if k != name} | {"Gone": None}
    assert [line.split(":")[0] for line in stale(Evidence(kept.exercised, without))] == [
        "Gone is gone, and still in evidence.toml",
        f"{name} is not in evidence.toml",
    ]
    assert any("other profiles" in line for line in stale(Evidence({}, kept.known_bad)))


def test_faults_are_read_without_their_engine(tmp_path):
    (tmp_path / "odd_child.py").write_text("from odd_faults import FAULTS\nimport engine_that_is_not_here\n")
    (tmp_path / "base.py").write_text("class F:\n    name, does, rules, lacks = 'x', 'Does.', ('queue/front',), ()\n")
    (tmp_path / "odd_faults.py").write_text("from base import F\nFAULTS = (F,)\n")
    assert list(tracing._faults("odd", tmp_path / "odd_child.py")) == [Fault("odd", "x", "Does.", ("queue/front",))]
    (tmp_path / "odd_faults.py").write_text("import engine_that_is_not_here\n")
    with pytest.raises(NoFaultsRead, match=r"odd_faults\.py: ModuleNotFoundError"):
        list(tracing._faults("odd", tmp_path / "odd_child.py"))
    (tmp_path / "odd_child.py").write_text("pass\n")
    assert list(tracing._faults("odd", tmp_path / "odd_child.py")) == []


def test_the_page_has_every_rule_and_what_belongs_to_it():
    text = "\n\n".join(page(tuple(TRACES.values()), evidence()))
    for id, t in TRACES.items():
        assert f"\n## {id}\n" in text
        assert f"(rules.md#{id.replace('/', '')})" in text
        row = next(line for line in text.splitlines() if line.startswith(f"| [`{id}`]"))
        assert row.count("|") == 8 + len(ENGINES)
        assert all(f"`{v.__name__}`" in text for v in t.known_bad)
        assert all(f"`{v.file}`" in text for v in t.broken)
        assert all(f"`{f.name}`" in text for f in t.faults)
        assert all(f"- `{id}`, {what}: {why}" in text for what, why in t.rule.lacks.items())


@pytest.mark.long
def test_a_hole_fails_the_check_of_the_documents(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "pyproject.toml").write_text("")
    assert docs.main([], tmp_path) == 0
    assert docs.main(["--check"], tmp_path) == 0
    monkeypatch.setattr(docs, "holes", lambda: ["queue/front: nothing"])
    assert docs.main(["--check"], tmp_path) == 1
    assert "hole: queue/front: nothing" in capsys.readouterr().out
