"""A saved failure, run again: does it still fail? For `replay`, and for the tests that `fuzz` writes.

from preempt_oracle.reproduce import holds

def test_queue_front():
    holds("failures/queue-front.toml", adapter="my_adapter:Adapter")
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from enum import Enum
from os import PathLike

from attrs import frozen

from preempt_oracle.drive import Run
from preempt_oracle.verdict import Standing, Tally, Verdict
from preempt_properties.scenario import Option, Scenario


class Now(Enum):
    """How a scenario that once broke a rule comes out now, and the exit code that says so."""

    FIXED = "FIXED"
    FAILS = "STILL FAILS"
    OTHER = "ANOTHER RULE"
    UNSEEN = "INCONCLUSIVE"

    @property
    def exit_code(self) -> int:
        """0 fixed, 1 fails still or otherwise, 4 cannot be told."""
        verdict = {Now.FIXED: Verdict.CONFORMS, Now.UNSEEN: Verdict.INCONCLUSIVE}.get(self, Verdict.VIOLATES)
        return verdict.exit_code


@frozen
class Again:
    """The outcome, in a sentence."""

    now: Now
    sentence: str


def again(scenario: Scenario, run: Run, tally: Tally, label: str) -> Again:
    """What a run of a scenario shows of the rule it names; `tally` has that one run."""
    rule = scenario.rule
    standing = tally.standings[rule]
    if standing in (Standing.VIOLATED, Standing.ADVISED):
        return Again(Now.FAILS, f"{rule} on {label}")
    if standing is Standing.NOT_OBSERVABLE:
        return Again(Now.UNSEEN, f"{rule} is not observable on {label}")
    if run.violations:
        return Again(Now.OTHER, f"{rule} did not break, {run.violations[0].rule} did")
    return Again(Now.FIXED, f"{rule} held on {label}, exercised {tally.exercised[rule]} times")


def tallied(run: Run) -> Tally:
    """One run as a tally."""
    tally = Tally(run.header.engine, run.header.version, run.policy.name, deviations=run.deviations)
    tally.add(run.monitor, run.header.observes, advised={v.rule for v in run.advised})
    return tally


def holds(
    scenario_file: str | PathLike[str],
    engine: str | None = None,
    *,
    adapter: str | None = None,
    stdio: str | None = None,
    engine_python: str | None = None,
    options: Mapping[str, Option] | None = None,
) -> None:
    """Fail, with the report, unless the rule that a scenario names holds now. The engine is named as for `replay`.

    Raises AssertionError; HarnessError for a broken adapter; click's exceptions for a file or engine that is not there,
    and for an engine that refuses the scenario.
    """
    from preempt_oracle.campaign import failure
    from preempt_oracle.cli.scenarios import read
    from preempt_oracle.cli.target import target
    from preempt_oracle.report.failure import show_failure
    from preempt_oracle.report.words import console

    name = str(scenario_file)
    scenario = read(name)
    if not scenario.rule:
        raise AssertionError(f"{name} names no rule: there is nothing to hold")
    if engine is None and adapter is None and stdio is None:
        engine = scenario.engine or None
    chosen = target(engine, adapter, stdio, engine_python, {**scenario.options, **(options or {})})
    run = chosen.run(scenario)
    outcome = again(scenario, run, tallied(run), chosen.label)
    if outcome.now is Now.FIXED:
        return
    text = io.StringIO()
    for violation in (*run.violations, *run.advised):
        show_failure(console(text), failure(run, violation, name, chosen.command("replay", name)))
    raise AssertionError(f"{outcome.now.value}: {outcome.sentence}\n{text.getvalue()}")
