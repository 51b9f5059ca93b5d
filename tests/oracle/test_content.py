"""KV that comes back and outputs under pressure, compared: what is told apart, and what is let pass."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from preempt_oracle.adapters.protocol import HarnessError
from preempt_oracle.content import Comparison, Image, Round, Said, Trip
from preempt_oracle.content_run import PAGE, Caught, compare, injected, play, read, sizes
from preempt_oracle.inject import Fault
from preempt_oracle.verdict import Verdict

OUT = Image(3, {"0/k": ("a", "b", "c"), "0/v": ("d", "e", "f"), "1/k": ("g", "h", "i"), "1/v": ("j", "k", "l")})
SAID = Said((5, 6, 7), (5, 6, 7), (0.5, 0.5, 0.5))


def back(**parts: tuple[str, ...]) -> Image:
    """The image, with these parts of it otherwise: `k1` is the keys of layer 1."""
    changed = {f"{name[1]}/{name[0]}": digests for name, digests in parts.items()}
    return evolve(OUT, parts={**OUT.parts, **changed})


def judged(trips: tuple[Trip, ...] = (), pressed: Said = SAID, alone: Said = SAID) -> Comparison:
    out = Comparison()
    out.add(Round(1, trips, {"r": pressed}, {"r": alone}))
    return out


def wrong(found: Comparison) -> tuple[str, str]:
    ((seed, violation),) = found.violations
    assert seed == 1
    return violation.rule, violation.message


def test_what_comes_back_as_it_went_is_right():
    found = judged((Trip("r", OUT, back()),))
    assert found.violations == []
    assert (found.victims, found.slots, found.streams, found.tokens, found.ties) == (1, 12, 1, 3, 0)
    assert found.verdict(1) is Verdict.CONFORMS
    assert found.verdict(2) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("image", "says"),
    [
        (back(k1=("g", "x", "i")), "token 1, layer/part 1/k"),
        (back(k1=("x", "y", "z"), v1=("x", "y", "z")), "3 of 3 tokens, the first 0, layer/part 1/k, 1/v"),
        (back(k0=("a", "b")), "token 2, layer/part 0/k"),
        (
            Image(3, {part: (digests[0], digests[2], digests[2]) for part, digests in OUT.parts.items()}),
            "token 1, every layer",
        ),
        (evolve(OUT, tokens=2), "went out with 3 computed tokens and goes on with 2"),
        (Image(3, {"0/k": ("a", "b", "c")}), "went out with 4 components and came back with 1"),
        (None, "never came back"),
    ],
)
def test_what_comes_back_otherwise_is_named(image, says):
    rule, message = wrong(judged((Trip("r", OUT, image),)))
    assert rule == "swap/round-trip"
    assert says in message
    assert judged((Trip("r", OUT, image),)).verdict(0) is Verdict.VIOLATES


def test_streams_that_part_by_a_clear_margin_are_named():
    rule, message = wrong(judged(pressed=Said((5, 9, 9), (5, 9, 9), (0.5, 0.5, 0.5))))
    assert rule == "output/stream"
    assert message == "output 1 of r is 9 under pressure and 6 without; the logits are 0.5 apart"


def test_streams_that_part_where_rounding_decides_are_counted_and_compared_no_further():
    alone = evolve(SAID, margins=(0.5, 1e-7, 0.5))
    found = judged(pressed=Said((5, 9, 9), (5, 9, 9), (0.5, 1e-7, 0.5)), alone=alone)
    assert found.violations == []
    assert (found.tokens, found.ties) == (1, 1)


def test_a_token_that_the_logits_do_not_prefer_is_named_whoever_else_says_it():
    rule, message = wrong(judged(pressed=evolve(SAID, best=(5, 6, 8)), alone=SAID))
    assert (rule, message) == ("output/stream", "r is given 7 as output 2; the logits prefer 8")


@pytest.mark.parametrize("short", [Said((5, 6), (5, 6), (0.5, 0.5)), Said((), (), ())])
def test_a_stream_that_ends_early_is_named(short):
    assert wrong(judged(pressed=short))[0] == "output/stream"
    assert wrong(judged(alone=short))[0] == "output/stream"


class Model:
    """Stands in for an engine that runs its model: a round as told, and a fault that spoils one digest."""

    name = "model"

    def __init__(self, spoil: bool = True) -> None:
        self.spoil, self.requests, self.fault, self.asked = spoil, list[str](), "", list[str]()

    def exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(command["do"])
        match command["do"]:
            case "start":
                self.requests, self.fault = [], command["config"]["options"].get("fault", "")
                told = {"name": "stale", "does": "x", "rules": ["swap/round-trip"]}
                return {"event": "header", "faults": [told], "fired": 0}
            case "add":
                self.requests.append(command["request"])
                return {"event": "arrive"}
            case "step":
                image = {"tokens": 1, "parts": {"0/k": ["a"]}}
                came = {"tokens": 1, "parts": {"0/k": ["b" if self.fault and self.spoil else "a"]}}
                said = {r: {"tokens": [1], "best": [1], "margins": [1.0]} for r in self.requests}
                trips = [{"request": self.requests[0], "out": image, "back": came}]
                return {
                    "event": "content", "trips": trips, "pressed": said, "unpressed": said, "recomputed": 2,
                    "fired": int(bool(self.fault)),
                }  # fmt: skip
        return {"event": "stopped"}

    def close(self) -> None: ...


def test_rounds_are_run_until_enough_victims_came_back():
    seen: list[int] = []
    found = compare(Model(), 3, 4, lambda c: seen.append(c.victims))
    assert seen == [1, 2, 3, 4]
    assert (found.rounds, found.victims, found.recomputed, found.verdict(4)) == (4, 4, 8, Verdict.CONFORMS)


def test_a_fault_is_caught_by_its_rule_or_not():
    (row,) = injected(Model(), 0)
    assert (row.rightly, row.fired, row.rules, row.rounds) == (True, 1, ("swap/round-trip",), 1)
    (row,) = injected(Model(spoil=False), 0, rounds=2)
    assert (row.rightly, row.fired, row.rules, row.rounds) == (False, 2, (), 2)
    fault = Fault("f", "", ("swap/round-trip",), also=("output/stream",))
    assert not Caught(fault, 1, ("output/stream",), "", 1).rightly
    assert not Caught(fault, 1, ("swap/round-trip", "pool/conserve"), "", 1).rightly


def test_what_is_no_round_or_an_error_breaks_the_harness():
    class Broken(Model):
        def exchange(self, command):
            reply = super().exchange(command)
            return {**reply, "trips": [{}]} if command["do"] == "step" else reply

    class Raises(Model):
        def exchange(self, command):
            if command["do"] == "step":
                return {"event": "engine_error", "message": "no", "where": "there"}
            return super().exchange(command)

    with pytest.raises(HarnessError, match="not a round"):
        play(Broken(), 0)
    with pytest.raises(HarnessError, match="step: no"):
        play(Raises(), 0)
    with pytest.raises(KeyError):
        read(0, {})


def test_rounds_leave_room_for_the_longest_alone_and_for_no_more_than_some():
    for seed in range(100):
        s = sizes(seed)
        need = [-(-(len(a.prompt) + a.max_tokens) // PAGE) for a in s.requests]
        assert max(need) < s.blocks < sum(need)
        assert s.running <= s.budget
    assert {bool(sizes(seed).host_blocks) for seed in range(30)} == {True, False}
