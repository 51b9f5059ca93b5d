"""A theorem in the solver's terms: parameters as symbols, domain and hypotheses as conditions, the claim as paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import attrs
import z3

from preempt_properties.theorems.theorem import Parameter, Proposition, Theorem, call
from preempt_properties.z3.explore import Path, explore
from preempt_properties.z3.real import Real, integer, real
from preempt_properties.z3.solver import value


@attrs.frozen(eq=False)
class Statement:
    """One theorem, ready for questions."""

    theorem: Theorem
    symbols: dict[str, Real]
    domain: tuple[Any, ...]
    #: Name -> condition.
    hypotheses: dict[str, Any]

    def paths(self, proposition: Proposition, assumptions: Sequence[Any], **how: Any) -> Iterator[Path]:
        """The paths of a proposition. Raises TypeError if it returns anything but a bool."""
        for path in explore(lambda: call(proposition, self.symbols), assumptions=assumptions, **how):
            if not isinstance(path.value, bool | Exception):
                raise TypeError(f"a proposition must return a bool, not {type(path.value).__name__}")
            yield path

    def assumptions(self, but: str = "") -> list[Any]:
        """Domain and hypotheses, all or all but one."""
        return [*self.domain, *(condition for name, condition in self.hypotheses.items() if name != but)]

    def point(self, model: Any) -> dict[str, Fraction]:
        """The values of the parameters in a model."""
        return {name: value(model, symbol.num) for name, symbol in self.symbols.items()}

    def usual(self) -> list[Any]:
        """Every parameter where real values lie."""
        found = []
        for name, parameter in self.theorem.parameters.items():
            if parameter.usual is not None:
                low, high = (Fraction(bound) for bound in parameter.usual)
                found += [number(low) <= self.symbols[name].num, self.symbols[name].num <= number(high)]
        return found


def number(exact: Fraction) -> Any:
    """A constant of the solver."""
    return z3.RealVal(f"{exact.numerator}/{exact.denominator}")


def state(theorem: Theorem) -> Statement:
    """Put a theorem into the solver's terms."""
    symbols = {name: _symbol(name, parameter) for name, parameter in theorem.parameters.items()}
    domain: list[Any] = []
    for name, p in theorem.parameters.items():
        term = symbols[name].num
        domain += [term > number(b) for b in (p.above,) if b is not None]
        domain += [term >= number(b) for b in (p.least,) if b is not None]
        domain += [term < number(b) for b in (p.below,) if b is not None]
        domain += [term <= number(b) for b in (p.most,) if b is not None]
    made = Statement(theorem, symbols, tuple(domain), {})
    for name, hypothesis in theorem.hypotheses.items():
        made.hypotheses[name] = _condition(made.paths(hypothesis, domain))
    return made


def _symbol(name: str, p: Parameter) -> Real:
    low = max((b for b in (p.above, p.least) if b is not None), default=None)
    sign = None if low is None or low < 0 else 1 if low > 0 or p.above == low else 0
    return integer(name, sign) if p.integer else real(name, sign)


def _condition(paths: Iterator[Path]) -> Any:
    """Paths on which something holds, as one condition. Where it cannot be evaluated it does not hold."""
    ways = [z3.And(*path.conditions) if path.conditions else z3.BoolVal(True) for path in paths if path.value is True]
    return ways[0] if len(ways) == 1 else z3.Or(*ways)
