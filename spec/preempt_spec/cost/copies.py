"""How long one copy over the host link takes, as a function of its size: copy laws.

A law is what was measured or assumed for ONE direction. Affine: a fixed cost and a bandwidth. Tabulated: measured
points. Piecewise: two laws and the size at which the driver or library changes its protocol.
"""

from __future__ import annotations

from typing import Generic, TypeAlias

from attrs import frozen

from preempt_spec.cost.number import N


@frozen
class Affine(Generic[N]):
    """overhead + size / bandwidth."""

    overhead: N
    """Seconds per copy, whatever its size; 0 or more."""
    bandwidth: N
    """bytes/s in this direction that a very large copy approaches."""


@frozen
class Tabulated(Generic[N]):
    """Measured points, straight lines between them.

    Outside of the points the law extrapolates so: below the smallest size a copy takes as long as that size; above the
    largest it runs at that size's effective bandwidth. `covers` tells whether a size needs it.
    """

    sizes: tuple[N, ...]
    """bytes, strictly increasing."""
    seconds: tuple[N, ...]
    """Time of one copy of each size."""


@frozen
class Piecewise(Generic[N]):
    """A protocol switch: one law below a size, another from it on."""

    small: Law[N]
    """The law of copies smaller than `switch`."""
    switch: N
    """bytes."""
    large: Law[N]
    """The law of the others."""


Law: TypeAlias = Affine[N] | Tabulated[N] | Piecewise[N]


def copy_time(law: Law[N], size: N) -> N:
    """Return the seconds that one copy of `size` bytes takes."""
    if isinstance(law, Affine):
        return law.overhead + size / law.bandwidth
    if isinstance(law, Piecewise):
        return copy_time(law.small if size < law.switch else law.large, size)
    return _interpolated(law, size)


def _interpolated(law: Tabulated[N], size: N) -> N:
    sizes, seconds = law.sizes, law.seconds
    if size < sizes[0]:
        return seconds[0]
    for i in range(1, len(sizes)):
        if size < sizes[i]:
            share = (size - sizes[i - 1]) / (sizes[i] - sizes[i - 1])
            return seconds[i - 1] + share * (seconds[i] - seconds[i - 1])
    return seconds[-1] * size / sizes[-1]


def covers(law: Law[N], size: N) -> bool:
    """Tell whether `size` lies within what was measured; always so for an affine law, which claims every size."""
    if isinstance(law, Affine):
        return True
    if isinstance(law, Piecewise):
        return covers(law.small if size < law.switch else law.large, size)
    return law.sizes[0] <= size <= law.sizes[-1]


def breakpoints(law: Law[N]) -> tuple[N, ...]:
    """Return the sizes between which the law is a straight line."""
    if isinstance(law, Affine):
        return ()
    if isinstance(law, Piecewise):
        return (*breakpoints(law.small), law.switch, *breakpoints(law.large))
    return law.sizes


def effective_bandwidth(law: Law[N], size: N) -> N:
    """Return the bytes/s, in the law's direction, that copies of `size` bytes reach."""
    return size / copy_time(law, size)


def half_bandwidth_size(law: Affine[N]) -> N:
    """Return the bytes at which the effective bandwidth is half of the law's."""
    return law.overhead * law.bandwidth


def size_for(law: Affine[N], bandwidth: N) -> N:
    """Return the least bytes per copy that reach an effective `bandwidth` (bytes/s, below the law's)."""
    return law.overhead * law.bandwidth * bandwidth / (law.bandwidth - bandwidth)


def overhead_for(size: N, link_bandwidth: N, bandwidth: N) -> N:
    """Return the most seconds per copy with which `size`-byte copies still reach an effective `bandwidth`."""
    return size / bandwidth - size / link_bandwidth


def staged_bandwidth(link_bandwidth: N, host_bandwidth: N) -> N:
    """Return the bytes/s of a copy from pageable memory: through a staging buffer, then over the link."""
    return link_bandwidth * host_bandwidth / (link_bandwidth + host_bandwidth)
