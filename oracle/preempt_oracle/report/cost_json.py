"""The JSON of the cost commands. Its fields are an interface: they may be added to, never renamed or redefined.

A number is `{"exact": "66928679/3906250", "value": 17.13…}`: a ratio of whole numbers, and the nearest float. Units are
in the names: seconds, bytes, bytes_per_second (per direction), flops (FLOP/s), tokens. `null` in a range: no bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import msgspec

from preempt_oracle.cost.answer import Answer
from preempt_oracle.cost.question import Question
from preempt_oracle.cost.regime import Regime
from preempt_oracle.report.document import encode
from preempt_oracle.report.version import version
from preempt_spec.cost.certify import Range
from preempt_spec.cost.copies import Affine, Law, Tabulated
from preempt_spec.cost.fit import Point

FORMAT = "preempt-oracle-cost"
FORMAT_VERSION = 1


class Number(msgspec.Struct, frozen=True):
    """An exact number and the float nearest to it."""

    exact: str
    value: float


class Bounds(msgspec.Struct, frozen=True):
    """A range, both ends included."""

    least: Number | None
    most: Number | None


class SpanRow(msgspec.Struct, frozen=True):
    """Lengths in whole tokens, both ends included."""

    first: int
    last: int


class LawRow(msgspec.Struct, frozen=True):
    """The law of one copy: affine, or measured points."""

    kind: str
    overhead_seconds: Number | None = None
    bytes_per_second: Number | None = None
    sizes_bytes: tuple[Number, ...] = ()
    seconds: tuple[Number, ...] = ()


class CopiesRow(msgspec.Struct, frozen=True):
    """Copies of one size in one direction."""

    count: Number
    size_bytes: Number


class QuestionRow(msgspec.Struct, frozen=True):
    """What was asked, defaults filled in."""

    model: str
    model_source: str
    model_verified: bool
    accelerator: str
    accelerator_source: str
    accelerator_verified: bool
    tensor_parallel: int
    kv_dtype: str
    block_tokens: int
    copies: str
    trip: str
    directions: str
    run: str
    hit: Number | None
    hit_bytes: str | None
    peak_flops: Number
    gemm_efficiency: Number
    attention_efficiency: Number
    memory_bytes_per_second: Number
    out: LawRow
    back: LawRow
    longest_tokens: int
    assumptions: tuple[str, ...]


class CertificateRow(msgspec.Struct, frozen=True):
    """The box in which the winner never takes longer. See preempt_spec.cost.certify."""

    winner: str
    effective_bytes_per_second: Bounds
    gemm_flops: Bounds
    memory_bytes_per_second: Bounds
    length_tokens: Bounds
    why: tuple[str, ...]


class HybridRow(msgspec.Struct, frozen=True):
    """The best division: the first tokens are recomputed while the others are swapped."""

    recomputed_tokens: Number
    seconds: Number


class AnswerRow(msgspec.Struct, frozen=True):
    """One answer. `winner`: swap or recompute; `margin`: how many times faster it is."""

    question: QuestionRow
    length_tokens: int
    winner: str
    margin: Number
    swap_seconds: Number
    recompute_seconds: Number
    moved_bytes: Number
    copies: tuple[CopiesRow, ...]
    break_even_bytes_per_second: Number
    reached_bytes_per_second: Number
    break_even_overhead_seconds: Number | None
    break_even_copy_bytes: Number | None
    recompute_wins: tuple[SpanRow, ...]
    certificate: CertificateRow
    hybrid: HybridRow | None
    warnings: tuple[str, ...]


class LeftOutRow(msgspec.Struct, frozen=True):
    """A model without an answer."""

    model: str
    reason: str


class MapRow(msgspec.Struct, frozen=True):
    """The regime map: rows of factors by which swap is faster (below 1: slower), a row per length."""

    question: QuestionRow
    effective_bytes_per_second: tuple[float, ...]
    length_tokens: tuple[float, ...]
    speed_up: tuple[tuple[float, ...], ...]
    break_even_bytes_per_second: tuple[float, ...]
    reached_bytes_per_second: tuple[float, ...]


class PointRow(msgspec.Struct, frozen=True):
    """A measured copy, and what the nearest affine law says of it less 1."""

    size_bytes: Number
    seconds: Number
    residual: Number | None


class PairRow(msgspec.Struct, frozen=True):
    """Two points that no affine law passes through."""

    small_bytes: Number
    large_bytes: Number
    reason: str


class FitRow(msgspec.Struct, frozen=True):
    """One direction. `affine`: whether the points allow an affine law; `law`: the nearest one, allowed or not."""

    direction: str
    affine: bool
    law: LawRow | None
    points: tuple[PointRow, ...]
    refuted_by: tuple[PairRow, ...]


class Document(msgspec.Struct, frozen=True):
    """What every document begins with."""

    format: str
    format_version: int
    preempt_oracle: str
    command: str


class AnswerDocument(Document, frozen=True):
    """Of `cost break-even`."""

    answer: AnswerRow


class ComparisonDocument(Document, frozen=True):
    """Of `cost compare`."""

    answers: tuple[AnswerRow, ...]
    left_out: tuple[LeftOutRow, ...]


class MapDocument(Document, frozen=True):
    """Of `cost map`."""

    map: MapRow


class FitDocument(Document, frozen=True):
    """Of `cost fit`."""

    curve: str
    fits: tuple[FitRow, ...]


def head(command: str) -> tuple[str, int, str, str]:
    """The fields that every document begins with."""
    return FORMAT, FORMAT_VERSION, version(), command


def number(value: Fraction) -> Number:
    """Both forms."""
    return Number(str(value), float(value))


def maybe(value: Fraction | None) -> Number | None:
    """Both forms, or null."""
    return None if value is None else number(value)


def law_row(law: Law[Fraction]) -> LawRow:
    """A law of the command line: affine, or tabulated."""
    if isinstance(law, Affine):
        return LawRow("affine", number(law.overhead), number(law.bandwidth))
    assert isinstance(law, Tabulated)  # no option makes another
    return LawRow("tabulated", sizes_bytes=tuple(map(number, law.sizes)), seconds=tuple(map(number, law.seconds)))


def question_row(q: Question) -> QuestionRow:
    """What was asked."""
    s, device = q.setting, q.setting.device
    out, back = q.path.given
    return QuestionRow(
        model=q.model.id,
        model_source=q.model.source,
        model_verified=q.model.verified,
        accelerator=q.accelerator.id,
        accelerator_source=q.accelerator.source,
        accelerator_verified=q.accelerator.verified,
        tensor_parallel=int(q.ranks),
        kv_dtype=q.kv_dtype,
        block_tokens=int(s.transfer.block),
        copies=s.transfer.copies.name.lower() if q.path.size is None else "of a given size",
        trip=s.transfer.trip.name.lower(),
        directions=s.transfer.directions.name.lower(),
        run=s.run.name.lower(),
        hit=maybe(s.hit),
        hit_bytes=None if s.hit is None else s.transfer.hit.name.lower(),
        peak_flops=number(device.peak_flops),
        gemm_efficiency=number(device.gemm_efficiency),
        attention_efficiency=number(device.attention_efficiency),
        memory_bytes_per_second=number(device.memory_bandwidth),
        out=law_row(out),
        back=law_row(back),
        longest_tokens=q.longest,
        assumptions=q.assumptions,
    )


def _bounds(r: Range[Fraction]) -> Bounds:
    return Bounds(maybe(r.least), maybe(r.most))


def answer_row(a: Answer) -> AnswerRow:
    """An answer in full."""
    c = a.certificate
    return AnswerRow(
        question=question_row(a.question),
        length_tokens=int(a.length),
        winner=a.choice.value,
        margin=number(a.margin),
        swap_seconds=number(a.swap),
        recompute_seconds=number(a.recompute),
        moved_bytes=number(a.kv_bytes),
        copies=tuple(CopiesRow(number(b.count), number(b.size)) for b in a.copies),
        break_even_bytes_per_second=number(a.break_even),
        reached_bytes_per_second=number(a.achieved),
        break_even_overhead_seconds=maybe(a.most_overhead),
        break_even_copy_bytes=maybe(a.least_size),
        recompute_wins=tuple(SpanRow(s.first, s.last) for s in a.recompute_lengths),
        certificate=CertificateRow(
            c.winner.value, _bounds(c.bandwidth), _bounds(c.flops), _bounds(c.memory), _bounds(c.length), c.why
        ),
        hybrid=None if a.hybrid is None else HybridRow(number(a.hybrid.recomputed), number(a.hybrid.seconds)),
        warnings=a.warnings,
    )


def point_row(point: Point[Fraction], residual: Fraction | None) -> PointRow:
    """A measured copy."""
    return PointRow(number(point.size), number(point.seconds), maybe(residual))


def map_row(question: Question, regime: Regime) -> MapRow:
    """A regime map in numbers."""
    return MapRow(
        question_row(question),
        regime.bandwidths,
        regime.lengths,
        regime.speed_up(),
        regime.break_even,
        regime.reached,
    )


def answer_document(a: Answer) -> bytes:
    """Of `cost break-even`."""
    return encode(AnswerDocument(*head("break-even"), answer_row(a)))


def comparison_document(answers: Iterable[Answer], left_out: Iterable[tuple[str, str]]) -> bytes:
    """Of `cost compare`."""
    rows = tuple(map(answer_row, answers))
    return encode(ComparisonDocument(*head("compare"), rows, tuple(LeftOutRow(*pair) for pair in left_out)))


def map_document(row: MapRow) -> bytes:
    """Of `cost map`."""
    return encode(MapDocument(*head("map"), row))


def fit_document(curve: str, rows: Sequence[FitRow]) -> bytes:
    """Of `cost fit`."""
    return encode(FitDocument(*head("fit"), curve, tuple(rows)))
