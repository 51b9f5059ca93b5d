"""docs/cli.md: every command with its options, from the very objects that read a command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from preempt_oracle.cli.main import COMMANDS, cli
from preempt_oracle.report.rulebook import cell
from preempt_oracle.verdict import Verdict

NAME = "preempt-oracle"


def page() -> Iterator[str]:
    """The parts of the page, below its title."""
    yield (
        "`preempt-oracle --help` lists the commands, `preempt-oracle COMMAND --help` says what stands here. "
        "`--version` names the package and its specification; `--debug`, before the command, shows the traceback "
        "of an error."
    )
    yield "\n".join(["| command | what it does |", "|---|---|", *map(_row, COMMANDS)])
    yield "## Exit codes"
    yield "\n".join(["| code | verdict |", "|---|---|", *(f"| {v.exit_code} | {v.value} |" for v in Verdict)])
    yield (
        "2 is also a command line that cannot be understood, and 130 an interrupt that nothing else could be made of. "
        "Of several inputs the first of 3, 2, 1, 4, 0 that occurs. A command for which a code means something else "
        "says so below."
    )
    context = click.Context(cli, info_name=NAME)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        yield from _command(command, click.Context(command, context, info_name=name), "##")


def _row(name: str) -> str:
    return f"| [`{name}`](#{name}) | {cell(COMMANDS[name])} |"


def _command(command: click.Command, context: click.Context, level: str) -> Iterator[str]:
    yield f"{level} {context.command_path.removeprefix(f'{NAME} ')}"
    yield "\n".join(
        ["```text", " ".join(["Usage:", context.command_path, *command.collect_usage_pieces(context)]), "```"]
    )
    if command.help:
        yield prose(command.help)
    options = [p for p in command.get_params(context) if isinstance(p, click.Option) and "--help" not in p.opts]
    if options:
        yield "\n".join(["| option | what it says |", "|---|---|", *(_option(o, context) for o in options)])
    if command.epilog:
        yield prose(command.epilog)
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _command(inner, click.Context(inner, context, info_name=name), f"{level}#")


def prose(help: str) -> str:
    """The help of a command as Markdown: what click must not wrap stays as it is, the rest are paragraphs."""
    parts = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(help).replace("\f", "")):
        lines = part.strip().splitlines()
        if lines and lines[0].strip() == "\b":
            parts.append("\n".join(["```text", *lines[1:], "```"]))
        else:
            parts.append(text(" ".join(line.strip() for line in lines)))
    return "\n\n".join(parts)


def text(words: str) -> str:
    """Words of a help, none of which may become markup; what stands between backquotes is code there too."""
    pieces = re.split(r"(`[^`]*`)", words)
    return "".join(p if p.startswith("`") else re.sub(r"([\\*_<\[\]])", r"\\\1", p) for p in pieces)


def _option(option: click.Option, context: click.Context) -> str:
    # What click itself says in --help: metavar, default and choices included.
    record = option.get_help_record(context)
    assert record is not None
    name, help = record
    # A bar would end the cell, also inside of code.
    names = f"`{name}`" if "|" not in name else f"<code>{name.replace('|', '&#124;').replace('<', '&lt;')}</code>"
    return f"| {names} | {cell(text(help.replace('  ', ' ')))} |"
