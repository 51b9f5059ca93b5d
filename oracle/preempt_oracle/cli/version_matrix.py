"""`matrix ENGINE` and `matrix all`: every version of one engine or of all, live; what was run before is kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from preempt_oracle.adapters.protocol import Transport
    from preempt_oracle.found import Finding
    from preempt_oracle.version_matrix import Wanted


ALL = "all"


def versions(
    engine: str,
    spec: str,
    json_file: str | None,
    html_file: str | None,
    *,
    versions: str | None,
    workloads: int | None,
    seed: int | None,
    results: str | None,
    fresh: bool,
    fuzz: float | None,
    page_file: str | None,
) -> int:
    """Run it, show it, write what was asked for. Returns the exit code. Raises ClickException."""
    from preempt_oracle import version_matrix as job
    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.cli.html import possible
    from preempt_oracle.engines.building import EnvironmentFailure
    from preempt_oracle.engines.environments import ENGINES, spec_of
    from preempt_oracle.found import listed
    from preempt_oracle.matrix import ExpectedError
    from preempt_oracle.report import engine_matrix
    from preempt_oracle.report import version_matrix as report
    from preempt_oracle.report.words import console
    from preempt_oracle.verdict import worst

    writable(json_file)
    possible(html_file)
    writable(page_file)
    names = tuple(ENGINES) if engine == ALL else (engine,)
    if engine == ALL and versions is not None:
        raise click.UsageError("--versions is for one engine")
    todo: list[tuple[list[Wanted], tuple[Finding, ...]]] = []  # of each engine; nothing is run before all was read
    for name in names:
        try:
            known, found = spec_of(name), listed(name)
        except (EnvironmentFailure, ExpectedError) as e:
            raise unusable(str(e)) from None
        chosen = _chosen(versions, known.versions)
        if page_file is not None and chosen != known.versions:
            raise click.UsageError("--page wants all versions")
        wanted = [
            job.Wanted(
                *(name, version, policy, job.SEED if seed is None else seed, workloads or job.WORKLOADS, spec),
                tuple(variant.items()),
                fuzz if fuzz and version == chosen[-1] else 0.0,
            )
            for version in chosen
            for policy in known.policies
            for variant in known.variants
        ]
        todo.append((wanted, found))
    keep, line, matrices = _folder(results), _Line(), []
    for wanted, found in todo:
        if fresh:
            for w in wanted:
                (keep / w.file).unlink(missing_ok=True)
        matrix = job.run(
            wanted, found, _start, keep, line.say, line.progress, lambda path, data: write(str(path), data)
        )
        matrices.append(matrix)
        if json_file != "-":
            report.show(console(), matrix)
        if matrix.interrupted:
            break
    if json_file is not None:
        write(json_file, engine_matrix.document(matrices) if engine == ALL else report.document(matrices[0]))
    if html_file is not None:
        from preempt_oracle.report.matrix_page.page import page
        from preempt_oracle.report.matrix_page.sheet import of_versions

        write(html_file, page(of_versions(matrices)).encode())
    if page_file is not None:
        ran = sum(row.result is not None for matrix in matrices for row in matrix.rows)
        if ran < sum(len(wanted) for wanted, _ in todo):
            raise unusable(f"{page_file} was not written: not every version was run")
        text = engine_matrix.page(matrices) if engine == ALL else report.page(matrices[0])
        write(page_file, text.encode())
    return worst(m.verdict for m in matrices).exit_code


def _chosen(given: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """The versions asked for, oldest first. Raises ClickException for one that is not listed."""
    from preempt_oracle.cli.errors import unusable

    if given is None:
        return known
    asked = [v.strip() for v in given.split(",") if v.strip()]
    unknown = [v for v in asked if v not in known]
    if unknown or not asked:
        raise unusable(f"--versions: {unknown[0] if unknown else 'none'!r} is none of {', '.join(known)}")
    return tuple(v for v in known if v in asked)


def _folder(results: str | None) -> Path:
    """Where results are kept, made if it is not there. Raises ClickException."""
    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.engines.building import EnvironmentFailure, root

    try:
        folder = root().parent / "matrix" if results is None else Path(results)
        folder.mkdir(parents=True, exist_ok=True)
    except EnvironmentFailure as e:
        raise unusable(str(e)) from None
    except OSError as e:
        raise unusable(f"cannot make the folder {results or 'of results'}: {e.strerror}") from None
    return folder


def _start(wanted: Wanted) -> Transport:
    """The adapter of an installed version. Raises HarnessError."""
    from preempt_oracle.adapters.protocol import HarnessError
    from preempt_oracle.adapters.stdio import Stdio
    from preempt_oracle.engines.environments import ready

    label = f"{wanted.engine}=={wanted.version}"
    found = ready(wanted.engine, wanted.version)
    if found is None:
        raise HarnessError(f"{label} is not installed: preempt-oracle engines install {label}")
    return Stdio(found.command, label, env=found.env)


class _Line:
    """Progress on standard error: a line per row, and within a row one that is rewritten, if that is a terminal."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._shown = -1.0

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._shown >= 0:
            sys.stderr.write("\r\x1b[K")
            self._shown = -1.0
        click.echo(text, err=True)

    def progress(self, workloads: int, seconds: float, broken: int) -> None:
        """How far a row is."""
        if self._live and (self._shown < 0 or seconds - self._shown > 0.2):
            self._shown = seconds
            sys.stderr.write(f"\r\x1b[K  {workloads} workloads, {seconds:.0f} s, {broken} rules broken")
            sys.stderr.flush()
