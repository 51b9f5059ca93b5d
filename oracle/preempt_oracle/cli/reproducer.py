"""What `fuzz` writes for a failure: the scenario, the trace of its run, and a test that fails as long as it does."""

from __future__ import annotations

import re
from pathlib import Path

from preempt_oracle.campaign import Origin
from preempt_oracle.cli.files import write
from preempt_oracle.cli.scenarios import save
from preempt_oracle.cli.target import Target
from preempt_oracle.drive import Run
from preempt_oracle.reduce import Reduced
from preempt_oracle.trace.errors import visible
from preempt_oracle.trace.writer import create
from preempt_spec.rules import RULES, Violation

TEST = '''\
"""{title}

{sentence}
Written by `preempt-oracle fuzz`: it fails as long as the scheduler does. `pytest {test}` runs it.
"""

from pathlib import Path

from preempt_oracle.reproduce import holds


def test_{name}():
    holds(Path(__file__).with_name({scenario!r}){how})
'''


def reproducer(
    folder: str, target: Target, violation: Violation, reduced: Reduced, origin: Origin, run: Run
) -> tuple[list[str], str]:
    """Write all three. Returns the files, the scenario first, and the command to replay. Raises ClickException."""
    file, command = save(folder, target, violation, reduced, origin, run)
    stem = Path(file).stem
    trace = str(Path(folder) / f"{stem}.jsonl")
    with create(trace, run.header) as out:
        for event in run.events:
            out.write(event)
    name = re.sub(r"[^A-Za-z0-9]+", "_", stem).strip("_").lower()
    test = str(Path(folder) / f"test_{name}.py")
    rule = RULES[violation.rule]
    text = TEST.format(
        title=_quoted(f"{rule.id} on {visible(target.label, 200)}: {visible(violation.message, 300)}."),
        sentence=_quoted(f"{rule.id}: {rule.sentence}"),
        test=Path(test).name,
        name=name,
        scenario=Path(file).name,
        how=_how(target),
    )
    write(test, text.encode())
    return [file, trace, test], command


def _how(target: Target) -> str:
    """The arguments of `holds` that name the engine."""
    words = list(target.words)
    if target.key:
        return f", {target.key!r}"  # the options are in the scenario
    if words[0].startswith("--"):
        return f", {words[0].removeprefix('--')}={words[1]!r}"
    return f", {words[0]!r}, engine_python={words[2]!r}"


def _quoted(text: str) -> str:
    """Inside of a docstring."""
    return text.replace("\\", "\\\\").replace('"', "'")
