"""Is what a victim finds again what it left? KV by its digests, outputs by those of a run that nobody was preempted in.

Pure: an adapter takes the digests in the engine's process, right before a victim's KV goes out and right after it came
back, slot by slot, for the keys and the values of every layer. Here they are compared.

Outputs: greedy decoding says the same under pressure and without, as long as the numbers decide. Who is recomputed gets
the same context and not the same bits, so where the two best tokens were closer than the tolerance the streams may
part, which is counted, and ends the comparison of that request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import Factory, frozen, mutable

from preempt_oracle.verdict import Verdict
from preempt_spec.rules import Violation

ROUND_TRIP, STREAM = "swap/round-trip", "output/stream"

#: Logits this close may change places when a batch has another shape. float32, logits of a few units: rounding is some
#: 1e-6 of that.
TOLERANCE = 1e-4


@frozen
class Image:
    """The KV of a request's first `tokens` tokens. `parts`: "0/k", "0/v", … -> a digest per token."""

    tokens: int
    parts: Mapping[str, tuple[str, ...]]


@frozen
class Trip:
    """A victim's KV when it went out, and when it came back; `back` None: it never did."""

    request: str
    out: Image
    back: Image | None


@frozen
class Said:
    """What a request was given, token by token; the token that the logits preferred, and by how much."""

    tokens: tuple[int, ...]
    best: tuple[int, ...]
    margins: tuple[float, ...]


@frozen
class Round:
    """Some requests, once with too few blocks and once with enough."""

    seed: int
    trips: tuple[Trip, ...]
    pressed: Mapping[str, Said]
    unpressed: Mapping[str, Said]
    recomputed: int = 0  # victims whose KV was dropped
    hits: int = 0  # tokens that were not computed, since others had


@mutable
class Comparison:
    """What was compared so far, and what was wrong with it."""

    rounds: int = 0
    victims: int = 0  # whose KV was compared
    slots: int = 0  # digests compared
    recomputed: int = 0
    hits: int = 0
    streams: int = 0  # requests whose outputs were compared
    tokens: int = 0
    ties: int = 0  # streams that parted where the margin was below the tolerance
    violations: list[tuple[int, Violation]] = Factory(list)  # (seed of the round, what)

    def add(self, round: Round, tolerance: float = TOLERANCE) -> None:
        """Compare one round."""
        self.rounds += 1
        self.recomputed += round.recomputed
        self.hits += round.hits
        for trip in round.trips:
            self.victims += trip.back is not None
            self.slots += sum(map(len, trip.out.parts.values()))
            if wrong := changed(trip):
                self.violations.append((round.seed, Violation(ROUND_TRIP, wrong)))
        for request, said in round.pressed.items():
            alone = round.unpressed.get(request, Said((), (), ()))
            self.streams += 1
            same = agreeing(said, alone)
            self.tokens += same
            if wrong := parted(request, said, alone, same, tolerance):
                self.violations.append((round.seed, Violation(STREAM, wrong)))
            elif same < max(len(said.tokens), len(alone.tokens)):
                self.ties += 1

    def verdict(self, victims: int) -> Verdict:
        """Violates; or inconclusive, if fewer victims came back than were asked for; or conforms."""
        if self.violations:
            return Verdict.VIOLATES
        return Verdict.CONFORMS if self.victims >= victims else Verdict.INCONCLUSIVE


def changed(trip: Trip) -> str:
    """How the KV that came back differs from what went out; "" if it does not."""
    name, out, back = trip.request, trip.out, trip.back
    if back is None:
        return f"the KV of {name} went out and never came back"
    if back.tokens != out.tokens:
        return f"{name} went out with {out.tokens} computed tokens and goes on with {back.tokens}"
    if out.parts.keys() != back.parts.keys() or not out.parts:
        return f"{name} went out with {len(out.parts)} components and came back with {len(back.parts)}"
    wrong = [(p, slot) for p, slot in _differing(out, back)]
    if not wrong:
        return ""
    parts, slots = dict.fromkeys(p for p, _ in wrong), dict.fromkeys(slot for _, slot in wrong)
    where = f"token {min(slots)}" if len(slots) == 1 else f"{len(slots)} of {out.tokens} tokens, the first {min(slots)}"
    which = "every layer" if len(parts) == len(out.parts) else f"layer/part {', '.join(parts)}"
    return f"the KV of {name} came back as something else: {where}, {which}"


def _differing(out: Image, back: Image) -> Iterator[tuple[str, int]]:
    for part, digests in out.parts.items():
        other = back.parts[part]
        for slot in range(max(len(digests), len(other))):
            if digests[slot : slot + 1] != other[slot : slot + 1]:
                yield part, slot


def agreeing(said: Said, alone: Said) -> int:
    """Tokens up to which both streams say the same."""
    pairs = zip(said.tokens, alone.tokens, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(said.tokens), len(alone.tokens)))


def parted(request: str, said: Said, alone: Said, same: int, tolerance: float) -> str:
    """What is wrong with a stream; "" if it says the same, or parts where the numbers do not decide."""
    for i, (token, best) in enumerate(zip(said.tokens, said.best, strict=False)):
        if token != best:
            return f"{request} is given {token} as output {i}; the logits prefer {best}"
    if same == len(said.tokens) == len(alone.tokens):
        return ""
    if same < min(len(said.tokens), len(alone.tokens)):
        margin = alone.margins[same] if same < len(alone.margins) else 0.0
        if margin < tolerance:
            return ""
        return (
            f"output {same} of {request} is {said.tokens[same]} under pressure and {alone.tokens[same]} without; "
            f"the logits are {margin:.3g} apart"
        )
    return f"{request} is given {len(said.tokens)} outputs under pressure and {len(alone.tokens)} without"
