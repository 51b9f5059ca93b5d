"""One self-contained file without any script: a cell leads to its panel by a link, and the style shows that one alone.

Its content security policy allows this very style, by hash, and nothing else.
"""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment

from preempt_oracle.report.matrix_page.sheet import Sheet
from preempt_oracle.report.timeline.page import hashed
from preempt_oracle.report.version import version


def page(sheet: Sheet) -> str:
    """The page."""
    here = files(__package__)
    style = here.joinpath("matrix.css").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(here.joinpath("matrix.html.j2").read_text(encoding="utf-8"))
    policy = f"default-src 'none'; style-src {hashed(style)}; base-uri 'none'; form-action 'none'"
    return template.render(sheet=sheet, style=style, policy=policy, version=version())
