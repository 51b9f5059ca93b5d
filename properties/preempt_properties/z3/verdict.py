"""What came of a theorem. Knows nothing of the solver, so that whoever starts the prover need not load it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs


class Outcome(Enum):
    """How the examination of a theorem ended. The first three are what theorems assert."""

    PROVED = "proved"
    FALSE = "false"
    WITNESS = "witness"
    #: Asserted proved, and a counterexample was found.
    REFUTED = "refuted"
    #: Asserted false or a witness, and it holds everywhere; or it holds nowhere.
    NOT_AS_STATED = "not as stated"
    #: Nothing meets the hypotheses.
    VACUOUS = "vacuous"
    #: A hypothesis is not necessary, or is declared so and is.
    HYPOTHESES = "hypotheses"
    #: The solver does not know, or ran out of its time.
    UNKNOWN = "unknown"
    #: A proposition cannot be evaluated symbolically, or the solver and plain arithmetic disagree.
    BROKEN = "broken"


@attrs.frozen(kw_only=True)
class Verdict:
    """The outcome for one theorem."""

    id: str
    outcome: Outcome
    #: Whether the outcome is what the theorem asserts, every check included.
    stands: bool
    #: Why it does not stand; empty if it does.
    reason: str = ""
    #: Processor time of all its checks, in milliseconds.
    ms: float = 0.0
    #: Counterexample or witness: parameter -> exact value in base units, as text ("3/4").
    point: Mapping[str, str] = attrs.field(factory=dict)
    #: What the theorem shows there: name -> exact value, as text.
    shows: Mapping[str, str] = attrs.field(factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain data; `from_json` reads it."""
        return {**attrs.asdict(self), "outcome": self.outcome.value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """Raises TypeError, ValueError or KeyError on anything else."""
        return cls(**{**data, "outcome": Outcome(data["outcome"])})
