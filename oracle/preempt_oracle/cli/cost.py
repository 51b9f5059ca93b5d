"""`cost …`: swap or recompute? The cost model asked about a model, a GPU and a link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from preempt_oracle.cli.choices import json_option
from preempt_oracle.cli.cost_options import (
    context_option,
    link_options,
    model_option,
    output_option,
    priced_options,
    setting_options,
)

if TYPE_CHECKING:
    from preempt_oracle.cost.question import Question


class InOrder(click.Group):
    """Commands in the order of their use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As defined."""
        return list(self.commands)


@click.group("cost", cls=InOrder)
def command() -> None:
    """Swap a preempted request's KV to the host, or compute it again? Exactly, per request and GPU.

    Quantities take units: 50GB/s, 32KiB, 5us, 4096, 0.5 or 50%. Bandwidths are PER DIRECTION, never the bidirectional
    figure. See docs/cost.md for the derivation and `preempt-oracle prove` for the proofs.
    """


def _question(model: str, named: dict[str, Any]) -> Question:
    from preempt_oracle.cost.question import Given, question

    return question(model, Given(**named))


@command.command("break-even", short_help="Which is cheaper, by how much, what would turn it.")
@model_option
@context_option
@setting_options
@json_option
def break_even(model: str, context: str, json_file: str | None, **named: Any) -> int:
    """Which is cheaper, by how much, and what would turn the answer."""
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.cost.answer import answer

    writable(json_file)
    asked = _question(model, named)
    found = answer(asked, asked.length(context))
    if json_file:
        from preempt_oracle.report.cost_json import answer_document

        write(json_file, answer_document(found))
    if json_file != "-":
        from preempt_oracle.report.cost import show_answer
        from preempt_oracle.report.words import console

        show_answer(console(), found)
    return 0


@command.command("map", short_help="Draw who wins over bandwidth and length.")
@model_option
@setting_options
@output_option
@json_option
def regime_map(model: str, output: str | None, json_file: str | None, **named: Any) -> int:
    """Draw who wins over bandwidth and length, as SVG (-o), or write the 200 × 200 factors (--json), or both."""
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.cost.regime import regime

    if output is None and json_file is None:
        raise click.UsageError("nothing to write: give --output, --json, or both")
    if output == json_file:  # "-" too
        raise click.UsageError("--output and --json name the same file")
    writable(output)
    writable(json_file)
    asked = _question(model, named)
    found = regime(asked.setting, asked.longest)
    if output is not None:
        from preempt_oracle.report.cost_map import draw  # numbers alone need no matplotlib

        write(output, draw(asked, found).encode())
    if json_file is not None:
        from preempt_oracle.report.cost_json import map_document, map_row

        write(json_file, map_document(map_row(asked, found)))
    if "-" not in (output, json_file):
        from preempt_oracle.report.cost_regime import summary
        from preempt_oracle.report.words import console, safe

        console().print(f"{safe(output or json_file or '', 300)}: {summary(found)}", soft_wrap=True)
    return 0


@command.command("compare", short_help="A line per model.")
@click.option(
    "--models", required=True, metavar="A,B,…", help="Names or paths, separated by commas; all: the registry."
)
@click.option("--context", default="4096", show_default=True, metavar="TOKENS", help="Length of the request.")
@setting_options
@json_option
def compare(models: str, context: str, json_file: str | None, **named: Any) -> int:
    """One line per model: KV per token, break-even bandwidth, both costs, who wins and where."""
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.cost.answer import answer
    from preempt_oracle.cost.errors import CostInputError
    from preempt_oracle.cost.quantities import parse
    from preempt_oracle.cost.registry import models as known
    from preempt_oracle.cost.units import COUNT, TOKENS

    writable(json_file)
    parse(context, TOKENS, "--context")
    if named["tp"] is not None:
        parse(named["tp"], COUNT, "--tp")
    names = [m.id for m in known()] if models == "all" else models.split(",")
    answers, left_out = [], []
    for name in names:
        try:
            asked = _question(name, named)
            answers.append(answer(asked, asked.length(context)))
        except CostInputError as e:
            if e.where == "--model":
                e.where = "--models"
            elif e.where in ("--context", "--tp"):
                # Of all models some have too short a context or do not divide; of those that were named each is meant.
                left_out.append((name, e.reason))
                if models == "all" and len(left_out) < len(names):
                    continue
                if models != "all":
                    e.reason = f"{name}: {e.reason}"
            raise
    if json_file:
        from preempt_oracle.report.cost_json import comparison_document

        write(json_file, comparison_document(answers, left_out))
    if json_file != "-":
        from preempt_oracle.report.cost import show_comparison
        from preempt_oracle.report.words import console

        show_comparison(console(), answers, left_out)
    return 0


@command.command("fit", short_help="Fit a law to measured copies, or refuse it.")
@click.argument("curve", metavar="CSV|NAME")
@json_option
def fit(curve: str, json_file: str | None) -> int:
    """Fit an affine law, overhead + size / bandwidth, to measured copies, and show how far off it is.

    CSV: a heading such as `size [KiB], bandwidth [GB/s], direction, error [%]`, then a line per size. Instead of the
    bandwidth there may be a `time [us]`; direction (out or back) and error may be left out. Exit 1 if the data refute
    every affine law: `--curve CSV` then takes the points as they are.
    """
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.cost.copying import curve_of
    from preempt_oracle.report.cost_lists import fit_row, fitted, show_fit

    writable(json_file)
    sides = fitted(curve_of(curve, "CSV|NAME"))
    if json_file:
        from preempt_oracle.report.cost_json import fit_document

        write(json_file, fit_document(curve, [fit_row(side) for side in sides]))
    if json_file != "-":
        from preempt_oracle.report.words import console

        out = console()
        for i, side in enumerate(sides):
            if i:
                out.print()
            show_fit(out, side)
    return 1 if any(side.refuted or side.nearest is None for side in sides) else 0


@command.command("trace", short_help="Price the preemptions of a recorded trace.")
@click.argument("trace", metavar="TRACE")
@model_option
@priced_options
@json_option
def trace(trace: str, model: str, json_file: str | None, **named: Any) -> int:
    """Price the preemptions of a recorded trace: what recomputing them took, and what swapping would have taken.

    TRACE as for `check`; its blocks and prefix hits are taken from it. Nothing is judged.
    """
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.cost.trace import price, story, windows_of
    from preempt_oracle.report.cost_trace import show_price, trace_document

    writable(json_file)
    asked = _question(model, named)
    told = story(trace, windows_of(asked))
    priced = price(told, _question(model, {**named, "block": str(told.page_size)}))
    if json_file:
        write(json_file, trace_document(priced))
    if json_file != "-":
        from preempt_oracle.report.words import console

        show_price(console(), priced)
    return 0


@command.command("spare", short_help="Tokens that ride along in a decode step.")
@model_option
@click.option("--batch", required=True, metavar="N", help="Requests that decode in the step.")
@context_option
@link_options
@json_option
def spare(model: str, batch: str, context: str, json_file: str | None, **named: Any) -> int:
    """How many tokens of a recompute ride along in a memory-bound decode step at no added time.

    By three ways to count, since they differ by a factor of two and more. --context is the length of every request, of
    the victim too.
    """
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.cost.quantities import parse
    from preempt_oracle.cost.riding import spare as spared
    from preempt_oracle.cost.units import COUNT
    from preempt_oracle.report.cost_spare import show_spare, spare_document

    writable(json_file)
    asked = _question(model, named)
    found = spared(asked, parse(batch, COUNT, "--batch"), asked.length(context))
    if json_file:
        write(json_file, spare_document(found))
    if json_file != "-":
        from preempt_oracle.report.words import console

        show_spare(console(), found)
    return 0


@command.command("models", short_help="List the models known by name.")
def list_models() -> int:
    """The models that --model knows by name."""
    from preempt_oracle.cost.registry import models
    from preempt_oracle.report.cost_lists import show_models
    from preempt_oracle.report.words import console

    show_models(console(), models())
    return 0


@command.command("accelerators", short_help="List the GPUs and TPUs known by name.")
def list_accelerators() -> int:
    """The GPUs and TPUs that --accelerator knows."""
    from preempt_oracle.cost.registry import accelerators
    from preempt_oracle.report.cost_lists import show_accelerators
    from preempt_oracle.report.words import console

    show_accelerators(console(), accelerators())
    return 0


@command.command("curves", short_help="List the measured copies known by name.")
def list_curves() -> int:
    """The measured copies that --curve knows."""
    from preempt_oracle.cost.registry import curves
    from preempt_oracle.report.cost_lists import show_curves
    from preempt_oracle.report.words import console

    show_curves(console(), curves())
    return 0
