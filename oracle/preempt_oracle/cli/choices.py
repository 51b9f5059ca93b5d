"""Options that several commands share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from preempt_oracle.known import Ledger

F = TypeVar("F", bound=Callable[..., Any])


def _policy(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    if name is not None:
        from preempt_spec.policies.profiles import PROFILES

        if name not in PROFILES:
            raise click.BadParameter(f"{name!r} is unknown; profiles are {', '.join(PROFILES)}")
    return name


SEED = click.IntRange(0, 2**53)
policy_option = click.option(
    "--policy", metavar="P", callback=_policy, help="The profile to judge by (see docs/profiles.md)."
)


def _spec(_: click.Context, __: click.Parameter, version: str | None) -> str:
    from preempt_spec import SPEC_VERSION, UnknownVersion, release

    if version is None:
        return SPEC_VERSION
    try:
        return release(version).version
    except UnknownVersion as e:
        raise click.BadParameter(str(e)) from None


spec_option = click.option(
    "--spec",
    metavar="X.Y",
    callback=_spec,
    help="Judge by this version of the specification [default: the newest]. Rules that came in later are left out; "
    "those that came in with X.Y itself, if it is a minor version, are advisory: shown, and no part of the verdict.",
)
known_option = click.option(
    "--known-failures",
    "known_file",
    metavar="FILE",
    help="Violations that FILE says are known count as expected (exit 0, if nothing else is wrong). They never make up "
    "for a rule that was not exercised, and nothing behind one is judged. An entry whose family was run and that no "
    "run shows any more is stale: exit 2, since the file, not the engine, is wrong.",
)
json_option = click.option(
    "--json", "json_file", metavar="FILE", help="Write the report as JSON too ('-': to standard output, and no text)."
)

junit_option = click.option(
    "--junit", "junit_file", metavar="FILE", help="Write a JUnit report, one test case per rule."
)

html_option = click.option(
    "--html", "html_file", metavar="FILE", help="Write one self-contained page: what broke, and a timeline."
)

github_option = click.option(
    "--github", is_flag=True, help="Annotations for GitHub Actions, and the summary of its step."
)


def ledger(known_file: str | None) -> Ledger | None:
    """The known failures of a file. Raises ClickException."""
    if known_file is None:
        return None
    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.known import KnownError, Ledger, load

    try:
        return Ledger(load(known_file))
    except KnownError as e:
        raise unusable(str(e)) from None


def silenced(*reports: str | None) -> bool:
    """Whether standard output is a report's. Raises ClickException for one that could not be written, or two there."""
    from preempt_oracle.cli.files import writable

    for file in reports:
        writable(file)
    if reports.count("-") > 1:
        raise click.UsageError("--junit and --json cannot both go to standard output")
    return "-" in reports


def random_seed() -> int:
    """A seed, where none was asked for: short enough to be typed again."""
    import secrets

    return secrets.randbelow(1_000_000)


def seconds(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """A duration, in seconds: `90`, `90s`, `2m`, `1h`."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|m|h)?", text)
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{text!r} is not a duration such as 90s, 2m or 1h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]


def _options(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, bool | int | float | str]:
    found: dict[str, bool | int | float | str] = {}
    for item in given:
        key, equals, text = item.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{item!r}: expected KEY=VALUE")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        found[key] = value if isinstance(value, bool | int | float | str) else text
    return found


def engine_options(command: F) -> F:
    """What names the engine to drive: ENGINE, or --adapter, or --stdio, and what goes with them."""
    for decorate in (
        click.option(
            "--option", "options", multiple=True, metavar="K=V", callback=_options, help="A setting of the adapter."
        ),
        click.option("--engine-python", metavar="PATH", help="A Python with ENGINE in it (a checkout): unverified."),
        click.option("--stdio", metavar="CMD", help="A command that speaks the adapter protocol, instead of ENGINE."),
        click.option("--adapter", metavar="MODULE:CLASS", help="A Python adapter in this process, instead of ENGINE."),
        click.argument("engine", required=False),
    ):
        command = decorate(command)
    return command
