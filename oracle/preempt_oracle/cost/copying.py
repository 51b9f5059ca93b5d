"""How KV crosses the link, from the options that say it -> copy laws, the pieces, and what that assumes."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from preempt_spec.cost.copies import Affine, Law, covers, effective_bandwidth
from preempt_spec.cost.swap import Copies

from .curves import CopyCurve, read
from .errors import CostInputError
from .quantities import parse
from .registry import Accelerator, find_curve
from .units import BANDWIDTH, BYTES, SECONDS
from .wording import show

#: What --copy-size may say besides a size.
PIECES: Final = {"auto": Copies.PER_TENSOR, "block": Copies.PER_BLOCK, "request": Copies.GATHERED}
_IN: Final = {
    Copies.PER_TENSOR: "one copy per block, layer, and K or V",
    Copies.PER_BLOCK: "one copy per block, all layers in it",
    Copies.GATHERED: "one copy for the whole request",
}


@frozen
class CopyPath:
    """Two laws and the pieces they are applied to."""

    out: Law[Fraction]
    """Device to host."""
    back: Law[Fraction]
    """Host to device."""
    copies: Copies
    size: Fraction | None
    """Bytes of one copy if that was given as a number; the laws then have it in them already."""
    given: tuple[Law[Fraction], Law[Fraction]]
    """The laws before that: those of single copies of any size."""
    assumptions: tuple[str, ...]


def copy_path(
    bandwidth: str | None, overhead: str | None, size: str | None, curve: str | None, accelerator: Accelerator
) -> CopyPath:
    """The path that the options describe; which of them go together has been looked at. Raises CostInputError."""
    if curve is not None:
        path = _measured(curve, size)
    else:
        out, back, source = _link(bandwidth, accelerator)
        fixed = parse(overhead, SECONDS, "--copy-overhead", zero=True) if overhead is not None else Fraction(0)
        copies = PIECES.get(size or "auto", Copies.PER_TENSOR) if overhead is not None else Copies.GATHERED
        laws = Affine(fixed, out), Affine(fixed, back)
        said = f"{_IN[copies]}; each takes {show(fixed, SECONDS)} and its bytes over {source}"
        if overhead is None:
            said = f"copies cost nothing but their bytes, over {source} (--copy-overhead 5us, or a measured --curve)"
        path = CopyPath(*laws, copies, None, laws, (said,))
    return path if size is None or size in PIECES else _of_size(path, parse(size, BYTES, "--copy-size"))


def _link(bandwidth: str | None, accelerator: Accelerator) -> tuple[Fraction, Fraction, str]:
    """Bandwidths out and back, and where they are from."""
    if bandwidth is not None:
        rate = parse(bandwidth, BANDWIDTH, "--bandwidth")
        return rate, rate, f"{show(rate, BANDWIDTH)} each way"
    link = f"{accelerator.link} of {accelerator.name}"
    if accelerator.measured:
        rates = accelerator.measured[0]
        out, back = rates.out or rates.back, rates.back or rates.out
        assert out is not None  # a rate measures something
        assert back is not None
        like = "" if rates.out and rates.back else "; one way was measured, the other is taken to be like it"
        return out, back, f"the {link} as measured, {show(out, BANDWIDTH)} out and {show(back, BANDWIDTH)} back{like}"
    paper = accelerator.link_bandwidth
    if paper is None:
        raise CostInputError("--bandwidth", "", f"is needed: that of the link of {accelerator.name} is not known")
    return paper, paper, f"the {link}, {show(paper, BANDWIDTH)} each way ON PAPER: copies reach less"


def _measured(name: str, size: str | None) -> CopyPath:
    """A curve of the registry, or of a file."""
    curve = curve_of(name, "--curve")
    laws = curve.laws()
    copies = PIECES.get(size or "auto", Copies.PER_TENSOR)
    said = [f"{_IN[copies]}, as measured: {curve.setup or curve.id}"]
    if curve.assumes:
        said.append(curve.assumes)
    return CopyPath(*laws, copies, None, laws, tuple(said))


def curve_of(name: str, where: str) -> CopyCurve:
    """The curve of that name, or of the file there. Raises CostInputError."""
    if name.endswith(".csv") or "/" in name:
        return read(Path(name))
    return find_curve(name, where)


def _of_size(path: CopyPath, size: Fraction) -> CopyPath:
    """The same in copies of a given size: n bytes take n / size times one copy, which is a bandwidth."""
    out, back = (Affine(Fraction(0), effective_bandwidth(law, size)) for law in path.given)
    said = path.assumptions[0].replace(_IN[path.copies], f"copies of {show(size, BYTES)}", 1)
    return evolve(
        path, out=out, back=back, copies=Copies.GATHERED, size=size, assumptions=(said, *path.assumptions[1:])
    )


def beyond(path: CopyPath, size: Fraction) -> str:
    """What is extrapolated for copies of `size` bytes; "" if nothing."""
    if all(covers(law, size) for law in path.given):
        return ""
    return f"WARNING: copies of {show(size, BYTES)} are outside of what was measured; the nearest point stands for them"
