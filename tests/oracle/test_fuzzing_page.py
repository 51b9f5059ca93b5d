"""docs/fuzzing.md says what is so: its output is what the command prints, its figures are the measured ones.

`python tests/oracle/test_fuzzing_page.py` writes both anew.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "fuzzing.md"
WORDS = ("fuzz", "--adapter", "faulty_scheduler:Faulty", "--workloads", "40", "--seed", "1")
SHOWN = re.compile(r"(<!-- (output|file|figures)[^>]*-->\n)(.*?)(<!-- end -->)", re.S)


def outputs() -> tuple[str, str]:
    """What the command prints, up to the table of rules, and the scenario that it writes."""
    env = {k: v for k, v in os.environ.items() if k != "COLUMNS"}  # as in a pipe, whoever runs the tests
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "examples"), *filter(None, [env.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "preempt_oracle", *WORDS], cwd=folder, env=env, capture_output=True, text=True
        )
        assert done.returncode == 1, done.stdout + done.stderr
        (scenario,) = Path(folder).glob("*/*.toml")
        text = "\n".join(line.rstrip() for line in done.stdout.splitlines())
        return text.partition("\n\nrule  ")[0] + "\n", scenario.read_text()


def figures() -> str:
    """The measured ones, as a table."""
    fuzz = json.loads((ROOT / "bench/results/fuzz.json").read_text())
    short = json.loads((ROOT / "bench/results/shortest.json").read_text())
    rows = [(row["what"], row["amount"], row["unit"]) for row in fuzz["rows"]]
    rows += [
        (f"known-bad schedulers minimised, of {short['variants']}", short["minimised"], "schedulers"),
        ("… actions, median", short["median actions"], "actions"),
        ("… actions, most", short["most actions"], "actions"),
        ("… time, median", short["median CPU s"], "s"),
        ("… time, most", short["worst CPU s"], "s"),
        ("… shortest in the stated bounds", short["shortest in stated bounds"], "schedulers"),
        ("… locally minimal", short["locally minimal"], "schedulers"),
        ("… given up", short["given up"], "schedulers"),
    ]
    told = [f"| {what} | {amount:,.0f} {unit} |" if amount >= 10 else f"| {what} | {amount:.2g} {unit} |"
            for what, amount, unit in rows]  # fmt: skip
    return "\n".join(["| what | how much |", "|---|---|", *told]) + "\n"


def timeless(text: str) -> str:
    return re.sub(r"[0-9.]+ s \([0-9,]+ a second\)|after [0-9.]+ s", "…", text)


def shown() -> dict[str, str]:
    return {m[2]: m[3].removeprefix("```text\n").removesuffix("```\n") for m in SHOWN.finditer(PAGE.read_text())}


@pytest.mark.long
def test_the_page_shows_what_the_command_prints_and_writes():
    printed, scenario = outputs()
    page = shown()
    assert timeless(page["output"]) == timeless(printed)
    assert page["file"] == scenario


def test_the_page_has_the_measured_figures():
    assert shown()["figures"] == figures()


def test_every_link_of_the_page_leads_somewhere():
    links = re.findall(r"\]\((?!https?:)([^)#]+)", PAGE.read_text())
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []


if __name__ == "__main__":
    printed, scenario = outputs()
    anew = {"output": f"```text\n{printed}```\n", "file": f"```text\n{scenario}```\n", "figures": figures()}
    PAGE.write_text(SHOWN.sub(lambda m: m[1] + anew[m[2]] + m[4], PAGE.read_text()))
