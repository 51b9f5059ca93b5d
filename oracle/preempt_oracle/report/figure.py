"""Figures by matplotlib, as SVG: the same input gives the same bytes, whatever the user's own settings of matplotlib.

Text stays text, in the reader's fonts; none of it is read as mathematics or markup. Distances on paper are in points.
"""

from __future__ import annotations

import hashlib
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any, Final, Literal, TypeAlias

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import NullFormatter
from matplotlib.transforms import Bbox

#: Where words may stand: at x, y of the axes, moved by so many points to the right and up. Words moved to the right
#: begin there, moved to the left they end there; they stand above what they are moved up from, and below likewise.
Place: TypeAlias = tuple[float, float, float, float]
Tick: TypeAlias = tuple[float, str]

INK: Final = "#1f2328"
FAINT: Final = "#59636e"
PAPER: Final = "#ffffff"
_WIDTH, _HEIGHT = 645.0, 405.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 63.0, 18.0, 50.0, 47.0  # around the axes
_AREAS, _LINES, _DOTS = 0.2, 2.0, 2.2  # from back to front; matplotlib has the grid at 0.5 and words at 3
_SETTINGS: Final[Mapping[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "preempt-oracle",  # else ids are drawn at random
    "text.parse_math": False,  # a model may be called a$x^$b
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Helvetica", "Arial"],
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.axisbelow": True,
}
_DATA: Final = re.compile(r"<dc:identifier>data: [0-9a-f]{64}<")
VERSION: Final = matplotlib.__version__


@contextmanager
def settings() -> Iterator[None]:
    """A figure is begun and written within: matplotlib keeps some settings nowhere but in its own global state."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        warnings.filterwarnings("ignore", "Glyph ")  # what the font at hand lacks the reader's may have
        yield


def begin(title: str, subtitle: str) -> Axes:
    """Empty axes below a title and a subtitle."""
    figure = Figure(figsize=(_WIDTH / 72, _HEIGHT / 72), dpi=72)
    FigureCanvasSVG(figure)
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    axes = figure.add_axes((_LEFT / _WIDTH, _BOTTOM / _HEIGHT, wide / _WIDTH, high / _HEIGHT))
    for text, up, size, colour, weight in ((title, 385.5, 12.75, INK, "bold"), (subtitle, 370, 9.4, FAINT, "normal")):
        figure.text(_LEFT / _WIDTH, up / _HEIGHT, text, size=size, color=colour, weight=weight)
    axes.grid(which="major", color=FAINT, alpha=0.27, linewidth=0.75)
    axes.grid(which="minor", color=FAINT, alpha=0.11, linewidth=0.75)
    axes.tick_params(which="both", length=0, pad=6, labelsize=9.4)
    return axes


def logarithmic(
    axes: Axes,
    which: Literal["x", "y"],
    title: str,
    ends: tuple[float, float],
    ticks: Sequence[Tick],
    minor: Sequence[float] = (),
) -> None:
    """Give one axis its ends, its title, a line and a label at each tick, and fainter lines without labels."""
    if which == "x":
        axes.set_xscale("log")
        axes.set_xlabel(title, size=10, labelpad=8)
    else:
        axes.set_yscale("log")
        axes.set_ylabel(title, size=10)
        axes.yaxis.set_label_coords(-48 / (_WIDTH - _LEFT - _RIGHT), 0.5)
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks([value for value, _ in ticks], [label for _, label in ticks])
    axis.set_ticks(minor, minor=True)
    axis.set_minor_formatter(NullFormatter())
    (axes.set_xlim if which == "x" else axes.set_ylim)(*ends)  # last: a tick beyond the ends moves them


def area(axes: Axes, x: Sequence[float], y: Sequence[float], end: float, colour: str, alpha: float) -> None:
    """Fill from a line up or down to `end`, below the grid."""
    axes.fill([*x, x[-1], x[0]], [*y, end, end], color=colour, alpha=alpha, linewidth=0, zorder=_AREAS)


def line(
    axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, width: float, dash: Sequence[float] = ()
) -> None:
    """A line through points; `dash`: points drawn and left out in turn."""
    style = (0, tuple(d / width for d in dash)) if dash else "-"  # matplotlib counts dashes in widths of the line
    axes.plot(x, y, color=colour, linewidth=width, linestyle=style, zorder=_LINES)


def dots(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str) -> None:
    """A dot at each point, with a white edge."""
    axes.plot(x, y, "o", color=colour, markersize=5, markeredgecolor=PAPER, markeredgewidth=0.75, zorder=_DOTS)


def words(
    axes: Axes, text: str, places: Iterable[Place], colour: str = INK, size: float = 9, *, bold: bool = False
) -> None:
    """Words at the first of the places that is free of lines and other words, or at the one with the least below.

    A white ground keeps them readable on what they do cover. What comes later is not taken into account: lines first.
    """
    ground = {"boxstyle": "round,pad=0.15", "facecolor": PAPER, "alpha": 0.7, "linewidth": 0}
    weight = "bold" if bold else "normal"
    others = [other.get_window_extent() for other in axes.texts]
    label = axes.annotate(
        text, (0, 0), (0, 0), textcoords="offset points", color=colour, size=size, weight=weight, bbox=ground
    )
    lines = [(x.get_transform().transform_path(x.get_path()), x.get_linewidth()) for x in axes.lines]

    def covers(place: Place) -> float:
        """How much of importance: lines by their width squared; words, or being outside, more than any line."""
        box = _stand(label, place)
        below = sum(width**2 for path, width in lines if path.intersects_bbox(box, filled=False))
        worse = sum(box.overlaps(other) for other in others)
        worse += not all(axes.bbox.contains(*corner) for corner in box.corners())
        return below + 100 * worse

    _stand(label, min(places, key=covers))


def _stand(label: Annotation, place: Place) -> Bbox:
    """Put words there; the room that they take, in pixels."""
    x, y, right, up = place
    label.xy = x, y
    label.set_position((right, up))
    label.set_horizontalalignment("left" if right > 0 else "right" if right < 0 else "center")
    label.set_verticalalignment("bottom" if up > 0 else "top" if up < 0 else "center")
    return label.get_window_extent().padded(1.5)


def svg(axes: Axes, title: str, subtitle: str) -> str:
    """The document, with a final newline."""
    figure = axes.figure
    assert isinstance(figure, Figure)  # that of `begin`, not one inside another
    out = StringIO()
    metadata = {
        "Title": title,
        "Description": subtitle,
        "Identifier": _digest(axes),
        # By default the time, and the version of matplotlib:
        "Date": None,
        "Creator": None,
    }
    figure.savefig(out, format="svg", metadata=metadata)
    return out.getvalue()


def _digest(axes: Axes) -> str:
    """What is drawn, whatever it looks like: the points of each line to six digits, and the words."""
    lines = (np.asarray(line.get_xydata(), dtype=float).tolist() for line in axes.lines)
    points = (" ".join(f"{x:.6g},{y:.6g}" for x, y in line) for line in lines)
    drawn = "\n".join([*points, *(label.get_text() for label in axes.texts)])
    return f"data: {hashlib.sha256(drawn.encode()).hexdigest()}"


def data(document: str) -> str | None:
    """What is the same in all figures by `svg` that show the same data, whichever matplotlib drew them."""
    found = _DATA.search(document)
    return found[0] if found else None


def decades(low: float, high: float, steps: Sequence[int] = (1, 2, 5)) -> list[float]:
    """The values 1, 2, 5 (or other steps) times powers of ten within the bounds."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [step * 10.0**power for power in powers for step in steps]
    return [value for value in found if low * 0.999 <= value <= high * 1.001]
