"""Generated documents: renewed, and found stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from preempt_oracle import docs
from preempt_spec.events import OBSERVABLE
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import RULES


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "README.md").write_text("before\n<!-- generated: exit-codes -->\nold\n<!-- /generated -->\nafter\n")
    return tmp_path


@pytest.mark.long
def test_stale_documents_are_found_renewed_and_then_current(checkout, capsys):
    assert docs.main(["--check"], checkout) == 1
    assert "docs/rules.md is stale" in capsys.readouterr().out
    assert docs.main([], checkout) == 0
    assert docs.main(["--check"], checkout) == 0
    readme = (checkout / "README.md").read_text()
    assert readme.startswith("before\n<!-- generated: exit-codes -->\n| code | verdict |\n")
    assert readme.endswith("<!-- /generated -->\nafter\n")
    assert "old" not in readme


def test_every_rule_profile_observation_and_event_is_there(checkout):
    docs.main([], checkout)
    rules = (checkout / "docs" / "rules.md").read_text()
    assert all(f"### {r.id}\n\n**{r.kind.value}.** {r.sentence}" in rules for r in RULES.values())
    assert all(f"| `{name}` |" in rules for name in OBSERVABLE)
    profiles = (checkout / "docs" / "profiles.md").read_text()
    assert all(f"## {name}\n" in profiles for name in PROFILES)
    assert all(d.why in profiles for p in PROFILES.values() for d in p.deviations)
    table = docs.trace_table()
    assert all(f"| `{name}` |" in table for name in ("header", "step", "copy_start", "footer", "demote", "unfence"))
    assert "`request`, `prompt`, `max_tokens`, `priority`?, `arrival`?, `salt`?" in table


def test_an_unknown_block_and_a_wrong_place_are_said(checkout, tmp_path, capsys):
    (checkout / "README.md").write_text("<!-- generated: nonsense -->\n<!-- /generated -->\n")
    with pytest.raises(SystemExit, match="no generated block is called nonsense"):
        docs.main([], checkout)
    assert docs.main([], tmp_path / "elsewhere") == 2
    assert docs.main(["--what"], checkout) == 2
