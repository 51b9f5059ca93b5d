"""What is generated in docs/cost.md: outputs of commands, the table of the seed, the rules of thumb that are false."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from fractions import Fraction
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from preempt_oracle.report.rulebook import cell

ROOT: Final = Path(__file__).parents[3]
SEED: Final = Path("tests", "spec", "cost", "test_seed.py")

#: Block -> the command whose output stands in it.
COMMANDS: Final[Mapping[str, str]] = {
    "cost-naive": (
        "cost break-even --model llama-3.1-8b --accelerator h100-sxm --context 4096"
        " --bandwidth 50GB/s --copy-overhead 5us"
    ),
    "cost-gathered": (
        "cost break-even --model llama-3.1-70b --accelerator h100-sxm --tp 4 --context 4096 --mfu-gemm 0.73"
        " --mfu-attention 0.57 --write-through"
    ),
    "cost-compare": (
        "cost compare --models llama-3.1-8b,llama-2-7b,qwen3-0.6b,qwen3-32b,qwen3-30b-a3b,gpt-oss-120b,gemma-3-27b"
        " --accelerator h100-sxm --curve h100-dma --context 4096"
    ),
    "cost-fit": "cost fit h100-batch-100000",
    "cost-spare": "cost spare --model llama-3.1-8b --accelerator h100-sxm --batch 64 --context 2048 --curve h100-dma",
    "cost-trace": (
        "cost trace oracle/preempt_oracle/vectors/traces/fcfs-several-victims.vllm-0.33.0.jsonl --model llama-3.1-8b"
        " --accelerator h100-sxm --piggy-back --curve h100-dma"
    ),
    "cost-map": "cost map --model llama-3.1-8b --accelerator h100-sxm --curve h100-dma -o regime-map.svg",
}


def output(words: str) -> str:
    """A command and what it prints, as in a pipe. A command that fails raises RuntimeError."""
    from click.testing import CliRunner

    from preempt_oracle.cli.main import cli

    # What a command writes goes nowhere; what it reads is that of the checkout.
    with TemporaryDirectory() as folder, chdir(folder):
        Path("oracle").symlink_to(ROOT / "oracle")
        result = CliRunner(env={"COLUMNS": None}).invoke(cli, shlex.split(words), prog_name="preempt-oracle")
    if result.exit_code not in (0, 1) or not isinstance(result.exception, SystemExit | None):
        raise RuntimeError(f"{words}: {result.output}")
    lines = [f"$ preempt-oracle {words}", *result.output.splitlines()]
    return "\n".join(["```text", *(line.rstrip() for line in lines), "```"])


def excerpt() -> str:
    """A part of the JSON of the first command: enough to see its shape."""
    import msgspec

    from preempt_oracle.cost.answer import answer
    from preempt_oracle.report.cost_figures import naive
    from preempt_oracle.report.cost_json import answer_row

    row = msgspec.to_builtins(answer_row(answer(naive(), Fraction(4096))))
    shown = {k: row[k] for k in ("winner", "margin", "swap_seconds", "break_even_bytes_per_second", "recompute_wins")}
    return f"```json\n{msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()}\n```"


def prefill() -> str:
    """What the measured prefills say of the two efficiencies."""
    from preempt_oracle.cost.registry import find_accelerator, find_model, request_times
    from preempt_spec.cost.fit import fit_prefill
    from preempt_spec.cost.shape import shape_of

    times = next(t for t in request_times() if t.model == "llama-3.1-8b")
    model, gpu = find_model(times.model), find_accelerator(times.accelerator)
    shape = shape_of(model.architecture, Fraction(1), Fraction(2), model.weight_width)
    fit = fit_prefill(shape, gpu.bf16_flops, [Fraction(n) for n in times.tokens], times.compute)
    return (
        f"Prefills of {model.name} on an {gpu.name} at {times.tokens[0]:,} to {times.tokens[-1]:,} tokens "
        f"({cell(times.source)}) come out to within {float(fit.worst):.1%} with {float(fit.gemm_efficiency):.0%} of "
        f"the peak in products with weights and {float(fit.attention_efficiency):.0%} in attention."
    )


def seed_rows(root: Path = ROOT) -> tuple[Any, ...]:
    """The rows of the test that checks every number of the seed."""
    import runpy

    rows: tuple[Any, ...] = runpy.run_path(str(root / SEED))["ROWS"]
    return rows


def seed() -> str:
    """What the seed says, exactly, and whether it is so."""
    rows = ["| the text says | figure | exactly | |", "|---|---:|---:|---|"]
    for row in seed_rows():
        if not row.says.startswith("+"):
            verdict = f"**erratum**: {row.erratum}" if row.erratum else "reproduces"
            rows.append(f"| {cell(row.says)} | {row.figure} | {_exactly(row.value)} | {cell(verdict)} |")
    return "\n".join(rows)


def left_out() -> str:
    """What the seed leaves out."""
    rows = ["| left out | figure | exactly | |", "|---|---:|---:|---|"]
    for row in seed_rows():
        if row.says.startswith("+"):
            says = row.says.removeprefix("+").strip()
            rows.append(f"| {cell(says)} | {row.figure} | {_exactly(row.value)} | {cell(row.erratum)} |")
    return "\n".join(rows)


def _exactly(value: Fraction) -> str:
    """A fraction as it is if it is short, and its first digits."""
    digits = f"{float(value):,.6g}" if value < 10**6 else f"{float(value):,.0f}"
    if value.denominator == 1:
        return digits
    ratio = f"{value.numerator}/{value.denominator}"
    return f"{ratio} = {digits}" if len(ratio) <= 24 else f"≈ {digits}"


def rules_of_thumb() -> str:
    """Every theorem that is stated as false, with the point at which it fails."""
    from preempt_properties.theorems import THEOREMS, Kind

    rows = ["| tempting, and false | fails at | there | |", "|---|---|---|---|"]
    for theorem in THEOREMS.values():
        if theorem.kind is Kind.FALSE:
            cells = (theorem.sentence, "; ".join(_point(theorem)), "; ".join(_shown(theorem)), f"`{theorem.id}`")
            rows.append(f"| {' | '.join(map(cell, cells))} |")
    return "\n".join(rows)


#: Parameters of the points in the table, unless it says otherwise.
_LLAMA: Final = {
    "kv": Fraction(2**17),
    "params": Fraction(8_030_000_000),
    "pair": Fraction(2**19),
    "flops": Fraction(4945 * 10**11),
    "weights": Fraction(16_060_000_000),
    "memory": Fraction(335 * 10**10),
}


def _point(theorem: Any) -> Iterator[str]:
    from preempt_oracle.prove import rendered

    for name, value in theorem.at.items():
        if _LLAMA.get(name) != value:
            yield f"{name.replace('_', ' ')} {rendered(str(value), theorem.parameters[name].unit)}"


def _shown(theorem: Any) -> Iterator[str]:
    from preempt_oracle.prove import rendered
    from preempt_properties.theorems.theorem import call

    point = {name: Fraction(value) for name, value in theorem.at.items()}
    for name, (function, unit) in theorem.shows.items():
        yield f"{name}: {rendered(str(call(function, point)), unit)}"


#: What may stand between marks in docs/cost.md.
BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    **{name: partial(output, words) for name, words in COMMANDS.items()},
    "cost-json": excerpt,
    "cost-prefill": prefill,
    "cost-seed": seed,
    "cost-left-out": left_out,
    "cost-rules-of-thumb": rules_of_thumb,
}
