"""`new-adapter DIR`: an adapter to start from, with its tests and its CI file, green from the first minute."""

from __future__ import annotations

import click


@click.command("new-adapter")
@click.argument("folder", metavar="DIR")
@click.option(
    "--stdio", is_flag=True, help="For a scheduler in another language than Python: a complete one in JavaScript."
)
def command(folder: str, stdio: bool) -> int:
    """Write into DIR a small scheduler that conforms, its adapter, tests that put faults into it, and a CI file.

    Put your own scheduler in its place; `pytest` in DIR says what that changes. Nothing that exists is overwritten.
    """
    from importlib.resources import as_file, files
    from pathlib import Path

    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.trace.errors import visible

    target = Path(folder)
    with as_file(files("preempt_oracle") / "scaffold" / ("stdio" if stdio else "python")) as source:
        found = sorted(p for p in source.rglob("*") if p.is_file() and p.suffix != ".pyc")
        written = [(p, target / p.relative_to(source)) for p in found]
        if there := next((to for _, to in written if to.exists() or to.is_symlink()), None):
            raise unusable(f"{there} exists: nothing was written")
        for file, to in written:
            try:
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(file.read_bytes())
            except OSError as e:
                raise unusable(f"{to}: {e.strerror or e}") from None
            click.echo(visible(str(to)))
    click.echo(f"Next: cd {visible(folder)} && pytest")
    return 0
