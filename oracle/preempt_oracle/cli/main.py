"""`preempt-oracle`: the group of commands, and the one place where errors become exit codes.

A start must be quick, and `--help` needs none of what the commands need: what each does is said here in a line, and its
module is imported when it runs.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import click

#: Command -> what it does. Its module in this package has its name, with a click command `command` in it.
COMMANDS = {
    "check": "Judge recorded traces.",
    "conform": "Drive an engine's scheduler through generated workloads and judge it.",
    "fuzz": "Search for a workload that breaks a rule, and make it as short as it can be.",
    "diff": "Show the first step in which two engines, or two versions, part.",
    "infer": "Find out which policy an engine follows, knob by knob.",
    "lockstep": "Predict a vLLM scheduler exactly, step by step, and show where it does otherwise.",
    "record": "Write the trace of one workload.",
    "replay": "Run one scenario and show its steps.",
    "smoke": "Start an engine and say what can be observed of it.",
    "content": "Run an engine's model under pressure: is KV that comes back what went out?",
    "rules": "List the rules of the specification, or explain one.",
    "explain": "Explain a rule or a finding, with the shortest run that shows it.",
    "new-adapter": "Write an adapter for a new scheduler, with its tests and CI.",
    "engines": "List and install engines under test.",
    "cost": "Swap or recompute: break-even, regime map, comparison of models.",
    "prove": "Prove the theorems of the cost model on the functions that are shipped.",
    "zoo": "Search for every known fault in a scheduler that has it: the kill matrix.",
    "matrix": "Check the shipped traces and drive the light engines: the main job.",
}

INTERRUPTED = 130
PIPE_CLOSED = 141
EXITS = """\b
Exit codes: 0 conforms, but for known failures if so said; 1 violates; 2 usage, unreadable input or stale known
failures; 3 harness broken; 4 inconclusive.
Of several inputs the first of 3, 2, 1, 4, 0 that occurs."""


class Commands(click.Group):
    """The commands, imported when used; every error turned into a message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of their use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one."""
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"preempt_oracle.cli.{cmd_name.replace('-', '_')}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `--help`, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; output that nobody reads any more must not look like a verdict."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            # What is still buffered has nowhere to go; the interpreter would complain about it at its end.
            _silence()
            ctx.exit(PIPE_CLOSED)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Run, and exit with the code that says how it went."""
        extra["standalone_mode"] = False
        debug = "--debug" in (sys.argv[1:] if args is None else args)
        try:
            code = super().main(args, *rest, **extra)
        except click.Abort:
            _say("interrupted")
            code = INTERRUPTED
        except click.ClickException as e:
            e.show()
            code = 2
        except Exception as e:
            from preempt_oracle.cli.errors import explain

            message, code = explain(e)
            if debug:
                import traceback

                traceback.print_exception(e)
            _say(message)
        sys.exit(code if isinstance(code, int) else 0)


def _say(message: str) -> None:
    try:
        click.echo(f"preempt-oracle: {message}", err=True)
    except OSError:  # nobody reads errors either
        _silence()


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from preempt_oracle.report.version import version
        from preempt_spec import SPEC_VERSION

        click.echo(f"preempt-oracle {version()}, specification {SPEC_VERSION}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXITS)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Say what this is.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def cli() -> None:
    """Judge how LLM serving engines preempt: rule by rule, from traces or live."""


def main() -> NoReturn:
    """The entry point."""
    for name in ("SIGTERM", "SIGHUP"):
        # An exception instead of a sudden death, so that the processes of engines are ended too.
        signal.signal(getattr(signal, name), _terminated)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that cannot show a character gets its code, not an error.
            stream.reconfigure(errors="backslashreplace")
    cli.main()


def _terminated(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)
