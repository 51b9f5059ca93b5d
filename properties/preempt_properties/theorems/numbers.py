"""The numbers in the ids: T01–T82, I01–I15 and H01–H04 are the statements that this collection was begun with.

T: about the smooth model over the reals; I: about whole blocks, tokens and ranks; H: the hard ones. A statement that is
still made keeps its number, several theorems may share one, and N stands for what was added. Those that are made no
longer are listed here with the reason, so that none is lost by accident: a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Statements of the first collection that no theorem makes -> why.
LEFT_OUT = {
    "t16": "half of t71: convexity at the middle, where t71 has it at every point",
    "t40": "half of t72: concavity at the middle, where t72 has it at every point",
    "t51": "compares KV with hidden states, which the model does not copy",
    "i02": "i07 at blocks of 16 tokens and the numbers of one model",
    "i14": "i13 without bounds on the whole numbers, which is how i13 is stated now",
    "h03": "existence and uniqueness with quantifiers: t04 gives the witness, t05 says that it is the only one",
    "h04": "t46 with quantifiers: t46 gives the witness",
}

#: The numbers that the first collection had.
FIRST = (
    *(f"t{n:02}" for n in range(1, 83)),
    "t25e",
    *(f"i{n:02}" for n in range(1, 16)),
    *(f"h{n:02}" for n in range(1, 5)),
)


def number_of(id: str) -> str:
    """Return the number in a theorem's id ("t04" of "break-even/t04-is-one"). Raises ValueError if there is none."""
    found = re.match(r"[a-z-]+/([tihn]\d{2,3}e?)-", id)
    if found is None:
        raise ValueError(f"{id}: an id is family/number-name")
    return found[1]


def missing(ids: Iterable[str]) -> tuple[str, ...]:
    """Return the first collection's numbers that are neither among these theorems nor left out for a reason."""
    stated = {number_of(id) for id in ids}
    return tuple(n for n in FIRST if n not in stated and n not in LEFT_OUT)
