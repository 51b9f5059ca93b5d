"""The theorems of the cost model: which are meant, how they come out, how that is told. The solver runs elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from preempt_oracle.report.version import version
from preempt_oracle.second_solver import Second
from preempt_properties.theorems import THEOREMS, Registry, Theorem
from preempt_properties.z3.pool import examine_all
from preempt_properties.z3.verdict import Verdict

FORMAT = "preempt-oracle-theorems"
FORMAT_VERSION = 1


class UnknownTheorem(ValueError):
    """A word that is no id, number or family of theorems. The message has the nearest ones."""


def select(words: Iterable[str], theorems: Registry = THEOREMS) -> list[Theorem]:
    """The theorems of ids, numbers and families, in the registry's order; without words, all. Raises UnknownTheorem."""
    wanted: set[str] = set()
    words = list(words)
    for word in words:
        meant = theorems.select(word)
        if not meant:
            known = list(dict.fromkeys(w for t in theorems.values() for w in (t.id, t.number, t.family)))
            low = word.lower()
            near = get_close_matches(low, known, n=3, cutoff=0.4)
            near += [id for id in known if low and low in id and id not in near][:3]
            hint = f"; near it: {', '.join(near)}" if near else ""
            raise UnknownTheorem(f"there is no theorem or family {word!r}{hint}")
        wanted.update(t.id for t in meant)
    return [t for t in theorems.values() if not words or t.id in wanted]


def prove(theorems: Sequence[Theorem], tell: Callable[[Verdict], None] = lambda _: None) -> list[Verdict]:
    """Have them examined. Raises ModuleNotFoundError if there is no solver, ProverBroken if it does not start."""
    needed("z3")
    return examine_all([t.id for t in theorems], tell=tell)


def needed(module: str) -> None:
    """Raise ModuleNotFoundError if a package is absent, without importing it."""
    if find_spec(module) is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def export(theorems: Sequence[Theorem], verdicts: Sequence[Verdict], folder: Path) -> dict[str, Path]:
    """Write one SMT-LIB file for each theorem that stands, `family.name.smt2`; id -> file. Raises OSError."""
    from preempt_properties.z3.smtlib import export as text

    written = {}
    for theorem, verdict in zip(theorems, verdicts, strict=True):
        if verdict.stands:
            file = folder / f"{theorem.id.replace('/', '.')}.smt2"
            file.write_text(text(theorem, {name: Fraction(x) for name, x in verdict.point.items()}), encoding="utf-8")
            written[theorem.id] = file
    return written


def fails(verdicts: Iterable[Verdict], second: Mapping[str, Second]) -> bool:
    """Whether a theorem does not stand, or the second solver contradicts one."""
    return any(not v.stands for v in verdicts) or any(s.wrong for s in second.values())


def document(theorems: Sequence[Theorem], verdicts: Sequence[Verdict], second: Mapping[str, Second]) -> bytes:
    """The JSON report: exact values as text, in base units. Its fields are an interface: added to, never renamed."""
    rows: list[dict[str, Any]] = []
    for theorem, verdict in zip(theorems, verdicts, strict=True):
        row: dict[str, Any] = {
            "id": theorem.id,
            "kind": theorem.kind.value,
            "sentence": theorem.sentence,
            "hypotheses": [*theorem.hypotheses],
            "assumed": {**theorem.assumed},
            "outcome": verdict.outcome.value,
            "stands": verdict.stands,
            "reason": verdict.reason,
            "ms": round(verdict.ms, 3),
            "point": {name: {"value": x, "unit": theorem.parameters[name].unit} for name, x in verdict.point.items()},
            "shows": {name: {"value": x, "unit": theorem.shows[name][1]} for name, x in verdict.shows.items()},
        }
        if answer := second.get(theorem.id):
            row["second"] = {"answer": answer.answer, "expected": answer.expected, "ms": round(answer.ms, 3)}
        rows.append(row)
    report = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": version(),
        "stands": not fails(verdicts, second),
        "theorems": rows,
    }
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


_THOUSANDS = ((0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"))


def _steps(unit: str, behind: str, *, lowest: int) -> tuple[tuple[Fraction, str], ...]:
    return tuple((Fraction(10) ** power, f"{p}{unit}{behind}") for power, p in _THOUSANDS if power >= lowest)


#: Base unit -> units of its kind and their sizes, from small to large.
_STEPS = {
    "s": tuple((Fraction(10) ** power, unit) for power, unit in ((-9, "ns"), (-6, "µs"), (-3, "ms"), (0, "s"))),
    "B": _steps("B", "", lowest=0),
    "B/token": _steps("B", "/token", lowest=0),
    "FLOP/pair": _steps("FLOP", "/pair", lowest=0),
    "B/s": _steps("B", "/s", lowest=6),
    "FLOP/s": _steps("FLOP", "/s", lowest=6),
    "parameters": _steps(" parameters", "", lowest=0),
}


def rendered(value: str, unit: str) -> str:
    """An exact value in a unit of its size, to six digits: `4 GB/s`, `15.6 ms`, `4097 tokens`. Other text stays."""
    try:
        exact = Fraction(value)
    except (ValueError, ZeroDivisionError):
        return value
    steps = _STEPS.get(unit, ((Fraction(1), unit),))
    size, name = next((s for s in reversed(steps) if abs(exact) >= s[0]), steps[0])
    scaled = exact / size
    # A number of tokens is worth all its digits.
    plain = scaled.denominator == 1 and abs(scaled) < 10**9
    return f"{scaled.numerator if plain else f'{float(scaled):.6g}'} {name.strip()}".strip()
