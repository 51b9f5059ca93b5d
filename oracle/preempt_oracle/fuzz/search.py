"""Where the next workload comes from: fresh bytes, or bytes that once led somewhere new, changed a little.

A workload is decoded from bytes (`drawn.Bytes`), so that a change of a byte changes one choice. Of several candidates
the one is driven that leads to what was seen least, as a sketch of the reference foresees it (`properties.sketch`,
about a hundred times as fast as driving). What then reached an abstract state that nothing had reached before is kept,
and changed again: the rarer what it reached, the more often. Rules count as states do: how often each was put to the
test, by powers of two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random

from attrs import define

from preempt_oracle.campaign import Origin
from preempt_oracle.drive import Run
from preempt_oracle.fuzz.states import Abstract, abstract
from preempt_oracle.trace import wire
from preempt_properties.drawn import Bytes
from preempt_properties.scenario import Scenario
from preempt_properties.sketch import Sketch
from preempt_properties.workload import workload
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.view import View

LENGTH = 200  # bytes of a fresh input: most workloads are decoded from fewer
CANDIDATES = 5  # sketched for each that is tried
START = 20  # what starting and ending a workload costs, in steps
FRESH = 50  # percent of all workloads
CORPUS = 400  # inputs kept; behind that the ones that have become common go
HEAD = 16  # bytes that decide the configuration, roughly: changed less often than what follows
Feature = Abstract | tuple[str, int]


@define
class Entry:
    """An input that reached something new."""

    data: bytes
    features: frozenset[Feature]
    tried: int = 0  # inputs made from it


class Search:
    """A source of workloads for one profile and one engine's capabilities; the same for the same seed and feedback."""

    def __init__(
        self, seed: int, policy: str, capabilities: frozenset[str], *, candidates: int = CANDIDATES, fresh: int = FRESH
    ) -> None:
        """`candidates`: inputs sketched for each that is tried; `fresh`: percent of them that are drawn anew."""
        self.policy, self.capabilities, self.candidates, self.fresh = policy, capabilities, candidates, fresh
        self._sketch = Sketch(PROFILES[policy].contract)
        self._foreseen: Counter[int] = Counter()  # workloads tried in which the sketch saw a state
        self._reached: set[Abstract] = set()  # by the last workload
        self.seed, self.drawn = seed, 0  # workloads so far
        self.sketched = 0  # steps of candidates
        self.corpus: list[Entry] = []
        self.seen: Counter[Feature] = Counter()  # workloads that had a feature
        self._random = Random(seed)
        self._last = b""

    @property
    def states(self) -> set[Abstract]:
        """Abstract states reached."""
        return {f for f in self.seen if not isinstance(f[0], str)}

    def origin(self) -> Origin:
        """Which one the last workload was."""
        return Origin(f"workload {self.drawn} of fuzz seed {self.seed}", f"{self.seed}-{self.drawn}")

    def watch(self, shadow: View, step: wire.Step) -> None:
        """The state behind a step of the last workload."""
        self._reached.add(abstract(shadow, step))

    def ran(self, run: Run) -> None:
        """The last workload is over: keep its bytes if it reached something new."""
        self._saw(self._reached, run.monitor.exercised)

    def scenario(self) -> Scenario:
        """The next workload: of several candidates the one that leads to what was seen least, by the sketch."""
        best: tuple[float, bytes, Scenario, set[int]] | None = None
        for _ in range(self.candidates):
            data = self._data()
            scenario = workload(Bytes(data), self.policy, capabilities=self.capabilities)
            steps, states = self._sketch.run(scenario)
            self.sketched += steps
            seen = self._foreseen
            worth = sum([1 / (1 + seen[x]) ** 2 for x in states]) / (START + steps)
            if best is None or worth > best[0]:
                best = worth, data, scenario, states
        assert best is not None
        _, self._last, scenario, states = best
        self._foreseen.update(states)
        self.drawn += 1
        self._reached = set()
        return scenario

    def _data(self) -> bytes:
        random = self._random
        if not self.corpus or random.randrange(100) < self.fresh:
            return random.randbytes(LENGTH)
        entry = max((random.choice(self.corpus) for _ in range(3)), key=self._weight)
        entry.tried += 1
        return self._changed(entry.data)

    def _saw(self, states: Iterable[Abstract], exercised: Mapping[str, int]) -> None:
        """What the last workload reached."""
        features: set[Feature] = {*states}
        features.update((rule, n.bit_length()) for rule, n in exercised.items() if n)
        new = any(f not in self.seen for f in features)
        self.seen.update(features)
        if new:
            self.corpus.append(Entry(self._last, frozenset(features)))
            if len(self.corpus) > CORPUS:
                self.corpus.remove(min(self.corpus, key=self._weight))

    def _weight(self, entry: Entry) -> float:
        """High for what reached something rare and was not tried often."""
        return 1.0 / (min(self.seen[f] for f in entry.features) * (1 + entry.tried))

    def _changed(self, data: bytes) -> bytes:
        random, out = self._random, bytearray(data)
        for _ in range(random.choice((1, 1, 2, 3, 5, 8))):
            first = 0 if random.randrange(3) == 0 else HEAD
            at = random.randrange(first, max(len(out), first + 1))
            match random.randrange(8):
                case 0 | 1 | 2:
                    out[at : at + 1] = bytes((random.randrange(256),))
                case 3:
                    out[at : at + 1] = bytes(((out[at] + random.choice((1, 255))) % 256 if at < len(out) else 1,))
                case 4:
                    del out[at : at + random.randint(1, 4)]
                case 5:
                    out[at:at] = random.randbytes(random.randint(1, 4))
                case 6:
                    out[at:] = random.randbytes(LENGTH - at if at < LENGTH else 8)
                case _:
                    other = random.choice(self.corpus).data
                    out[at:] = other[at:]
        return bytes(out)
