"""Plots as SVG text: a frame with two axes, and lines, areas and words in it. The same input gives the same bytes.

No library: what is needed is small, a command that draws must start fast, and a figure in the repository must come out
byte for byte alike on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, Literal, TypeAlias

from attrs import define, field, frozen

XY: TypeAlias = tuple[float, float]
Anchor: TypeAlias = Literal["start", "middle", "end"]

INK: Final = "#1f2328"
FAINT: Final = "#59636e"
GRID: Final = "#e4e7eb"
PAPER: Final = "#ffffff"
#: Pixels around the frame.
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 24, 66, 62
_FONT: Final = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif"


@frozen
class Axis:
    """From `low` to `high`, linear or logarithmic; `ticks` are values and what is written at them."""

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = True
    minor: tuple[float, ...] = ()
    """Values that get a fainter line and no label."""

    def share(self, value: float) -> float:
        """Where a value lies: 0 at `low`, 1 at `high`; what is drawn beyond is cut off at the frame."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@define
class Plot:
    """A drawing that grows by its methods; `svg` writes it. Coordinates are those of the axes."""

    title: str
    subtitle: str
    x: Axis
    y: Axis
    width: float = 860
    height: float = 540
    _under: list[str] = field(factory=list)
    _over: list[str] = field(factory=list)
    _words: list[str] = field(factory=list)

    def at(self, x: float, y: float) -> XY:
        """The place of a point of the axes, in pixels."""
        wide = self.width - _LEFT - _RIGHT
        high = self.height - _TOP - _BOTTOM
        return _LEFT + self.x.share(x) * wide, self.height - _BOTTOM - self.y.share(y) * high

    def area(self, points: Iterable[XY], colour: str, opacity: float = 1) -> None:
        """A filled polygon, below the grid."""
        self._under.append(f'<path d="{self._path(points)}Z" fill="{colour}" fill-opacity="{_n(opacity)}"/>')

    def line(self, points: Iterable[XY], colour: str, width: float = 2, dash: str = "") -> None:
        """A line through points."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._over.append(
            f'<path d="{self._path(points)}" fill="none" stroke="{colour}" stroke-width="{_n(width)}"'
            f' stroke-linejoin="round"{dashed}/>'
        )

    def dots(self, points: Iterable[XY], colour: str) -> None:
        """A dot at each point."""
        for x, y in points:
            px, py = self.at(x, y)
            self._over.append(f'<circle cx="{_n(px)}" cy="{_n(py)}" r="3.2" fill="{colour}" stroke="{PAPER}"/>')

    def words(
        self,
        x: float,
        y: float,
        text: str,
        colour: str = INK,
        size: float = 13,
        anchor: Anchor = "start",
        *,
        bold: bool = False,
        shift: XY = (0, 0),
    ) -> None:
        """Words at a point, moved by pixels (right, up); a white edge around them keeps them readable on lines."""
        px, py = self.at(x, y)
        self._words.append(_text(px + shift[0], py - shift[1], text, colour, size, anchor, bold=bold, halo=True))

    def svg(self) -> str:
        """The document, with a final newline."""
        w, h = _n(self.width), _n(self.height)
        left, bottom = self.at(self.x.low, self.y.low)
        right, top = self.at(self.x.high, self.y.high)
        frame = f'x="{_n(left)}" y="{_n(top)}" width="{_n(right - left)}" height="{_n(bottom - top)}"'
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img"'
            f' font-family="{escape(_FONT)}">',
            f"<title>{escape(self.title)}</title>",
            f"<desc>{escape(self.subtitle)}</desc>",
            f'<clipPath id="frame"><rect {frame}/></clipPath>',
            f'<rect width="{w}" height="{h}" fill="{PAPER}"/>',
            _text(left, 26, self.title, INK, 17, "start", bold=True),
            _text(left, 47, self.subtitle, FAINT, 12.5, "start"),
            '<g clip-path="url(#frame)">',
            *self._under,
            "</g>",
            *self._grid(),
            '<g clip-path="url(#frame)">',
            *self._over,
            "</g>",
            f'<rect {frame} fill="none" stroke="{FAINT}"/>',
            *self._words,
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _grid(self) -> Iterable[str]:
        left, bottom = self.at(self.x.low, self.y.low)
        right, top = self.at(self.x.high, self.y.high)
        for value in self.x.minor:
            yield _rule(self.at(value, self.y.low), self.at(value, self.y.high), 0.35)
        for value in self.y.minor:
            yield _rule(self.at(self.x.low, value), self.at(self.x.high, value), 0.35)
        for value, label in self.x.ticks:
            px, _ = self.at(value, self.y.low)
            yield _rule((px, bottom), (px, top), 0.9)
            yield _text(px, bottom + 20, label, INK, 12.5, "middle")
        for value, label in self.y.ticks:
            _, py = self.at(self.x.low, value)
            yield _rule((left, py), (right, py), 0.9)
            yield _text(left - 9, py + 4.5, label, INK, 12.5, "end")
        yield _text((left + right) / 2, self.height - 16, self.x.title, INK, 13.5, "middle")
        middle = (top + bottom) / 2
        turned = f' transform="rotate(-90 20 {_n(middle)})"'
        yield _text(20, middle, self.y.title, INK, 13.5, "middle", extra=turned)

    def _path(self, points: Iterable[XY]) -> str:
        places = [self.at(x, y) for x, y in points]
        return "M" + "L".join(f"{_n(px)} {_n(py)}" for px, py in places)


def _rule(a: XY, b: XY, opacity: float) -> str:
    return (
        f'<line x1="{_n(a[0])}" y1="{_n(a[1])}" x2="{_n(b[0])}" y2="{_n(b[1])}"'
        f' stroke="{FAINT}" stroke-opacity="{_n(opacity * 0.3)}"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    colour: str,
    size: float,
    anchor: Anchor,
    *,
    bold: bool = False,
    halo: bool = False,
    extra: str = "",
) -> str:
    weight = ' font-weight="600"' if bold else ""
    place = f'x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" text-anchor="{anchor}"{weight}{extra}'
    said = f'<text {place} fill="{colour}">{escape(text)}</text>'
    if not halo:
        return said
    edge = f'stroke="{PAPER}" stroke-opacity="0.85" stroke-width="3.5" stroke-linejoin="round"'
    return f'<text {place} fill="{PAPER}" {edge} aria-hidden="true">{escape(text)}</text>\n{said}'


def _n(value: float) -> str:
    """A coordinate: to a tenth of a pixel, which no rounding of another machine changes."""
    return f"{value:.1f}".removesuffix(".0") if value > 1 or value < -1 else f"{value:.2f}".rstrip("0").rstrip(".")


def decades(low: float, high: float, steps: Sequence[int] = (1, 2, 5)) -> list[float]:
    """The values 1, 2, 5 (or other steps) times powers of ten within the bounds."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [step * 10.0**power for power in powers for step in steps]
    return [value for value in found if low * 0.999 <= value <= high * 1.001]
