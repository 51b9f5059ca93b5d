"""What several processes found, put together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from preempt_oracle.campaign import Campaign
from preempt_oracle.fuzz.jobs import Fuzzed, merged
from preempt_oracle.reduce import Reduced
from preempt_oracle.verdict import Failure, Tally
from preempt_properties.scenario import Add, Config, Scenario
from preempt_spec.rules import Violation

CONFIG = Config("vllm-fcfs", 4, 2, 2, 8, 8)


def part(folder: Path, seed: int, found: dict[str, int]) -> Fuzzed:
    """A job that found these rules broken, each in so many actions."""
    tally = Tally("e", "1", "vllm-fcfs", frozenset({"start", f"only {seed}"}), runs=10, steps=100 + seed)
    campaign = Campaign(tally, seed, workloads=10, seconds=seed)
    campaign.outside = Counter({"too odd": 1})
    files: dict[str, list[str]] = {}
    for rule, actions in found.items():
        scenario = Scenario(CONFIG, (Add("a", (1,), actions),))
        campaign.found[rule] = Reduced(scenario, 5, True, actions)
        campaign.scenarios[rule], campaign.first[rule] = scenario, float(seed)
        file = folder / f"{rule.replace('/', '-')}-{seed}.toml"
        file.write_text("")
        files[rule] = [str(file)]
        tally.failures.append(Failure(Violation(rule, f"seen by {seed}"), str(file), 0))
        tally.times[rule] += 2
    return Fuzzed(campaign, {(seed,), (0,)}, 1000, None, files)


def test_the_shortest_of_each_rule_stays_and_counts_add_up(tmp_path):
    parts = [
        part(tmp_path, 1, {"queue/front": 7, "pool/conserve": 3}),
        part(tmp_path, 2, {"queue/front": 5, "victim/choice": 4}),
        part(tmp_path, 3, {"queue/front": 6}),
    ]
    out = merged(parts, 1)
    found = {rule: r.actions for rule, r in out.campaign.found.items()}
    assert found == {"queue/front": 5, "pool/conserve": 3, "victim/choice": 4}
    told = {f.violation.rule: f.violation.message for f in out.campaign.tally.failures}
    assert told == {"queue/front": "seen by 2", "pool/conserve": "seen by 1", "victim/choice": "seen by 2"}
    kept = sorted(p.name for p in tmp_path.iterdir())
    assert kept == ["pool-conserve-1.toml", "queue-front-2.toml", "victim-choice-2.toml"]
    assert {rule: len(files) for rule, files in out.files.items()} == dict.fromkeys(found, 1)
    tally = out.campaign.tally
    assert (tally.runs, tally.steps, out.campaign.workloads) == (30, 306, 30)
    assert tally.times == {"queue/front": 6, "pool/conserve": 2, "victim/choice": 2}
    assert tally.observes == frozenset({"start"})
    assert out.campaign.first["queue/front"] == 1.0
    assert out.campaign.outside == {"too odd": 3}
    assert out.states == {(0,), (1,), (2,), (3,)}
    assert out.sketched == 3000


def test_a_broken_job_is_told_of(tmp_path):
    parts = [part(tmp_path, 1, {}), part(tmp_path, 2, {})]
    parts[1].campaign.broken = "it hung"
    assert merged(parts, 1).campaign.broken == "it hung"
