"""docs/cost.md: its theorems exist, its outputs are printed, its figures are drawn, the numbers in its prose hold."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from fractions import Fraction as Q
from pathlib import Path

import pytest

from preempt_oracle import docs
from preempt_oracle.cost.answer import answer
from preempt_oracle.cost.question import Given, question
from preempt_oracle.cost.registry import find_curve
from preempt_oracle.report import cost_page
from preempt_oracle.report.cost_figures import FIGURES, drawn, naive
from preempt_properties.theorems import THEOREMS, Kind
from preempt_spec.cost.fit import nearest_affine

PAGE = docs.ROOT / "docs" / "cost.md"
TEXT = PAGE.read_text(encoding="utf-8")
LINK = Given(accelerator="h100-sxm", bandwidth="50GB/s")
#: The page without what is generated.
PROSE = docs.MARK.sub("", TEXT)


def test_every_theorem_that_is_named_exists():
    families = {t.family for t in THEOREMS.values()}
    numbered = re.compile(r"[a-z-]+/[a-z][0-9]+[a-z]?-")  # an id of a family that is gone is one too
    words = re.findall(r"`([a-z-]+/[a-z0-9.-]+)`", TEXT)
    named = [x for x in words if x.partition("/")[0] in families or numbered.match(x)]
    assert len(named) > 60
    assert [x for x in named if x not in THEOREMS] == []
    assert families == {x.partition("/")[0] for x in named}, "a family that the page says nothing of"


def test_prose_names_only_what_is_so():
    named = re.findall(r"`([a-z-]+/[a-z0-9.-]+)`", PROSE)
    assert [x for x in named if x in THEOREMS and THEOREMS[x].kind is Kind.FALSE] == []


def test_every_false_theorem_is_among_the_rules_of_thumb():
    table = cost_page.rules_of_thumb()
    for theorem in THEOREMS.values():
        if theorem.kind is Kind.FALSE:
            assert f"| {theorem.sentence} |" in table
            assert f"| `{theorem.id}` |" in table


@pytest.mark.long
def test_the_page_and_its_figures_are_as_generated():
    assert docs.filled(TEXT, PAGE.name) == TEXT
    for name, text in drawn():
        assert docs.current(PAGE.parent / "figures" / name, text, docs.ROOT)


def test_figures_are_compared_by_bytes_if_drawn_by_the_pinned_library_and_else_by_their_data(tmp_path, monkeypatch):
    file, text = tmp_path / "f.svg", FIGURES["bandwidth-by-copy-size.svg"]()
    (tmp_path / "constraints.txt").write_text("matplotlib==1.2.3\n")
    look, other = text.replace("<path ", "<path  "), text.replace("<dc:identifier>data: ", "<dc:identifier>data: 0")
    for version, held, same in (
        ("1.2.3", text, True), ("1.2.3", look, False), ("1.2.3", other, False), ("1.2.3", "", False),
        ("1.2.4", text, True), ("1.2.4", look, True), ("1.2.4", other, False), ("1.2.4", "", False),
    ):  # fmt: skip
        monkeypatch.setattr("preempt_oracle.report.figure.VERSION", version)
        file.write_text(held, encoding="utf-8")
        assert docs.current(file, text, tmp_path) is same
    file.unlink()
    assert not docs.current(file, text, tmp_path)


def test_every_output_is_that_of_a_command_that_is_run():
    assert "$ preempt-oracle" not in PROSE
    assert set(cost_page.BLOCKS) == {name for _, name, _, _ in docs.MARK.findall(TEXT)}
    assert len(re.findall(r"^\$ preempt-oracle ", TEXT, re.M)) == len(cost_page.COMMANDS)


def test_a_command_that_fails_is_no_output():
    with pytest.raises(RuntimeError, match="cost break-even"):
        cost_page.output("cost break-even --model nonsense --accelerator h100 --context 1")


def test_figures_are_shown_and_well_formed():
    for name, figure in FIGURES.items():
        assert f"](figures/{name})" in TEXT
        root = ET.fromstring(figure())
        assert root.tag.endswith("svg")
        assert root.findtext("{http://www.w3.org/2000/svg}title")


def test_links_and_paths_lead_somewhere():
    for path in re.findall(r"`((?:spec|properties|tests)/[\w/.]+)`", PROSE):
        assert (docs.ROOT / path).exists(), path
    for link in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert (PAGE.parent / Path(link)).exists(), link


def test_the_seed_table_has_every_row_and_every_erratum():
    rows = cost_page.seed_rows()
    table, rest = cost_page.seed(), cost_page.left_out()
    assert len(rows) == len(table.splitlines()) + len(rest.splitlines()) - 4
    assert table.count("**erratum**") == sum(bool(r.erratum) and not r.says.startswith("+") for r in rows) > 5


def test_the_numbers_of_the_prose():
    slow, gathered = answer(naive(), Q(4096)), answer(question("llama-3.1-8b", LINK), Q(4096))
    weights, rate, memory = Q(16_060_000_000), Q(989 * 10**12, 2), Q(335 * 10**10)
    kv, pair = Q(2**17), Q(2**19)
    curve = find_curve("h100-dma")
    measured = answer(question("llama-3.1-8b", Given(accelerator="h100-sxm", curve="h100-dma")), Q(4096))

    def edge(bytes_per_token: Q) -> Q:
        return (4 * bytes_per_token * rate / (4 * 10**9) - 2 * weights) / pair

    out, back = (nearest_affine(side or ()).law for side in (curve.out, curve.back))
    for text in (
        f"win by a factor of {float(gathered.margin):.1f}.",
        f"{float(gathered.swap / 4096 * 10**6):.2f} µs per token at 50 GB/s",
        f"{float(slow.recompute / 4096 * 10**6):.2f} µs per token at 4,096 tokens",
        f"{float(slow.break_even / 10**9):.2f} GB/s at 4,096 tokens",
        f"that is {float(slow.achieved / 10**9):.2f} GB/s over a link of 50",
        f"{5 * 50} kB for 5 µs and",
        f"here {float(weights / memory * 1000):.2f} ms,",
        f"{float(weights * 4 * 10**9 / (2 * kv * memory)):.0f} tokens at 4 GB/s. So",
        f"{float(edge(kv)):,.0f} tokens at an effective 4 GB/s",
        f"from {float(edge(kv)):,.0f} tokens down to {float(edge(kv / 2)):.0f} at 4 GB/s",
        f"| {int(slow.question.setting.shape.layers[0].kv_bytes):,} |",
        f"| {int(slow.question.setting.shape.layers[0].pair_flops):,} |",
        f"{float(out.overhead * 10**6):.1f} µs out and {float(back.overhead * 10**6):.1f} µs back rather than 5",
        f"measured to reach {float(measured.achieved / 10**9):.1f} GB/s",
        f"at most {(1 + 5**0.5) ** 2 / 4:.2f}, the square of the golden ratio",
    ):
        assert text in PROSE
