"""The figures in docs/recording.md are those of the run that is kept."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parents[3]
BEGIN, END = "<!-- figures: bench/results/recorder.json -->\n", "<!-- /figures -->\n"


def test_the_page_says_what_was_measured():
    spec = importlib.util.spec_from_file_location("recorder_bench", ROOT / "bench" / "recorder.py")
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    kept = json.loads((ROOT / "bench" / "results" / "recorder.json").read_text())
    page = (ROOT / "docs" / "recording.md").read_text()
    assert page.partition(BEGIN)[2].partition(END)[0] == bench.page(kept)
    assert all(row["recorded_to_the_end"] for row in kept["rows"])
