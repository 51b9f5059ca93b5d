"""What MkDocs is told beyond its configuration: what becomes of links that leave docs/.

The pages are read in a checkout too, where they link to source files, vectors and CONTRIBUTING.md. Those are no part of
the site, and no public address of the repository is known that they could be linked to. So the site shows where such a
file is in a checkout, as code. A link to a file that does not exist stays as it is, and fails the strict build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: A link, unless inside of a code span; `[text](target)` without a scheme.
LINK = re.compile(r"\[([^\[\]]+)\]\((?![a-z]+:|#)([^()\s]+)\)")
FENCE = re.compile(r"^ {0,3}(```|~~~)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links out of docs/ become the path of what they lead to."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")
    inside = False
    lines = []
    for line in markdown.split("\n"):
        inside ^= bool(FENCE.match(line))
        lines.append(line if inside else LINK.sub(lambda m: told(m, folder), line))
    return "\n".join(lines)


def told(link: re.Match[str], folder: str) -> str:
    """One link as the site has it. `folder`: of the page, from the root of a checkout."""
    text, target = link[1], link[2]
    path = posixpath.normpath(posixpath.join(folder, target.partition("#")[0]))
    if path.startswith("docs/") or path.startswith("..") or not (ROOT / path).exists():
        return link[0]
    if text.strip("`") in (path, posixpath.basename(path)):
        return f"`{path}`"
    return f"{text} (`{path}`)"
