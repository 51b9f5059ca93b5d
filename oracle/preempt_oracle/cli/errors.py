"""What an error means: its message and its exit code. No traceback unless `--debug` asks for it."""

from __future__ import annotations

import click

from preempt_oracle.trace.errors import TraceError, visible

USAGE = 2
BROKEN = 3


class Missing(Exception):
    """The engine is known and not installed. The message names the command that installs it."""


def explain(error: Exception) -> tuple[str, int]:
    """A message that is safe to print, and an exit code."""
    # Only now: most commands end without an error, and `check` needs none of these.
    from preempt_oracle.adapters.protocol import HarnessError
    from preempt_oracle.campaign import NoStart
    from preempt_oracle.cost.errors import CostInputError
    from preempt_oracle.engines.building import EnvironmentFailure
    from preempt_oracle.verdict import UnknownPolicy
    from preempt_properties.scenario import ScenarioError

    match error:
        case TraceError() | CostInputError():
            return str(error), USAGE
        case ScenarioError() | UnknownPolicy() | Missing():
            return lines(str(error)), USAGE
        case NoStart():
            return f"the engine refuses every small configuration: {lines(str(error))}", USAGE
        case HarnessError() | EnvironmentFailure():
            return lines(str(error)), BROKEN
        case ModuleNotFoundError() if error.name and error.name.split(".")[0] in EXTRAS:
            extra = EXTRAS[error.name.split(".")[0]]
            return f"this needs an extra: pip install 'preempt-oracle[{extra}]'", USAGE
        case OSError():
            name = f"{visible(str(error.filename), 300)}: " if error.filename else ""
            return f"{name}{error.strerror or error}", USAGE
    what = f"{type(error).__name__}: {lines(str(error))[:400]}"
    return f"this is a fault of preempt-oracle, please report it: {what} (--debug shows where)", BROKEN


#: Third-party package -> the extra that brings it.
EXTRAS = {"hypothesis": "properties", "z3": "properties", "jinja2": "report", "matplotlib": "report"}


def lines(text: str) -> str:
    """Every line made safe on its own: the end of an engine's stderr comes in several."""
    return "\n".join(visible(line, 600) for line in text.splitlines())


def unusable(message: str) -> click.ClickException:
    """Something the user must do otherwise: exit 2."""
    return click.ClickException(visible(message, 600))
