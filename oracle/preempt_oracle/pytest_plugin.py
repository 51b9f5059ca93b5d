"""The conformance suite inside of pytest: one test per rule and family of scenarios.

    pytest --preempt-adapter module:Class --preempt-policy vllm-fcfs

pytest loads this in every run of every project beside which preempt-oracle is installed: nothing heavy may be imported
before one of its options is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from preempt_oracle.known import Line
    from preempt_oracle.suite import Suite
    from preempt_oracle.verdict import Failure

ROOT = "preempt"  # what the ids of these tests begin with


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options. Those that name a scheduler are the command line's: `conform --help` has them too."""
    group = parser.getgroup("preempt-oracle", "conformance of a scheduler (preempt-oracle)")
    group.addoption("--preempt-adapter", metavar="MODULE:CLASS", help="drive the scheduler behind this Python adapter")
    group.addoption("--preempt-stdio", metavar="CMD", help="drive the scheduler behind a command that speaks stdio")
    group.addoption("--preempt-engine", metavar="NAME==VERSION", help="drive an engine that preempt-oracle knows")
    group.addoption("--preempt-policy", metavar="P", help="judge by this profile [the scheduler's first]")
    group.addoption("--preempt-workloads", metavar="N", type=_from(1), default=100, help="of each family [100]")
    group.addoption("--preempt-seed", metavar="N", type=_from(0), default=0, help="of the first workload [0]")
    group.addoption("--preempt-known-failures", metavar="FILE", help="violations that are known: expected failures")
    group.addoption(
        "--preempt-save", metavar="DIR", default="preempt-oracle-failures", help="where shortened scenarios are written"
    )


def _from(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if (found := int(text)) < least:
            raise ValueError(text)
        return found

    return number


def pytest_configure(config: pytest.Config) -> None:
    """Look at the options."""
    config.addinivalue_line("markers", f"{ROOT}: a rule of preempt-oracle, put to a scheduler")


def pytest_report_header(config: pytest.Config) -> str | None:
    """What is driven, and with which seed."""
    if not (named := _named(config)):
        return None
    options = config.option
    policy, number = options.preempt_policy or "its first policy", options.preempt_workloads
    return f"preempt-oracle: {named}, {policy}, seed {options.preempt_seed}, {number} workloads a family"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the tests, before -k and -m look at them; not to a run that names single tests."""
    if _named(config) and not any("::" in arg for arg in config.args):
        found = Conformance.from_parent(session, name=ROOT, suite=_suite(config))
        tests = found.collect()
        items += tests
        # So that "collected N items" counts them.
        config.hook.pytest_collectreport(report=pytest.CollectReport(found.nodeid, "passed", None, [*tests]))


def _named(config: pytest.Config) -> str:
    options = config.option
    return options.preempt_adapter or options.preempt_stdio or options.preempt_engine or ""


def _suite(config: pytest.Config) -> Suite:
    """The suite that the options ask for. Raises UsageError."""
    import click

    from preempt_oracle.cli.choices import ledger
    from preempt_oracle.cli.errors import explain
    from preempt_oracle.cli.scenarios import save
    from preempt_oracle.cli.target import PATIENCE, target
    from preempt_oracle.known import Ledger
    from preempt_oracle.suite import Suite

    options = config.option
    try:
        found = target(options.preempt_engine, options.preempt_adapter, options.preempt_stdio, patience=PATIENCE)
        known = ledger(options.preempt_known_failures) or Ledger(())
        return Suite(
            found.connect,
            found.policy(options.preempt_policy),
            options.preempt_seed,
            options.preempt_workloads,
            known,
            lambda *failure: save(options.preempt_save, found, *failure),
        )
    except click.ClickException as error:
        raise pytest.UsageError(f"preempt-oracle: {error.message}") from None
    except Exception as error:
        raise pytest.UsageError(f"preempt-oracle: {explain(error)[0]}") from None


class Conformance(pytest.Collector):
    """All tests of one scheduler."""

    def __init__(self, suite: Suite, **rest: Any) -> None:
        super().__init__(**rest)
        self.suite = suite
        self.add_marker(getattr(pytest.mark, ROOT))

    def collect(self) -> list[pytest.Item]:
        """In the order of the specification; what needs all families comes last."""
        return list(self._tests())

    def _tests(self) -> Iterator[pytest.Item]:
        from preempt_spec.rules import RULES

        suite = self.suite
        for family in suite.families:
            for rule in RULES:
                if rule in suite.rules:
                    yield Held.from_parent(self, name=f"{rule}[{family}]", suite=suite, rule=rule, family=family)
        for rule in RULES:
            if rule not in suite.rules:
                yield Unseen.from_parent(self, name=rule, rule=rule)
        yield Conclusive.from_parent(self, name="conclusive", suite=suite)
        for line in suite.known.lines:
            yield Kept.from_parent(self, name=f"known[{line.entry.place} {line.rule}]", suite=suite, line=line)


class Broken(Exception):
    """A rule was broken, or nothing can be said: the message is all there is to show."""


class _Test(pytest.Item):
    def reportinfo(self) -> tuple[str, None, str]:
        """There is no file."""
        return ROOT, None, f"{ROOT}: {self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """No traceback of ours for what the scheduler did."""
        from preempt_oracle.adapters.protocol import HarnessError

        if isinstance(excinfo.value, Broken):
            return str(excinfo.value)
        if isinstance(excinfo.value, HarnessError):
            return f"harness broken: {excinfo.value}"
        return super().repr_failure(excinfo, style)


class Held(_Test):
    """A rule, in the workloads of one family."""

    def __init__(self, suite: Suite, rule: str, family: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.suite, self.rule, self.family = suite, rule, family

    def runtest(self) -> None:
        """Fails if it was broken, is skipped if it was not put to the test."""
        tally = self.suite.ran(self.family).tally
        seen = [f for f in tally.failures if f.violation.rule == self.rule]
        if tally.times[self.rule]:
            raise Broken(_shown(next(f for f in seen if not f.known and not f.advisory), tally.times[self.rule]))
        if tally.known[self.rule]:
            pytest.xfail("known: " + next(f.known for f in seen if f.known))
        if tally.advised[self.rule]:
            pytest.xfail(f"advisory: {next(f for f in seen if f.advisory).violation.message}")
        if not tally.exercised[self.rule]:
            pytest.skip(f"not exercised in {tally.runs} workloads of the family {self.family}")


class Unseen(_Test):
    """A rule that the scheduler does not let us observe."""

    def __init__(self, rule: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.rule = rule

    def runtest(self) -> None:
        """Skipped, and not passed."""
        pytest.skip("not observable: the adapter does not declare what the rule looks at")


class Conclusive(_Test):
    """Whether all families together show enough for a verdict."""

    def __init__(self, suite: Suite, **rest: Any) -> None:
        super().__init__(**rest)
        self.suite = suite

    def runtest(self) -> None:
        """Fails where `conform` would say `inconclusive`; of a scheduler that breaks rules there is nothing to say."""
        tally = self.suite.all()
        if tally.times:
            pytest.skip(f"rules are broken: {', '.join(sorted(tally.times))}")
        if missing := tally.missing:
            raise Broken("inconclusive: nothing was seen broken, but\n" + "\n".join(f"  {what}" for what in missing))


class Kept(_Test):
    """An entry of the known failures, for one of its rules: not stale."""

    def __init__(self, suite: Suite, line: Line, **rest: Any) -> None:
        super().__init__(**rest)
        self.suite, self.place = suite, (line.entry.place, line.rule)

    def runtest(self) -> None:
        """Fails if runs of its family did not show it."""
        self.suite.all()
        line = next(line for line in self.suite.known.lines if (line.entry.place, line.rule) == self.place)
        if line.stale:
            raise Broken(str(line))


def _shown(failure: Failure, times: int) -> str:
    from io import StringIO

    from preempt_oracle.report.failure import show_failure
    from preempt_oracle.report.words import console

    text = StringIO()
    show_failure(console(text), failure, times)
    return text.getvalue().rstrip()
