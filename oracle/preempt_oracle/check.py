"""Judge recorded traces: constant memory, one pass."""

from __future__ import annotations

import gc
import shlex
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import PurePath
from typing import BinaryIO

from attrs import evolve

from preempt_oracle.divergence import diverged
from preempt_oracle.known import Ledger, Scene, Scenery
from preempt_oracle.monitor import Monitor
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_oracle.trace.errors import TraceError
from preempt_oracle.trace.series import read_all
from preempt_oracle.trace.steady import Steady, SteadyStep, whole
from preempt_oracle.trace.streams import display_name
from preempt_oracle.verdict import Failure, Tally, UnknownPolicy, out_of_contract, policy_for
from preempt_spec import SPEC_VERSION
from preempt_spec.micro import Malformed
from preempt_spec.system import observable

TAIL = 12  # events kept for a failure's context
AHEAD = 64  # lines
Placed = tuple[str, int, wire.Line | Steady]  # file, number, line


def check(
    source: str | PathLike[str] | BinaryIO,
    policy: str | None = None,
    tally: Tally | None = None,
    *,
    spec: str = SPEC_VERSION,
    known: Ledger | None = None,
    film: Callable[[Monitor], Callable[[wire.Event], None]] | None = None,
) -> Tally:
    """Judge one trace, into `tally` if given (same engine, version, policy and specification). Raises TraceError.

    Of a series in parts it is the first that is named: all are read, as one trace.

    `spec`: the version of the specification to judge by (UnknownVersion if there is none); `known`: known failures, in
    which the run is noted; `film`: given the monitor, who is to be shown each event, up to the first violation. A trace
    is read to its footer even behind a violation: a cut-off file is unreadable, whatever it showed.
    """
    with _calm():
        return _check(source, policy, tally, spec, known, film)


@contextmanager
def _calm() -> Iterator[None]:
    """Python looks for cycles less often: what a judged event leaves behind is in none, and there is much of it."""
    first, *others = gc.get_threshold()
    gc.set_threshold(first and max(first, 50_000), *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)


def _ahead(lines: Iterator[Placed]) -> Iterator[Placed]:
    """The same lines, some at a time: decoders and rules that take turns less often stay in the processor's caches.

    What stands in front of a line that cannot be read is handed out before that is said.
    """
    some: list[Placed] = []
    try:
        for line in lines:
            some.append(line)
            if len(some) == AHEAD:
                yield from some
                some.clear()
    except TraceError:
        yield from some
        raise
    yield from some


def _check(
    source: str | PathLike[str] | BinaryIO,
    policy: str | None,
    tally: Tally | None,
    spec: str,
    known: Ledger | None,
    film: Callable[[Monitor], Callable[[wire.Event], None]] | None,
) -> Tally:
    name = display_name(source)
    # Who is shown every event, or looks at it, is shown it whole.
    lines = _ahead(read_all(source, steadily=known is None and film is None))
    _, _, header = next(lines)
    assert isinstance(header, wire.Header)  # the reader yields it first, or raises
    try:
        chosen, deviations = policy_for(header, policy)
        monitor = Monitor(to_spec(header), chosen, spec)
    except UnknownPolicy as e:
        raise TraceError(name, 1, "policy", str(e)) from None
    except Malformed as e:
        raise TraceError(name, 1, e.field, e.reason) from None
    tally = tally or Tally(header.engine, header.version, policy or header.policy, deviations=deviations, spec=spec)
    options = ["--policy", policy] if policy else []
    options += ["--spec", spec] if spec != SPEC_VERSION else []
    again = "" if name == "<stdin>" else shlex.join(["preempt-oracle", "check", *options, "--", name])
    tail: deque[wire.Event | Steady] = deque(maxlen=TAIL)
    found: list[Failure] = []
    advised: dict[str, Failure] = {}  # the first of each rule
    behind = lost = 0  # steps behind the violation; events missing behind the end
    scenery = Scenery(monitor.shadow)
    see = scenery.see if known is not None else None
    show = film(monitor) if film is not None else None
    feed = monitor.feed
    for file, number, event in lines:
        if isinstance(event, wire.Footer):
            lost = event.lost
            continue
        assert not isinstance(event, wire.Header)  # the reader yields one
        tail.append(event)
        if see is not None:
            see(whole(event))
        try:
            broken = feed(event)
        except Malformed as e:
            raise TraceError(file, number, e.field, e.reason) from None
        if show is not None and (broken or not found):
            show(whole(event))
        if broken or monitor.advised:
            where, frame = f"{file}:{number}", monitor.shadow.last_frame
            for violation in broken:
                seen = diverged(monitor, whole(event), violation)
                found.append(Failure(violation, where, frame, tuple(map(whole, tail)), again, seen))
            for violation in monitor.advised:
                if violation.rule not in advised:
                    advised[violation.rule] = Failure(
                        violation, where, frame, tuple(map(whole, tail)), again, advisory=True
                    )
        elif found:
            behind += isinstance(event, wire.Step | SteadyStep)
    _note(tally, monitor, header, found, advised, behind, known, scenery.scene(header, tally.policy, _file(name)))
    tally.lost += lost
    return tally


def _note(
    tally: Tally,
    monitor: Monitor,
    header: wire.Header,
    found: list[Failure],
    advised: Mapping[str, Failure],
    behind: int,
    known: Ledger | None,
    scene: Scene,
) -> None:
    reasons: dict[str, str] = {}
    if out_of_contract(monitor.shadow):
        advised = {}
    elif known is not None:
        tested = observable(header.observes, monitor.spec)
        noted = known.note(scene, {f.violation.rule for f in found}, advised, tested)
        reasons = {rule: entry.reason for rule, entry in noted.items()}
    failures = [*found, *advised.values()]
    tally.failures += [evolve(f, known=reasons.get(f.violation.rule, "")) for f in failures]
    before = tally.ended
    tally.add(monitor, header.observes, known=reasons, advised=advised)
    tally.unjudged += behind if tally.ended > before else 0


def _file(name: str) -> str:
    """The file name by which a known failure may describe a trace; "" of a stream."""
    return "" if name in ("<stdin>", "<stream>") else PurePath(name).name
