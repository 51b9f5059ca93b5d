"""Judging as it goes: the monitor, fed with what is recorded, and the log line when a rule breaks."""

from __future__ import annotations

from collections.abc import Callable

from preempt_oracle.monitor import Monitor
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_oracle.trace.errors import visible
from preempt_oracle.verdict import out_of_contract, policy_for
from preempt_spec.rules import Violation

Log = Callable[[str], None]
_LONGEST = 400  # characters of a message in the log


class Online:
    """Feeds the monitor until the first violation, and logs that. Keeps nothing of requests that are over.

    Raises UnknownPolicy, Malformed for a header that cannot be judged; `feed` raises Malformed.
    """

    def __init__(self, header: wire.Header, log: Log) -> None:
        policy, _ = policy_for(header)
        self._log = log
        self.monitor = Monitor(to_spec(header), policy)
        self.found: tuple[Violation, ...] = ()
        self.ended = False
        if why := out_of_contract(self.monitor.shadow):
            self.ended = True
            log(f"nothing is judged: {why}")

    def feed(self, event: wire.Event, place: Callable[[], str] = str) -> None:
        """Judge one event. `place` says where it stands in a file, "" if nowhere."""
        if self.ended:
            return
        broken = self.monitor.feed(event)
        if broken:
            self.ended = True  # the shadow state is not to be trusted any more
            self.found = tuple(broken)
            first, others = broken[0], sorted({v.rule for v in broken[1:]} - {broken[0].rule})
            more = f" (and {', '.join(others)})" if others else ""
            where = place()
            at = f", {where}" if where else ""
            self._log(
                f"{first.rule} is violated in step {self.monitor.shadow.last_frame}{at}: "
                f"{visible(first.message, _LONGEST)}{more}; nothing behind it is judged"
            )
