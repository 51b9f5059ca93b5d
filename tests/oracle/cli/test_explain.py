"""`explain`: every rule and every finding, in words and with a run that shows it."""

from __future__ import annotations

import pytest

from preempt_oracle.explained import findings, reports, told
from preempt_oracle.report.cause import CAUSES, CONSEQUENCES
from preempt_spec.rules import RULES


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_run_that_breaks_it(rule):
    run = told(rule)
    assert run is not None
    assert run.failure.violation.rule == rule
    assert run.variant.rule == rule
    columns, _ = run.film.columns()
    assert columns


def test_a_rule_is_explained_with_its_history_and_its_run(run, here):
    result = run("explain", "victim/unplan", "--html", "page.html")
    assert result.exit_code == 0
    for words in (RULES["victim/unplan"].sentence, CAUSES["victim/unplan"], CONSEQUENCES["victim/unplan"]):
        assert words in result.stdout
    for kind in reports("victim/unplan"):
        assert kind.fault in result.stdout
        assert kind.reports[0] in result.stdout
    assert "FAILED victim/unplan" in result.stdout
    assert '"b":1' in (here / "page.html").read_text()


def test_a_finding_is_explained(run):
    for id, found in findings().items():
        result = run("explain", id)
        assert result.exit_code == 0
        for engine, finding in found:
            assert finding.scenario.rule in result.stdout
            assert f"replay {finding.file} {engine}=={finding.versions[-1]}" in result.stdout


def test_what_is_neither_is_refused_with_what_is_near(run):
    result = run("explain", "victim/unplanned")
    assert result.exit_code == 2
    assert "there is no rule or finding 'victim/unplanned'; near it: victim/unplan" in result.stderr
    assert run("explain").exit_code == 2
    assert run("explain", "F1", "--html", "page.html").exit_code == 2
    assert run("explain", "victim/unplan", "--html", "/nowhere/at/all.html").exit_code == 2
