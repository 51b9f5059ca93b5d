"""The options that describe a setting of the cost model: model apart, those of all `cost` commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

KV_DTYPES = ("fp32", "bf16", "fp16", "fp8", "int8", "fp4", "int4")

model_option = click.option(
    "--model", required=True, metavar="NAME|PATH", help="A name of `cost models`, or a Hugging Face config.json."
)
context_option = click.option("--context", required=True, metavar="TOKENS", help="Length of the request.")
output_option = click.option("-o", "--output", metavar="FILE", help="The SVG file to write.")


def setting_options(command: F) -> F:
    """Everything that `question.Given` holds."""
    return priced_options(_applied(command, _REQUEST))


def priced_options(command: F) -> F:
    """The same but for what a trace says itself: blocks and prefix hits."""
    return link_options(_applied(command, _RUN))


def link_options(command: F) -> F:
    """The same where it is plain how a recompute runs, too."""
    return _applied(command, _OPTIONS)


def _applied(command: F, options: Sequence[Callable[[Any], Any]]) -> F:
    for decorate in reversed(options):
        command = decorate(command)
    return command


_REQUEST: tuple[Callable[[Any], Any], ...] = (
    click.option("--block", default="16", show_default=True, metavar="TOKENS", help="Tokens per KV block."),
    click.option("--hit", metavar="SHARE", help="Share of the tokens that a prefix cache still holds at resume."),
    click.option(
        "--hit-bytes",
        type=click.Choice(("keep", "save")),
        help="Whether a swap moves the tokens of the hit nevertheless, or not either.  [default: keep]",
    ),
)
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--accelerator", required=True, metavar="NAME", help="A name of `cost accelerators`."),
    click.option("--tp", metavar="N", help="Tensor-parallel GPUs; all figures are per GPU.  [default: 1]"),
    click.option(
        "--kv-dtype", type=click.Choice(KV_DTYPES), default="bf16", show_default=True, help="Elements of the KV cache."
    ),
    click.option(
        "--bandwidth", metavar="B/s", help="Of the link, PER DIRECTION. [default: the accelerator's, measured if known]"
    ),
    click.option("--copy-overhead", metavar="TIME", help="Fixed cost of every copy, such as 5us.  [default: none]"),
    click.option("--curve", metavar="NAME|CSV", help="Measured copies (`cost curves`, or a file) instead of both."),
    click.option(
        "--copy-size",
        metavar="auto|block|request|SIZE",
        help="Bytes of one copy. auto: a block of one layer's K or V; block: of all layers; request: all in one.",
    ),
    click.option("--write-through", is_flag=True, help="KV was written to the host as it filled: count the way back."),
    click.option("--duplex", is_flag=True, help="Others' ways out overlap the way back: the slower one counts."),
    click.option("--mfu", metavar="SHARE", help="Of the dense peak that a prefill reaches.  [default: 0.5]"),
    click.option("--mfu-gemm", metavar="SHARE", help="The same of products with weights alone."),
    click.option("--mfu-attention", metavar="SHARE", help="The same of attention alone."),
    click.option(
        "--compute-dtype", type=click.Choice(("bf16", "fp8")), default="bf16", show_default=True, help="Whose peak."
    ),
)
_RUN: tuple[Callable[[Any], Any], ...] = (
    click.option("--alone", is_flag=True, help="The recompute is a pass of its own, reads all weights.  [default]"),
    click.option("--piggy-back", is_flag=True, help="The recompute rides in passes that run anyway."),
)
