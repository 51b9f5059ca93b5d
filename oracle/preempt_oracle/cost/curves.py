"""Measured copy curves: effective bandwidth, or time, over the size of one copy. The registry's, or a user's CSV.

```csv
size [KiB], bandwidth [GB/s], direction
4, 0.92, out
8, 2.2, out
4, 1.21, back
8, 2.32, back
```

The header names the columns and their units, in brackets or parentheses: `size` and either `bandwidth` (per direction)
or `time` (of one copy), in any order. Optional: `direction` (out or d2h: device to host; back or h2d: host to device;
without the column the curve holds for both) and `error` (± of the bandwidth or time, in its dimension, or in %). Within
a direction the sizes grow. Empty lines and lines that begin with # are passed over.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Final, Literal, TypeAlias

from attrs import frozen

from preempt_spec.cost.copies import Tabulated
from preempt_spec.cost.fit import Point, point_from_bandwidth, tabulated

from .errors import CostInputError, near, quoted
from .quantities import parse
from .rows import CopyRow
from .units import BANDWIDTH, BYTES, SECONDS, SHARE, Dimension

Points: TypeAlias = tuple[Point[Fraction], ...]
Direction: TypeAlias = Literal["out", "back"]

_LARGEST: Final = 1 << 20  # bytes
_MOST_ROWS: Final = 10_000
_COLUMNS: Final[dict[str, tuple[Dimension, ...]]] = {
    "size": (BYTES,),
    "bandwidth": (BANDWIDTH,),
    "time": (SECONDS,),
    "direction": (),
    "error": (BANDWIDTH, SECONDS, SHARE),
}
_DIRECTIONS: Final[dict[str, Direction]] = {"out": "out", "d2h": "out", "back": "back", "in": "back", "h2d": "back"}
_WAYS: Final[tuple[Direction, Direction]] = ("out", "back")
_HEADING: Final = re.compile(r"(?P<name>[A-Za-z]+)\s*(?:\[(?P<unit>[^\]]*)\]|\((?P<unit2>[^)]*)\))?")


@frozen
class CopyCurve:
    """Measured copies of growing size, per direction; None: that direction was not measured."""

    id: str  # of the registry, or the path of the file
    source: str
    verified: bool
    note: str
    setup: str
    out: Points | None  # device to host
    back: Points | None  # host to device

    def laws(self) -> tuple[Tabulated[Fraction], Tabulated[Fraction]]:
        """The laws out and back that pass through the points; a direction that was not measured is like the other.

        `assumes` says if that was so.
        """
        out = self.out or self.back
        back = self.back or self.out
        assert out is not None  # no curve is without points
        assert back is not None
        return tabulated(out), tabulated(back)

    @property
    def assumes(self) -> str:
        """What `laws` had to assume; "" if nothing."""
        if self.out is None:
            return "device to host was not measured: taken to be like host to device"
        if self.back is None:
            return "host to device was not measured: taken to be like device to host"
        return ""


def from_row(row: CopyRow) -> CopyCurve:
    """The curve of a row of the registry."""

    def quantity(text: str, dimension: Dimension) -> Fraction:
        return parse(text, dimension, "registry", field=row.id)

    error = quantity(row.error, BANDWIDTH) if row.error else Fraction(0)

    def points(pairs: tuple[tuple[str, str], ...]) -> Points | None:
        return tuple(
            point_from_bandwidth(quantity(size, BYTES), quantity(bandwidth, BANDWIDTH), error)
            for size, bandwidth in pairs
        ) or None  # fmt: skip

    return CopyCurve(row.id, row.source, row.verified, row.note, row.setup, points(row.out), points(row.back))


def read(path: Path) -> CopyCurve:
    """The curve of a user's CSV file. Raises CostInputError that names the line and the column."""
    where = str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise CostInputError(where, "", f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return decode(raw, where)


def decode(raw: bytes, where: str) -> CopyCurve:
    """The curve that the bytes of a CSV file hold; `where` names them in errors. Raises CostInputError."""
    lines = _lines(raw, where)
    number, heading = next(lines, (0, None))
    if heading is None:
        raise CostInputError(where, "", "is empty; a heading such as 'size [KiB], bandwidth [GB/s]' is expected")
    columns = _columns(heading, f"{where}:{number}")
    found: dict[Direction | None, list[Point[Fraction]]] = {}
    for number, cells in lines:
        at = f"{where}:{number}"
        if len(cells) != len(columns.names):
            raise CostInputError(at, "", f"has {len(cells)} cells, the heading {len(columns.names)}")
        direction, point = columns.point(dict(zip(columns.names, cells, strict=True)), at)
        before = found.setdefault(direction, [])
        if before and point.size <= before[-1].size:
            of = f" of direction {direction}" if direction else ""
            raise CostInputError(at, "size", f"is not above the size before it{of}: sizes must grow")
        before.append(point)
    if not found or any(len(measured) < 2 for measured in found.values()):
        raise CostInputError(where, "size", "has fewer than 2 sizes in a direction; a curve needs 2 or more")
    out, back = (tuple(points) if (points := found.get(None) or found.get(way)) else None for way in _WAYS)
    return CopyCurve(where, where, True, "", "", out, back)


def _lines(raw: bytes, where: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line with its number."""
    if len(raw) > _LARGEST:
        raise CostInputError(where, "", f"is larger than {_LARGEST} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CostInputError(where, "", "is not UTF-8 text") from None
    given = 0
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        given += 1
        if given > _MOST_ROWS:
            raise CostInputError(where, "", f"has more than {_MOST_ROWS} lines")
        try:
            # One line at a time: a quotation mark left open must not swallow the rest of the file.
            cells = next(csv.reader([line], skipinitialspace=True, strict=True))
        except csv.Error as error:
            raise CostInputError(f"{where}:{number}", "", f"is not CSV: {error}") from None
        yield number, [cell.strip() for cell in cells]


@frozen
class _Columns:
    """What the heading says."""

    names: tuple[str, ...]
    units: dict[str, tuple[str, Dimension]]  # column -> its unit and what that measures

    def point(self, cells: dict[str, str], at: str) -> tuple[Direction | None, Point[Fraction]]:
        """The direction and the measurement of one line."""
        size = self._quantity("size", cells, at)
        measured = "bandwidth" if "bandwidth" in cells else "time"
        value = self._quantity(measured, cells, at)
        error = self._error(cells, at, value)
        if error >= value:
            raise CostInputError(at, "error", f"is not below the {measured} itself")
        if measured == "bandwidth":
            point = point_from_bandwidth(size, value, error)
        else:
            point = Point(size, value, value - error, value + error)
        return self._direction(cells, at), point

    def _quantity(self, name: str, cells: dict[str, str], at: str, *, zero: bool = False) -> Fraction:
        unit, dimension = self.units[name]
        cell = cells[name]
        # A unit in the cell as well could contradict the heading's.
        if cell and not cell[-1].isdigit():
            raise CostInputError(at, name, f"{quoted(cell)} is not a plain number (the heading gives the unit {unit})")
        return parse(f"{cell}{unit}" if cell else "", dimension, at, field=name, zero=zero)

    def _error(self, cells: dict[str, str], at: str, value: Fraction) -> Fraction:
        if "error" not in cells:
            return Fraction(0)
        error = self._quantity("error", cells, at, zero=True)
        return error * value if self.units["error"][1] is SHARE else error

    def _direction(self, cells: dict[str, str], at: str) -> Direction | None:
        if "direction" not in cells:
            return None
        direction = _DIRECTIONS.get(cells["direction"].casefold())
        if direction is None:
            raise CostInputError(
                at, "direction", f"{quoted(cells['direction'])} is not one of {', '.join(_DIRECTIONS)}"
            )
        return direction


def _columns(heading: list[str], at: str) -> _Columns:
    names: list[str] = []
    units: dict[str, tuple[str, Dimension]] = {}
    for cell in heading:
        match = _HEADING.fullmatch(cell)
        name = match["name"].casefold() if match else cell
        if match is None or name not in _COLUMNS:
            hint = near(name, list(_COLUMNS)) or f"; known: {', '.join(_COLUMNS)}"
            raise CostInputError(at, "", f"{quoted(cell)} is no known column{hint}")
        if name in names:
            raise CostInputError(at, name, "is there twice")
        names.append(name)
        if dimensions := _COLUMNS[name]:
            units[name] = _unit(name, (match["unit"] or match["unit2"] or "").strip(), dimensions, at)
    _complete(names, units, at)
    return _Columns(tuple(names), units)


def _unit(name: str, unit: str, dimensions: tuple[Dimension, ...], at: str) -> tuple[str, Dimension]:
    for dimension in dimensions:
        if unit and unit in dimension.units:
            return unit, dimension
    listed = ", ".join(d.listed for d in dimensions)
    said = f"has the unit {quoted(unit)}" if unit else "has no unit"
    raise CostInputError(at, name, f"{said}; write it into the heading, such as {name} [{_EXAMPLES[name]}] ({listed})")


_EXAMPLES: Final = {"size": "KiB", "bandwidth": "GB/s", "time": "us", "error": "%"}


def _complete(names: list[str], units: dict[str, tuple[str, Dimension]], at: str) -> None:
    if "size" not in names:
        raise CostInputError(at, "size", "is missing among the columns")
    if ("bandwidth" in names) == ("time" in names):
        raise CostInputError(at, "bandwidth", "and time: exactly one of these columns is expected")
    if "error" in names:
        measured = units["bandwidth" if "bandwidth" in names else "time"][1]
        if units["error"][1] not in (measured, SHARE):
            raise CostInputError(at, "error", f"is {units['error'][1].name}, but the curve measures {measured.name}")
