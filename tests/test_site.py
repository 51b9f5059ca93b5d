"""The documentation site: built without a complaint, whole in itself, and its links out of docs/ are told as paths."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
SITE = ROOT / "docs" / "site"
OUTSIDE = re.compile(r"""<(?:script|link|img|iframe)[^>]*(?:src|href)="?(?:https?:)?//|@import|url\((?:https?:)?//""")


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", SITE / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("see [rules](rules.md#versions)", "see [rules](rules.md#versions)"),
        ("[`drive.py`](../oracle/preempt_oracle/drive.py)", "`oracle/preempt_oracle/drive.py`"),
        ("[F1](../oracle/preempt_oracle/drive.py), [CONTRIBUTING](../CONTRIBUTING.md#x)",
         "F1 (`oracle/preempt_oracle/drive.py`), CONTRIBUTING (`CONTRIBUTING.md`)"),
        ("[gone](../oracle/no-such-file.py)", "[gone](../oracle/no-such-file.py)"),  # and the strict build fails
        ("[far](../../../etc/hosts)", "[far](../../../etc/hosts)"),
        ("[a](https://example.org) [b](#here)", "[a](https://example.org) [b](#here)"),
        ("```\n[x](../README.md)\n```", "```\n[x](../README.md)\n```"),
        ("[over a\nline](../README.md)", "over a\nline (`README.md`)"),
    ],
)  # fmt: skip
def test_a_link_out_of_the_documents_becomes_a_path(hooks, link, shown):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="page.md"))
    assert hooks.on_page_markdown(link, page=page) == shown


def test_links_of_a_folder_are_resolved_from_there(hooks):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="how-to/page.md"))
    assert hooks.on_page_markdown("[c](../../CONTRIBUTING.md) [d](../rules.md)", page=page) == (
        "c (`CONTRIBUTING.md`) [d](../rules.md)"
    )


@pytest.mark.long
def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(tmp_path):
    words = (
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(SITE / "mkdocs.yml"),
        "--site-dir",
        str(tmp_path),
    )
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))  # and one for what is not found
    for file in (*pages, *tmp_path.rglob("*.css")):
        assert not OUTSIDE.search(file.read_text(encoding="utf-8")), file
