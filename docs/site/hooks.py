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
#: A link `[text](target)` without a scheme.
LINK = re.compile(r"\[([^\[\]]+)\]\((?![a-z]+:|#)([^()\s]+)\)")
FENCE = re.compile(r"(^ {0,3}(?:```|~~~).*?^ {0,3}(?:```|~~~)[^\n]*$)", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links out of docs/ become the path of what they lead to."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")
    # Every other part is a block of code; a link may go over the end of a line.
    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(lambda m: told(m, folder), part) for part in parts[::2]]
    return "".join(parts)


def told(link: re.Match[str], folder: str) -> str:
    """One link as the site has it. `folder`: of the page, from the root of a checkout."""
    text, target = link[1], link[2]
    path = posixpath.normpath(posixpath.join(folder, target.partition("#")[0]))
    if path.startswith("docs/") or path.startswith("..") or not (ROOT / path).exists():
        return link[0]
    if text.strip("`") in (path, posixpath.basename(path)):
        return f"`{path}`"
    return f"{text} (`{path}`)"
