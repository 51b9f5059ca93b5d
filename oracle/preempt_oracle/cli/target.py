"""Which engine a command drives, and how to reach it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

import click
from attrs import field, frozen

from preempt_oracle.adapters.inprocess import InProcess, load
from preempt_oracle.adapters.protocol import Refused, Session, Transport
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.cli.errors import Missing, unusable
from preempt_oracle.drive import Run, drive
from preempt_oracle.engines.building import EnvironmentFailure
from preempt_oracle.engines.environments import ENGINES, checkout, ready, requirement, spec_of
from preempt_properties.scenario import Option, Scenario
from preempt_spec import SPEC_VERSION

REFERENCE = "reference"
PATIENCE = 60.0  # seconds, of a process; an adapter in this process is only hurried where that is asked for
DEFAULT_POLICY = "vllm-fcfs"  # of an adapter that nobody here knows


@frozen
class Target:
    """An engine to drive."""

    label: str  # what reports call it
    key: str  # what a scenario file names it; "" if only a command line can
    words: tuple[str, ...]  # how a command line names it
    policies: tuple[str, ...]  # the first is the default
    options: Mapping[str, Option]
    _transport: Callable[[], Transport] = field(repr=False)

    def connect(self) -> Session:
        """A new session. Raises HarnessError."""
        return Session(self._transport(), self.options)

    def run(self, scenario: Scenario, spec: str = SPEC_VERSION) -> Run:
        """One scenario in a session of its own. Raises HarnessError; ClickException if the engine refuses it."""
        session = self.connect()
        try:
            run = drive(session, scenario, spec=spec)
        finally:
            session.close()
        if isinstance(run, Refused):
            raise unusable(f"{self.label} refuses this scenario: it is out of contract: {run.reason}")
        return run

    def policy(self, wanted: str | None) -> str:
        """The policy to drive it under. Raises ClickException if the engine has no such policy, or any."""
        if wanted is None and self.label == REFERENCE:
            raise click.UsageError("the reference scheduler follows any policy: --policy is needed")
        if wanted is None:
            return self.policies[0]
        if wanted not in self.policies:
            raise unusable(f"{self.label} has no policy {wanted}; it has {', '.join(self.policies)}")
        return wanted

    def command(self, *words: str) -> str:
        """A command line that drives it."""
        options = [w for k, v in self.options.items() for w in ("--option", f"{k}={_word(v)}")]
        return shlex.join(["preempt-oracle", *words, *self.words, *options])


def _word(value: Option) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def target(
    engine: str | None,
    adapter: str | None = None,
    stdio: str | None = None,
    engine_python: str | None = None,
    options: Mapping[str, Option] | None = None,
    patience: float | None = None,
) -> Target:
    """The target of a command line. `patience`: seconds a reply may take. Raises Missing, ClickException."""
    from preempt_spec.policies.profiles import PROFILES

    given = [x for x in (engine, adapter, stdio) if x is not None]
    if len(given) != 1:
        raise unusable("name one engine: ENGINE, --adapter MODULE:CLASS or --stdio CMD")
    options = options or {}
    later = PATIENCE if patience is None else patience
    if engine_python is not None and engine is None:
        raise unusable("--engine-python goes with ENGINE")
    everything = (DEFAULT_POLICY, *(p for p in PROFILES if p != DEFAULT_POLICY))
    if adapter is not None:
        if not re.fullmatch(r"[\w.]+:\w+", adapter):
            raise unusable(f"--adapter {adapter!r}: expected MODULE:CLASS")
        return Target(adapter, "", ("--adapter", adapter), everything, options, lambda: load(adapter, patience))
    if stdio is not None:
        try:
            words = shlex.split(stdio)
        except ValueError as e:
            raise unusable(f"--stdio: {e}") from None
        if not words:
            raise unusable("--stdio: the command is empty")
        name = f"`{stdio}`"
        return Target(stdio, "", ("--stdio", stdio), everything, options, lambda: Stdio(words, name, patience=later))
    assert engine is not None
    if engine == REFERENCE:

        def reference() -> InProcess:
            return InProcess(ReferenceEngine(), REFERENCE, ReferenceEngine.package)

        return Target(REFERENCE, REFERENCE, (REFERENCE,), everything, options, reference)
    return _environment(engine, engine_python, options, later)


def _environment(engine: str, engine_python: str | None, options: Mapping[str, Option], patience: float) -> Target:
    try:
        if engine_python is not None:
            name = engine.partition("==")[0]
            found = checkout(name, engine_python)
            label, key = f"{name} (unverified)", ""
            words: tuple[str, ...] = (name, "--engine-python", engine_python)
        else:
            if engine.partition("==")[0].strip() not in ENGINES:
                raise unusable(f"unknown engine {engine!r}; known: {', '.join((*ENGINES, REFERENCE))}")
            name, version = requirement(engine)
            label = key = f"{name}=={version}"
            words = (key,)
            ready_one = ready(name, version)
            if ready_one is None:
                raise Missing(f"{label} is not installed: preempt-oracle engines install {label}")
            found = ready_one
    except EnvironmentFailure as e:
        raise unusable(str(e)) from None

    def start() -> Stdio:
        return Stdio(found.command, label, env=found.env, patience=patience)

    return Target(label, key, words, spec_of(name).policies, options, start)
