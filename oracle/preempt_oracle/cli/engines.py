"""`engines list` and `engines install`: the environments of engines under test."""

from __future__ import annotations

import shlex

import click


@click.group("engines")
def command() -> None:
    """List and install engines under test."""


@command.command("list")
def listed() -> int:
    """Every engine and version there is an adapter for, and whatever else is installed."""
    from rich import box
    from rich.table import Table

    from preempt_oracle.engines.environments import ENGINES, listing
    from preempt_oracle.report.words import console, safe

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("engine", "state", "adapter", "policies", "size"):
        table.add_column(name, no_wrap=name not in ("policies", "size"))
    for row in listing():
        policies = ", ".join(ENGINES[row.name].policies)
        table.add_row(f"{row.name}=={safe(row.version, 60)}", row.state, row.standing, policies, row.size)
    out = console()
    out.print(table)
    out.print("\nInstall one with: preempt-oracle engines install NAME==VERSION", soft_wrap=True)
    return 0


@command.command("install")
@click.argument("engine", metavar="NAME[==VERSION]")
@click.option("--pip-args", metavar="ARGS", default="", help="Further arguments for pip, such as '--index-url URL'.")
def install_one(engine: str, pip_args: str) -> int:
    """Install an engine into its own folder of the cache directory, for this Python; quick if it is there."""
    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.engines.building import EnvironmentFailure
    from preempt_oracle.engines.environments import install, requirement

    try:
        arguments = shlex.split(pip_args)
    except ValueError as e:
        raise unusable(f"--pip-args: {e}") from None
    try:
        name, version = requirement(engine)
    except EnvironmentFailure as e:
        raise unusable(str(e)) from None
    install(name, version, arguments, lambda line: click.echo(line, err=True))
    return 0
