"""`--github`: annotations on standard output, and the step's summary where the runner wants it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from preempt_oracle.report.judged import Judged


def tell(inputs: Sequence[Judged]) -> None:
    """Print the annotations; append the summary to the file that $GITHUB_STEP_SUMMARY names. Raises ClickException."""
    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.report.github import notes, summary

    for line in notes(inputs):
        click.echo(line)
    if file := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(file).open("a", encoding="utf-8") as out:
                out.write(summary(inputs))
        except OSError as e:
            raise unusable(f"{file}: {e.strerror}") from None
