"""Each shipped trace comes out as recorded; together they show what the specification speaks of. Needs no engine."""

from __future__ import annotations

import io
from collections import Counter

import pytest

from preempt_oracle.check import check
from preempt_oracle.matrix import expectations
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_oracle.trace.errors import TraceError
from preempt_oracle.trace.reader import read
from preempt_oracle.vectors import make
from preempt_oracle.vectors.catalogue import FOLDER, load
from preempt_oracle.vectors.editing import EDITS, Edit
from preempt_oracle.verdict import policy_for
from preempt_properties.reach import SITUATIONS, beyond, situations
from preempt_properties.scenario import loads
from preempt_spec.events import Header
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import RULES
from preempt_spec.state import initial
from preempt_spec.system import apply

VECTORS = load()
RECORDED = [v for v in VECTORS if not v.base]
GOOD = [v for v in RECORDED if v.verdict == "conforms"]
BROKEN = [v for v in VECTORS if v.base]
VERSIONS = ("0.31.0", "0.33.0")
POLICIES = ("vllm-fcfs", "vllm-priority")

#: Rules that no edit of a conforming trace breaks. Why: `lacks`, beside the rule.
UNBREAKABLE = {rule.id for rule in RULES.values() if "vector" in rule.lacks}


def header(vector):
    _, first = next(read(FOLDER / vector.file))
    assert isinstance(first, wire.Header)
    return first


def scenario(vector):
    return loads((FOLDER / vector.scenario).read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v.file)
def test_verdict_and_broken_rules_are_those_recorded(vector):
    # A trace is read to its footer, whatever it showed: a file that was cut off would raise.
    tally = check(FOLDER / vector.file)
    assert (tally.engine, tally.version, tally.policy) == (vector.engine, vector.version, vector.policy)
    assert (tally.verdict.value, tuple(sorted(tally.times))) == (vector.verdict, vector.rules)


@pytest.mark.parametrize("vector", BROKEN, ids=lambda v: v.file)
def test_a_broken_copy_breaks_one_rule_and_its_base_keeps_it(vector):
    (rule,) = vector.rules
    base = next(v for v in RECORDED if v.file == vector.base)
    assert rule not in base.rules
    assert vector.shows


def test_the_catalogue_lists_the_files_there_are():
    assert sorted(make.shipped()) == [v.file for v in VECTORS]
    recorded = [*make._scenarios(FOLDER, f"{make.ENGINE}=="), *make._scenarios(FOLDER, make.REFERENCE)]
    assert {v.scenario for v in RECORDED} == {f"scenarios/{name}.toml" for name, _ in recorded}
    assert {p.name for p in (FOLDER / "traces").iterdir()} == {v.file.split("/")[1] for v in RECORDED}


def test_every_version_policy_and_setting_has_a_conforming_trace_with_a_resume():
    seen = {(v.version, v.policy, header(v).limits.caching, header(v).limits.chunked) for v in GOOD}
    wanted = {(v, p, a, b) for v in VERSIONS for p in POLICIES for a in (False, True) for b in (False, True)}
    assert wanted <= seen


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_has_the_rarer_settings(version):
    of = {p: [v for v in GOOD if (v.version, v.policy) == (version, p)] for p in POLICIES}
    for policy in POLICIES:
        limits = [header(v).limits for v in of[policy]]
        assert any(not x.whole_fit for x in limits)
        assert any(x.long_prefill for x in limits)
        assert any(scenario(v).options.get("v2_runner") for v in of[policy])
    everything = [header(v).limits for vectors in of.values() for v in vectors]
    assert any(x.watermark for x in everything)
    salts = {a.salt for v in of["vllm-fcfs"] for a in scenario(v).script if hasattr(a, "salt")}
    assert {"", "s", "t"} <= salts


@pytest.mark.parametrize("version", VERSIONS)
def test_the_traces_come_through_every_situation(version):
    seen: Counter[str] = Counter()
    for vector in GOOD:
        if vector.version == version:
            lines = read(FOLDER / vector.file)
            _, first = next(lines)
            assert isinstance(first, wire.Header)
            spec = to_spec(first)
            assert isinstance(spec, Header)
            state = initial(spec, policy_for(first)[0])
            for _, line in lines:
                if not isinstance(line, wire.Footer | wire.Header):
                    event = to_spec(line)
                    seen.update(situations(state, event))
                    state = apply(state, event)
    assert sorted(seen) == sorted(SITUATIONS)


def test_the_traces_of_the_reference_come_through_what_is_new():
    seen: Counter[str] = Counter()
    for vector in RECORDED:
        if vector.engine == make.REFERENCE:
            first = header(vector)
            state = initial(to_spec(first), policy_for(first)[0])
            for _, line in read(FOLDER / vector.file):
                if not isinstance(line, wire.Footer | wire.Header):
                    event = to_spec(line)
                    seen.update(beyond(state, event))
                    state = apply(state, event)
    assert seen.keys() >= {
        "stale output delivered",
        "stale output dropped",
        "resumed over stale frames",
        "drafts accepted",
        "drafts rejected",
        "reset",
        "swap out",
        "swap in",
        "host pool full",
        "load done",
        "copies out of order",
    }


def test_a_resumed_request_hits_a_token_of_its_own_output():
    lines = [line for _, line in read(FOLDER / "traces/fcfs-cached.vllm-0.33.0.jsonl")]
    arrived = {e.request: e for e in lines if isinstance(e, wire.Arrive)}
    (back,) = (e for e in lines if isinstance(e, wire.Step) and e.resumed)
    (hit,) = back.hits
    assert len(arrived[hit.request].prompt) < hit.tokens < (back.resumed[0].known or 0)


def test_self_preemption_is_judged_by_the_version_that_did_it():
    old = make.content(FOLDER / "traces/priority-self-preemption.vllm-0.31.0.jsonl")
    new = make.content(FOLDER / "traces/priority-self-preemption.vllm-0.33.0.jsonl")
    assert check(io.BytesIO(old)).deviations
    assert not check(io.BytesIO(new)).deviations
    # What 0.31.0 does breaks the contract that 0.33.0 keeps: the requests behind are passed over.
    claimed = old.replace(b'"version":"0.31.0"', b'"version":"0.33.0"', 1)
    assert set(check(io.BytesIO(claimed)).times) == {"queue/visit-once"}


def test_every_rule_has_a_broken_copy_or_a_reason():
    broken = {v.rules[0] for v in BROKEN}
    assert broken.isdisjoint(UNBREAKABLE)
    assert broken | UNBREAKABLE == set(RULES)


def test_the_main_job_expects_what_the_catalogue_says():
    expected = expectations()
    assert dict(expected.copies) == {v.file: v.rules[0] for v in BROKEN}
    for key, outcome in expected.rows.items():
        if key.source == "traces":
            mine = [v for v in RECORDED if (v.engine, v.version, v.policy) == (key.engine, key.version, key.policy)]
            rules = {rule for v in mine for rule in v.rules}
            assert outcome.broken == tuple(sorted(rules))
            good = "conforms" if PROFILES[key.policy].run else "inconclusive"
            assert outcome.verdict == ("violates" if rules else good)


def test_broken_copies_and_catalogue_are_what_would_be_made():
    made = make.again()
    copies = make.break_all({file: raw for file, (_, raw) in made.items()})
    assert not list(make.differences(copies, under="broken/"))
    assert not make.catalogue_differs(made | copies)


def test_plain_gzip_and_zstd_are_all_there_and_small():
    sizes = {file: path.stat().st_size for file, path in make.shipped().items()}
    endings = Counter(file.rpartition(".")[2] for file in sizes)
    assert endings["jsonl"] > 100
    assert endings["gz"] >= 2
    assert endings["zst"] >= 2
    assert max(sizes.values()) < 10_000
    assert sum(sizes.values()) < 1_500_000


@pytest.mark.parametrize("file", [v.file for v in VECTORS if v.file.endswith((".gz", ".zst"))])
def test_half_of_a_packed_trace_is_no_trace(file):
    raw = (FOLDER / file).read_bytes()
    with pytest.raises(TraceError, match="cut off"):
        check(io.BytesIO(raw[: len(raw) // 2]))


def test_an_edit_that_breaks_nothing_or_another_rule_is_refused(monkeypatch):
    recorded = {v.file: make.content(FOLDER / v.file) for v in RECORDED}
    one = next(iter(EDITS.values()))

    def refused(edit):
        monkeypatch.setattr(make, "EDITS", {edit.name: edit})
        with pytest.raises(make.Wrong) as raised:
            make.break_all(recorded)
        return str(raised.value)

    assert "breaks nothing" in refused(Edit("idle", "pool/conserve", one.base, "Nothing.", lambda t: None))
    assert "must break queue/front" in refused(Edit("other", "queue/front", one.base, "Another.", one.change))
    assert "no trace nowhere" in refused(Edit("lost", one.rule, "nowhere", "Lost.", one.change))
    assert "not a trace" in refused(Edit("blind", one.rule, one.base, "No header.", lambda t: t.reverse()))
