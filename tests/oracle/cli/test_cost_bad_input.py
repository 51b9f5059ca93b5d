"""`cost …` and nonsense: exit 2 and a line that names what is wrong; never a traceback, never an answer."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from preempt_oracle.cli.main import cli

BASE = {"--model": "llama-3.1-8b", "--accelerator": "h100-sxm", "--context": "4096"}
VALUES = {
    "--context": ("4096", "1", "131072"),
    "--bandwidth": ("50GB/s", "400Gbit/s"),
    "--copy-overhead": ("5us", "0s", "1e-5s"),
    "--copy-size": ("auto", "block", "request", "1MiB"),
    "--curve": ("h100-dma", "h100-batch-10000"),
    "--tp": ("1", "4", "32"),
    "--block": ("16", "1", "4096"),
    "--hit": ("0", "0.5", "100%"),
    "--hit-bytes": ("keep", "save"),
    "--mfu": ("0.5", "1"),
    "--mfu-gemm": ("0.73",),
    "--mfu-attention": ("57%",),
    "--kv-dtype": ("fp8", "bf16", "fp4"),
    "--compute-dtype": ("fp8", "bf16"),
}
FLAGS = ("--write-through", "--duplex", "--alone", "--piggy-back")
NONSENSE = (
    "", " ", "0", "-1", "nan", "inf", "-inf", "1e999", "1e-999", "1/0", "0/1", "½", "٣", "1,000", "50 GB/s/s", "5kg",
    "50", "50GB", "5us", "32KiB", "1e40B/s", "1e18B", "\x00", "\x1b[31m", "../..", "/", "~", "a" * 5000, "--json",
)  # fmt: skip


def invoke(words: list[str]) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, words, prog_name="preempt-oracle")
    assert isinstance(result.exception, SystemExit | None), (words, result.exception)
    return result.exit_code, result.stdout, result.stderr


def check(words: list[str]) -> int:
    code, out, err = invoke(words)
    assert "Traceback" not in out + err
    assert "fault of preempt-oracle" not in err, (words, err)
    assert code in (0, 2), (words, err)
    if code == 2:
        assert out == ""
        assert err.strip()
        assert "\x1b" not in err
    else:
        assert "wins: " in out or out.startswith("BOTH")
        assert "nan" not in out.lower().split()
    return code


def flat(options: dict[str, str], flags: list[str]) -> list[str]:
    return ["cost", "break-even", *(f"{name}={value}" for name, value in options.items()), *flags]


@given(
    st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in VALUES.items()}),
    st.lists(st.sampled_from(FLAGS), unique=True),
)
@settings(max_examples=150)
def test_sensible_values_in_any_combination_are_answered_or_refused(options, flags):
    check(flat(BASE | options, flags))


@given(
    st.dictionaries(
        st.sampled_from([*VALUES, "--model", "--accelerator"]), st.sampled_from(NONSENSE) | st.text(max_size=12)
    ),
    st.lists(st.sampled_from(FLAGS), unique=True, max_size=1),
)
@settings(max_examples=150)
@example({"--context": "131072", "--block": "1e12"}, [])
@example({"--bandwidth": "1e18B/s", "--mfu": "1e-12"}, [])
@example({"--bandwidth": "1B/s", "--copy-overhead": "1e9s"}, ["--piggy-back"])
def test_any_text_is_answered_or_refused(options, flags):
    check(flat(BASE | options, flags))


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("latin-1")))
@settings(max_examples=60)
@example("size [KiB], bandwidth [GB/s]\n8, 1\n4, 2\n")
@example("size [KiB], bandwidth [GB/s]\n4, 1\n")
@example("size [KiB], bandwidth [GB/s]\n4, 0\n8, -1\n")
@example("size [KiB], bandwidth [GB/s]\n4, nan\n8, inf\n")
def test_any_file_is_a_curve_or_is_refused(tmp_path_factory, text):
    file = tmp_path_factory.getbasetemp() / "any.csv"
    file.write_text(text, encoding="utf-8", newline="")
    code, out, err = invoke(["cost", "fit", str(file)])
    assert code == 2, "none of these is a curve"
    assert out == ""
    assert "any.csv" in err
    assert check([*flat(BASE, []), f"--curve={file}"]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kv-dtype", "fp7"), "Invalid value for '--kv-dtype'"),
        (("--compute-dtype", "int8"), "Invalid value for '--compute-dtype'"),
        (("--hit-bytes", "maybe"), "Invalid value for '--hit-bytes'"),
        (("--json", "no/such/folder.json"), "there is no folder"),
        (("--nonsense",), "No such option"),
    ],
)
def test_choices_and_places_are_refused_by_name(run, words, message):
    result = run("cost", "break-even", *(x for pair in BASE.items() for x in pair), *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_what_is_needed_is_asked_for(run):
    for name in BASE:
        rest = [x for pair in BASE.items() if pair[0] != name for x in pair]
        result = run("cost", "break-even", *rest)
        assert result.exit_code == 2
        assert f"Missing option '{name}'" in result.stderr
    assert run("cost").exit_code == 2


def test_the_help_of_each_command_is_there(run):
    for command in ("break-even", "map", "compare", "fit", "models", "accelerators", "curves"):
        assert run("cost", command, "--help").stdout.startswith(f"Usage: preempt-oracle cost {command}")


MODEL = ("--model", "llama-3.1-8b", "--accelerator", "h100-sxm")
#: A file that is none: what is done with it, and what is blamed.
FILES = (
    (("cost", "break-even", *MODEL, "--context", "4096", "--curve"), "curve.csv"),
    (("cost", "map", *MODEL, "-o", "map.svg", "--curve"), "curve.csv"),
    (("cost", "compare", "--models", "llama-3.1-8b", "--accelerator", "h100-sxm", "--curve"), "curve.csv"),
    (("cost", "spare", *MODEL, "--batch", "8", "--context", "64", "--curve"), "curve.csv"),
    (("cost", "fit"), "curve.csv"),
    (("cost", "break-even", "--accelerator", "h100-sxm", "--context", "64", "--model"), "model.json"),
    (("cost", "map", "--accelerator", "h100-sxm", "-o", "map.svg", "--model"), "model.json"),
    (("cost", "compare", "--accelerator", "h100-sxm", "--models"), "model.json"),
    (("cost", "trace", *MODEL), "trace.jsonl"),
)


@pytest.mark.parametrize("content", [None, "folder", b"", b"\x00\xff\xfe" * 99, b"\n", b"[" * 99_999, b"{}", b"1e999"])
@pytest.mark.parametrize(("words", "name"), FILES, ids=lambda x: x if isinstance(x, str) else x[1])
def test_what_is_no_file_of_its_kind_is_refused_by_name(here, words, name, content):
    if content == "folder":
        (here / name).mkdir()
    elif content is not None:
        (here / name).write_bytes(content)
    code, out, err = invoke([*words, name])
    assert (code, out) == (2, "")
    assert f"preempt-oracle: {name}" in err
    assert not (here / "map.svg").exists()


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("map", *MODEL, "-o", "map.svg"), "--hit"),
        (("map", *MODEL, "-o", "map.svg"), "--tp"),
        (("compare", "--models", "all", "--accelerator", "h100-sxm"), "--context"),
        (("compare", "--models", "all", "--accelerator", "h100-sxm"), "--bandwidth"),
        (("spare", *MODEL, "--context", "64"), "--batch"),
        (("spare", *MODEL, "--batch", "8"), "--context"),
        (("trace", "trace.jsonl", *MODEL), "--mfu"),
    ],
)
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "1e999", "1.5", "5 furlongs", ""])
def test_every_command_refuses_a_number_that_is_none_and_names_the_option(here, words, option, value):
    code, out, err = invoke(["cost", *words, f"{option}={value}"])
    assert (code, out) == (2, "")
    assert err.startswith(f"preempt-oracle: {option}: ")
    assert not (here / "map.svg").exists()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (("spare", *MODEL, "--batch", "8", "--context", "64"), ("--alone", "--piggy-back", "--hit=0.5", "--block=16")),
        (("trace", "trace.jsonl", *MODEL), ("--hit=0.5", "--block=16", "--hit-bytes=save")),
    ],
)
def test_what_means_nothing_to_a_command_is_no_option_of_it(command, options):
    for option in options:
        code, _, err = invoke(["cost", *command, option])
        assert code == 2
        assert "No such option" in err
