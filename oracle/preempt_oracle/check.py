"""Judge recorded traces: constant memory, one pass."""

from __future__ import annotations

import shlex
from collections import deque
from os import PathLike
from typing import BinaryIO

from preempt_oracle.divergence import diverged
from preempt_oracle.monitor import Monitor
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_oracle.trace.errors import TraceError
from preempt_oracle.trace.reader import read
from preempt_oracle.trace.streams import display_name
from preempt_oracle.verdict import Failure, Tally, UnknownPolicy, policy_for
from preempt_spec.system import Malformed

TAIL = 12  # events kept for a failure's context


def check(source: str | PathLike[str] | BinaryIO, policy: str | None = None, tally: Tally | None = None) -> Tally:
    """Judge one trace, into `tally` if given (same engine, version and policy). Raises TraceError.

    A trace is read to its footer even behind a violation: a cut-off file is unreadable, whatever it showed.
    """
    name = display_name(source)
    lines = read(source)
    _, header = next(lines)
    assert isinstance(header, wire.Header)  # the reader yields it first, or raises
    try:
        chosen, deviations = policy_for(header, policy)
        monitor = Monitor(to_spec(header), chosen)
    except UnknownPolicy as e:
        raise TraceError(name, 1, "policy", str(e)) from None
    except Malformed as e:
        raise TraceError(name, 1, e.field, e.reason) from None
    tally = tally or Tally(header.engine, header.version, policy or header.policy, deviations=deviations)
    options = ["--policy", policy] if policy else []
    tail: deque[wire.Event] = deque(maxlen=TAIL)
    feed = monitor.feed
    for number, event in lines:
        if isinstance(event, (wire.Footer, wire.Header)):
            continue  # the footer, checked by the reader
        tail.append(event)
        try:
            broken = feed(event)
        except Malformed as e:
            raise TraceError(name, number, e.field, e.reason) from None
        if broken:
            where, again = f"{name}:{number}", shlex.join(["preempt-oracle", "check", *options, "--", name])
            if name == "<stdin>":
                again = ""
            for violation in broken:
                seen = diverged(monitor, event, violation)
                tally.failures.append(Failure(violation, where, monitor.shadow.last_frame, tuple(tail), again, seen))
    tally.add(monitor, header.observes)
    return tally
