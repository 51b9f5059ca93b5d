"""`cost …`: what is printed and written."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from fractions import Fraction as Q
from itertools import pairwise

import pytest

from preempt_oracle.cost import registry
from preempt_oracle.cost.quantities import parse
from preempt_oracle.cost.units import BANDWIDTH, SECONDS
from preempt_oracle.report.words import safe

LLAMA = ("--model", "llama-3.1-8b", "--accelerator", "h100-sxm")
SEED = (*LLAMA, "--context", 4096, "--bandwidth", "50GB/s")


def exact(number: dict[str, object]) -> Q:
    value = Q(str(number["exact"]))
    assert number["value"] == float(value)
    return value


def test_break_even_says_who_wins_by_how_much_and_what_was_assumed(run):
    result = run("cost", "break-even", *SEED, "--copy-overhead", "5us", "--copy-size", "auto")
    assert result.exit_code == 0
    shown = result.stdout
    assert shown.startswith("RECOMPUTE wins: 141.9 ms against 185.3 ms, 1.306 times faster\n")
    for part in (
        "Llama-3.1-8B on H100 SXM, 4,096 tokens, 512 MiB of KV each way",
        "7.566 GB/s per direction, effective; these copies reach 5.794 GB/s",
        "3.676 µs per copy of 32 KiB",
        "at 106 to 24,078 tokens",
        "Certificate: recompute takes no longer than swap for\n",
        "Assumed\n  one copy per block, layer, and K or V; each takes 5 µs and its bytes over 50 GB/s each way\n",
    ):
        assert part in shown


def test_one_gathered_copy_turns_the_answer(run):
    assert run("cost", "break-even", *SEED).stdout.startswith(
        "SWAP wins: 21.47 ms against 141.9 ms, 6.609 times faster\n"
    )


def test_what_a_certificate_promises_in_print_is_not_more_than_what_is_proved(run):
    for options in (("--copy-overhead", "5us"), ()):
        words = ("cost", "break-even", *SEED, *options)
        proved = json.loads(run(*words, "--json", "-").stdout)["answer"]["certificate"]
        bounds = proved["effective_bytes_per_second"]
        line = next(x for x in run(*words).stdout.splitlines() if x.startswith("  effective bandwidth"))
        number, unit, _, which = line.removeprefix("  effective bandwidth").split()
        shown = parse(number + unit, BANDWIDTH, "")
        if which == "more":
            assert exact(bounds["least"]) <= shown <= exact(bounds["least"]) * Q(1002, 1000)
        else:
            assert exact(bounds["most"]) * Q(998, 1000) <= shown <= exact(bounds["most"])


def test_the_json_is_exact_and_complete(run, here):
    result = run("cost", "break-even", *SEED, "--copy-overhead", "5us", "--hit", "0.5", "--json", "a.json")
    assert result.stdout.startswith("RECOMPUTE wins")
    document = json.loads((here / "a.json").read_text())
    assert (document["format"], document["format_version"], document["command"]) == (
        "preempt-oracle-cost",
        1,
        "break-even",
    )
    a = document["answer"]
    q = a["question"]
    # By hand: half of the tokens, and the pairs that they see.
    n, f = 8_030_261_248, Q(989 * 10**12, 2)
    recompute = (2 * n * 2048 + Q(524288) * (4096**2 - 2048**2) / 2) / f
    swap = 2 * 16384 * (Q(5, 10**6) + Q(32768, 50 * 10**9))
    assert exact(a["recompute_seconds"]) == recompute
    assert exact(a["swap_seconds"]) == swap
    assert exact(a["margin"]) == swap / recompute
    assert exact(a["break_even_bytes_per_second"]) == 2 * 131072 * 4096 / recompute
    assert exact(a["moved_bytes"]) == 2**29
    assert a["winner"] == a["certificate"]["winner"] == "recompute"
    assert a["hybrid"] is None
    assert (exact(q["hit"]), q["hit_bytes"], q["block_tokens"], q["copies"]) == (
        Q(1, 2),
        "keeps_bytes",
        16,
        "per_tensor",
    )
    assert exact(q["out"]["overhead_seconds"]) == Q(5, 10**6)
    assert q["model_source"]
    assert q["assumptions"]


def test_json_alone_is_all_that_goes_to_standard_output(run):
    assert json.loads(run("cost", "break-even", *SEED, "--json", "-").stdout)["answer"]["winner"] == "swap"


def test_equal_costs_are_called_equal(run):
    even = json.loads(run("cost", "break-even", *SEED, "--json", "-").stdout)["answer"]["break_even_bytes_per_second"]
    words = (*LLAMA, "--context", 4096, "--bandwidth", f"{even['exact']}B/s")
    assert run("cost", "break-even", *words).stdout.startswith("BOTH cost the same, 141.9 ms\n")


def test_a_warning_stands_at_the_top(run):
    result = run("cost", "break-even", "--model", "llama-3.1-70b", "--accelerator", "h100", "--context", 100)
    assert result.stdout.splitlines()[2].startswith("WARNING: 141.1 GB of weights per GPU do not fit")


def test_a_config_of_ones_own(run, here):
    (here / "config.json").write_text(
        json.dumps(
            {
                "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
                "num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 14336, "torch_dtype": "bfloat16",
                "max_position_embeddings": 131072,
            }
        )
    )  # fmt: skip
    mine = run("cost", "break-even", "--model", "config.json", "--accelerator", "h100", "--context", 4096)
    assert mine.stdout.splitlines()[0] == run("cost", "break-even", *LLAMA, "--context", 4096).stdout.splitlines()[0]


# Maps.


def said(svg: str | bytes) -> list[str]:
    """The words of a picture, in the order of the document."""
    return [x.text or "" for x in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_map_is_written_as_svg_and_in_numbers(run, here):
    result = run("cost", "map", *LLAMA, "--curve", "h100-dma", "-o", "m.svg", "--json", "m.json")
    assert result.stdout == "m.svg: break-even is at most 8.05 GB/s, at 154 tokens; these copies reach 7.9 GB/s\n"
    assert ET.parse(here / "m.svg").getroot().tag.endswith("svg")
    m = json.loads((here / "m.json").read_text())["map"]
    assert len(m["speed_up"]) == len(m["length_tokens"]) == len(m["break_even_bytes_per_second"]) == 200
    assert {len(row) for row in m["speed_up"]} == {len(m["effective_bytes_per_second"])} == {200}
    assert all(a < b for a, b in pairwise(m["effective_bytes_per_second"]))


def test_a_map_says_what_it_shows(run):
    words = said(run("cost", "map", *LLAMA, "--curve", "h100-dma", "-o", "-").stdout)
    for part in (
        "Swap or recompute? Llama-3.1-8B on H100 SXM",
        "bf16 KV, recompute alone at 50% of 989 TFLOP/s, out and back",
        "length of the request, tokens (1K = 1,024)",
        "effective bandwidth per direction, GB/s",
        "swap wins",
        "recompute wins",
        "break-even (at most 8.05 GB/s)",
        "copies as described: 7.9 GB/s",
        "copies of 32 KiB at 5 to 10 µs each: 5.8 to 3.1 GB/s",
        "the link, copied at once: 50.9 GB/s",
    ):
        assert words.count(part) == 1
    assert {"128", "2K", "1", "10", "100", "2×", "5×", "10×"} <= set(words)


def test_a_map_to_standard_output_is_nothing_else(run):
    assert ET.fromstring(run("cost", "map", *LLAMA, "-o", "-").stdout).tag.endswith("svg")


def test_numbers_need_no_plotting_library_and_a_picture_names_its_extra(run, here, monkeypatch):
    for name in ("preempt_oracle.report.cost_map", "matplotlib.axes"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("cost", "map", *LLAMA, "--json", "m.json")
    assert result.stdout.startswith("m.json: break-even is at most 8.05 GB/s")
    assert len(json.loads((here / "m.json").read_text())["map"]["speed_up"]) == 200
    result = run("cost", "map", *LLAMA, "-o", "m.svg")
    assert result.exit_code == 2
    assert "pip install 'preempt-oracle[report]'" in result.stderr
    assert not (here / "m.svg").exists()


def test_a_map_must_go_somewhere(run):
    result = run("cost", "map", *LLAMA)
    assert result.exit_code == 2
    assert "give --output, --json, or both" in result.stderr


@pytest.mark.long
def test_the_name_of_a_model_stays_a_name(run, here):
    config = {
        "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 14336, "torch_dtype": "bfloat16",
        "max_position_embeddings": 131072,
    }  # fmt: skip
    known = [x.tag for x in ET.fromstring(run("cost", "map", *LLAMA, "-o", "-").stdout).iter()]
    for name in ("a$x^$ <script>&\"'", "$\\frac", "]]>漢\x1b[1m", "wide " * 30):
        (here / name).mkdir()
        (here / name / "config.json").write_text(json.dumps(config))
        drawn = run("cost", "map", "--model", f"./{name}", "--accelerator", "h100-sxm", "-o", "-").stdout
        title = f"Swap or recompute? {safe(name, 24)} on H100 SXM"
        assert title in said(drawn)
        assert ET.fromstring(drawn).findtext("{http://www.w3.org/2000/svg}title") == title
        assert [x.tag for x in ET.fromstring(drawn).iter()] == known


def test_a_map_that_cannot_be_written_is_refused_first(run, here):
    result = run("cost", "map", *LLAMA, "-o", "no/m.svg")
    assert result.exit_code == 2
    assert "there is no folder" in result.stderr
    assert run("cost", "map", *LLAMA, "-o", "x", "--json", "x").exit_code == 2


# Comparisons.


def test_a_comparison_has_a_line_for_each_model_with_nothing_cut_off(run):
    result = run("cost", "compare", "--models", "llama-3.1-8b,qwen3-235b-a22b", "--accelerator", "h100", "--tp", 8)
    lines = result.stdout.splitlines()
    assert "…" not in result.stdout
    assert [line.split()[0] for line in lines[2:4]] == ["llama-3.1-8b", "qwen3-235b-a22b"]


def test_all_models_are_compared_and_those_that_cannot_be_are_named(run):
    words = ("cost", "compare", "--models", "all", "--accelerator", "h100-sxm", "--copy-overhead", "5us")
    document = json.loads(run(*words, "--json", "-").stdout)
    compared = [a["question"]["model"] for a in document["answers"]]
    gone = [row["model"] for row in document["left_out"]]
    assert sorted(compared + gone) == sorted(m.id for m in registry.models())
    assert gone == ["opt-13b", "opt-30b", "opt-66b"]
    assert "left out: opt-13b: 4096 tokens are more than the model's context of 2048" in run(*words).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--models", "all", "--tp", "x"), "--tp: 'x'"),
        (("--models", "all", "--context", "x"), "--context: 'x'"),
        (("--models", "all", "--context", "10M"), "--context: 10000000 tokens are more than"),
        (("--models", "all", "--tp", "3"), "--tp: 3 do not divide"),
        (("--models", "llama-3.1-8b,opt-13b"), "--context: opt-13b: 4096 tokens are more than"),
        (("--models", "llama-3.1-8b,qwen3-0.6b", "--tp", "32"), "--tp: qwen3-0.6b: 32 do not divide"),
        (("--models", "llama-3.1-8b,,"), "--models: '' is the name of no known model"),
    ],
)
def test_a_comparison_of_named_models_leaves_none_out(run, words, message):
    result = run("cost", "compare", "--accelerator", "h100", *words)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"preempt-oracle: {message}")


# Fits.


def test_a_law_that_fits(run, here):
    rows = "".join(f"{k}, {5 + k * 1.024 / 50:.6f}\n" for k in (4, 32, 256, 1024))
    (here / "mine.csv").write_text(f"size [KiB], time [us]\n{rows}")
    result = run("cost", "fit", "mine.csv", "--json", "fit.json")
    assert result.exit_code == 0
    assert result.stdout.startswith("both directions: an affine law fits: 5 µs per copy + size / 50 GB/s;")
    (fit,) = json.loads((here / "fit.json").read_text())["fits"]
    assert fit["affine"] is True
    assert fit["law"]["overhead_seconds"]["value"] == pytest.approx(5e-6, rel=1e-4)
    assert exact(fit["points"][0]["seconds"]) == parse("5.081920us", SECONDS, "")


def test_data_that_refute_every_law_are_named(run):
    result = run("cost", "fit", "h100-batch-100000")
    assert result.exit_code == 1
    assert result.stdout.startswith(
        "host to device: REFUTED: no affine law fits\n  effective bandwidth grows faster than"
    )
    assert "from 6.9 GB/s at 24,576 bytes to 44.1 GB/s at 28,672 bytes" in result.stdout


def test_each_direction_is_judged_by_itself(run):
    document = json.loads(run("cost", "fit", "h100-dma", "--json", "-").stdout)
    out, back = document["fits"]
    assert (out["affine"], back["affine"]) == (False, True)
    assert (out["refuted_by"][0]["small_bytes"]["exact"], back["refuted_by"]) == ("4096", [])
    assert [round(f["law"]["overhead_seconds"]["value"] * 1e6, 2) for f in (out, back)] == [3.48, 3.4]


def test_times_that_fall_with_size_have_no_bandwidth(run, here):
    (here / "odd.csv").write_text("size [KiB], time [us]\n4, 9\n8, 5\n")
    result = run("cost", "fit", "odd.csv")
    assert result.exit_code == 1
    assert "there is no bandwidth to be found" in result.stdout


# Lists.


def test_every_name_of_the_registry_is_listed_with_its_source(run):
    for command, rows in (
        ("models", registry.models()), ("accelerators", registry.accelerators()), ("curves", registry.curves()),
    ):  # fmt: skip
        shown = run("cost", command).stdout
        assert "…" not in shown
        table, sources = shown.split("\nSources\n")
        for row in rows:
            line = next(x for x in table.splitlines() if x.split()[:1] == [row.id])
            assert line.endswith("yes" if row.verified else "no")
            assert row.id in sources


# Speed.


def test_break_even_is_quick_and_loads_no_solver_and_no_plotting_library():
    probe = """
import sys, time
began = time.process_time()
from preempt_oracle.cli.main import cli
try:
    cli.main({words!r}, prog_name="preempt-oracle")
except SystemExit as end:
    assert end.code == 0
names = {{name.split(".")[0] for name in sys.modules}}
print(time.process_time() - began, *sorted(names & {{"z3", "hypothesis", "numpy", "matplotlib"}}))
"""
    words = ["cost", "break-even", *map(str, SEED), "--copy-overhead", "5us"]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", probe.format(words=words)], capture_output=True, text=True, check=True, timeout=60
    )
    spent, *heavy = done.stdout.splitlines()[-1].split()
    assert heavy == []
    assert float(spent) < 0.5, time.monotonic() - began
