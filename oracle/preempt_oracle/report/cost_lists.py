"""What the registry knows, and what measured copies say of an affine law."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from attrs import frozen
from rich.console import Console
from rich.text import Text

from preempt_oracle.cost.curves import CopyCurve, Points
from preempt_oracle.cost.registry import Accelerator, KnownModel
from preempt_oracle.cost.units import BANDWIDTH, BYTES, FLOP_RATE, SECONDS, TOKENS
from preempt_oracle.cost.wording import show
from preempt_oracle.report.cost import grid, whole
from preempt_oracle.report.cost_json import FitRow, PairRow, law_row, number, point_row
from preempt_oracle.report.words import safe
from preempt_spec.cost.copies import copy_time, half_bandwidth_size
from preempt_spec.cost.fit import Fit, Refutation, described, nearest_affine, refutations
from preempt_spec.cost.shape import shape_of

ONE, TWO = Fraction(1), Fraction(2)


def show_models(out: Console, models: Sequence[KnownModel]) -> None:
    """A line per model: sizes, whether all facts were read in the source, and the source."""
    table = grid("model", "params", "active", "KV/token", "context", "verified")
    for m in models:
        architecture = m.architecture
        shape = shape_of(architecture, ONE, TWO, m.weight_width)
        kv = sum((layers.kv_bytes for layers in shape.layers), start=Fraction(0))
        limit = architecture.max_length
        table.add_row(
            m.id,
            _billions(architecture.params_total),
            _billions(architecture.params_active),
            show(kv, BYTES),
            "unknown" if limit is None else show(limit, TOKENS),
            "yes" if m.verified else Text("no", style="yellow"),
        )
    whole(out, table)
    _sources(out, [(m.id, m.source, m.note) for m in models])
    said = "KV per token in bf16, one GPU. Verified: every fact was read in the source, none recalled."
    out.print(f"\n{said}", soft_wrap=True)


def show_accelerators(out: Console, accelerators: Sequence[Accelerator]) -> None:
    """A line per accelerator."""
    table = grid("accelerator", "bf16", "memory", "at", "link", "per direction", "verified")
    for a in accelerators:
        if a.measured:
            rates = a.measured[0]
            measured = " / ".join("?" if x is None else show(x, BANDWIDTH, 3) for x in (rates.out, rates.back))
            link = f"{measured} measured"
        else:
            link = "unknown" if a.link_bandwidth is None else f"{show(a.link_bandwidth, BANDWIDTH, 3)} on paper"
        table.add_row(
            a.id,
            show(a.bf16_flops, FLOP_RATE),
            show(a.memory_bytes, BYTES),
            show(a.memory_bandwidth, BANDWIDTH),
            a.link,
            link,
            "yes" if a.verified else Text("no", style="yellow"),
        )
    whole(out, table)
    _sources(out, [(a.id, a.source, a.note) for a in accelerators])
    out.print("\nPeaks are dense. Link: out / back where measured.", soft_wrap=True)


def show_curves(out: Console, curves: Sequence[CopyCurve]) -> None:
    """A line per curve, and how it was measured."""
    table = grid("curve", "directions", "sizes", "verified")
    for c in curves:
        points = c.out or c.back or ()
        ways = " and ".join(name for name, side in (("out", c.out), ("back", c.back)) if side)
        sizes = f"{show(points[0].size, BYTES)} to {show(points[-1].size, BYTES)}"
        table.add_row(c.id, ways, sizes, "yes" if c.verified else Text("no", style="yellow"))
    whole(out, table)
    _sources(out, [(c.id, f"{c.setup}; {c.source}", c.note) for c in curves])


def _sources(out: Console, rows: Sequence[tuple[str, str, str]]) -> None:
    """Who says so: the names behind each source once, then what is particular."""
    out.print("\nSources")
    by_source: dict[str, list[str]] = {}
    for id, source, _ in rows:
        by_source.setdefault(source, []).append(id)
    for source, ids in by_source.items():
        out.print(f"  {safe(source, 300)}: {', '.join(ids)}", soft_wrap=True)
    if any(note for _, _, note in rows):
        out.print("\nNotes")
    for id, _, note in rows:
        if note:
            out.print(f"  {id}: {safe(note, 400)}", soft_wrap=True)


def _billions(count: Fraction) -> str:
    return f"{float(count) / 1e9:.4g}B"


@frozen
class Fitted:
    """One direction of a curve."""

    name: str
    points: Points
    refuted: tuple[Refutation[Fraction], ...]
    nearest: Fit[Fraction] | None
    """The nearest affine law, allowed or not; None: time does not grow with size at all."""


def fitted(curve: CopyCurve) -> list[Fitted]:
    """Both directions, or the one that was measured; if they are the same points, once."""
    if curve.out == curve.back:
        sides = [("both directions", curve.out)]
    else:
        sides = [("device to host", curve.out), ("host to device", curve.back)]
    found = []
    for name, points in sides:
        if points is None:
            continue
        try:
            nearest = nearest_affine(points)
        except ValueError:
            nearest = None
        found.append(Fitted(name, points, refutations(points), nearest))
    return found


def show_fit(out: Console, f: Fitted, shown_pairs: int = 3) -> None:
    """Whether an affine law fits, the nearest one, and how far it is from each point."""
    if f.refuted:
        out.print(Text.assemble(f"{f.name}: ", ("REFUTED", "bold red"), ": no affine law fits"), soft_wrap=True)
        for pair in f.refuted[:shown_pairs]:
            out.print(f"  {described(pair)}", soft_wrap=True)
        if len(f.refuted) > shown_pairs:
            out.print(f"  and {len(f.refuted) - shown_pairs} more such pairs", soft_wrap=True)
    if f.nearest is None:
        out.print(f"{f.name}: time does not grow with size: there is no bandwidth to be found", soft_wrap=True)
        return
    law = f.nearest.law
    text = f"{show(law.overhead, SECONDS, 3)} per copy + size / {show(law.bandwidth, BANDWIDTH, 3)}"
    half = "no overhead"
    if law.overhead:
        half = f"half of that bandwidth at copies of {show(half_bandwidth_size(law), BYTES, 3)}"
    worst = f"off by up to {_percent(f.nearest.worst)}"
    name = "  the nearest one, for comparison" if f.refuted else f"{f.name}: an affine law fits"
    out.print(f"{name}: {text}; {half}; {worst}", soft_wrap=True)
    table = grid("  size", "time", "bandwidth", "by the law", "residual")
    for point, residual in zip(f.points, f.nearest.residuals, strict=True):
        table.add_row(
            f"  {show(point.size, BYTES)}",
            show(point.seconds, SECONDS),
            show(point.size / point.seconds, BANDWIDTH, 3),
            show(copy_time(law, point.size), SECONDS),
            f"{float(residual) * 100:+.1f}%",
        )
    whole(out, table)


def _percent(share: Fraction) -> str:
    return f"{float(share) * 100:.3g}%"


def fit_row(f: Fitted) -> FitRow:
    """The same for JSON."""
    residuals = f.nearest.residuals if f.nearest else (None,) * len(f.points)
    return FitRow(
        f.name,
        not f.refuted and f.nearest is not None,
        law_row(f.nearest.law) if f.nearest else None,
        tuple(point_row(p, r) for p, r in zip(f.points, residuals, strict=True)),
        tuple(PairRow(number(r.small.size), number(r.large.size), described(r)) for r in f.refuted),
    )
