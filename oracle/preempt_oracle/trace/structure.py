"""What a line must satisfy beyond its types, given the header: parallel arrays, groups, block ids, order of acts.

Only what makes a trace readable. Whether the engine was right to do what the trace says is no question here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from preempt_spec.events import OBSERVABLE

from . import wire
from .errors import Fault
from .raw import Deltas, Rest
from .steady import Steady, SteadyStep
from .wire import NOTHING_OBSERVED, Deliver, Step

_LABELS = (wire.Publish, wire.Withdraw, wire.Pin, wire.Unpin, wire.Unfence, wire.Shed)
#: What belongs to a plan: no engine does it while a frame is delivered.
_PLANNED = (wire.Demote, wire.Plan, wire.Unplan, wire.Skip, wire.Shed, wire.Swap, wire.Load)
#: What may happen to blocks while a request is cancelled, and nothing else.
_ABORTING = (wire.Publish, wire.Withdraw, wire.Pin, wire.Unpin, wire.Unfence)


class Structure:
    """Checks the lines of one trace and counts for its footer.

    `steps`, `grants` and `preemptions` are those of the events checked so far.
    """

    def __init__(self, header: wire.Header) -> None:
        """Check the header itself. Raises Fault."""
        self.steps = 0
        self.grants = 0
        self.preemptions = 0
        self._groups = len(header.groups)
        if header.trace != wire.VERSION:
            raise Fault("trace", f"version {header.trace} is not supported, only version {wire.VERSION}")
        if not header.groups:
            raise Fault("groups", "empty: a trace has at least one group")
        unknown = sorted(header.observes.difference(OBSERVABLE))
        if unknown:
            raise Fault("observes", f"unknown: {', '.join(unknown)} (known: {', '.join(sorted(OBSERVABLE))})")
        for i, kv in enumerate(header.groups):
            if (kv.kind == "sliding") != (kv.window > 0):
                raise Fault(f"groups[{i}].window", f"{kv.window} in a {kv.kind} group: a sliding one has one, no other")
        totals: dict[tuple[str, int], int] = {}
        for i, pool in enumerate(header.pools):
            where = f"pools[{i}]"
            self._group(f"{where}.group", pool.group)
            if (pool.tier, pool.group) in totals:
                raise Fault(where, f"a second {pool.tier} pool of group {pool.group}")
            if pool.reserved > pool.total:
                raise Fault(f"{where}.reserved", f"{pool.reserved} blocks reserved of {pool.total}")
            totals[pool.tier, pool.group] = pool.total
        for group in range(self._groups):
            if ("device", group) not in totals:
                raise Fault("pools", f"no device pool of group {group}")
        self._totals = totals
        self._device = [totals["device", group] for group in range(self._groups)]
        self._least = min(self._device)

    def check(self, event: wire.Event) -> None:
        """Raise Fault if `event` cannot stand in this trace; count it otherwise."""
        if type(event) is Step:  # the two hot ones first
            self._step(event)
        elif type(event) is Deliver:
            self._deliver(event)
        elif isinstance(event, wire.Finish):
            self._per_group("blocks", event.blocks)
        elif isinstance(event, wire.Control):
            self._acts(event.acts, 0)
        elif isinstance(event, wire.Abort):
            self._per_group("blocks", event.blocks)
            self._observed(event.observed)
            for i, act in enumerate(event.acts):
                if not isinstance(act, _ABORTING):
                    kind = act.__struct_config__.tag
                    raise Fault(f"acts[{i}].act", f"{kind} cannot stand in an abort")
            self._acts(event.acts, 0)
        elif isinstance(event, wire.CopyStart):
            self._copy("blocks", event.direction, event.blocks)

    def steady(self, event: Steady) -> None:
        """The same for what a decoder knows to have as many of everything as the event before it."""
        if type(event) is SteadyStep:
            if event.grown:
                self._grown(event.grown)
            self._rest(event.rest, len(event.requests))

    def footer(self, footer: wire.Footer, line: int) -> None:
        """Raise Fault if the counts of `footer`, which stands in line `line`, are not those of the trace."""
        counted = {"lines": line, "steps": self.steps, "grants": self.grants, "preemptions": self.preemptions}
        for field, count in counted.items():
            said = getattr(footer, field)
            if said != count:
                raise Fault(field, f"the footer says {said}, the trace has {count}: lines are missing or added")

    def _step(self, step: Step) -> None:
        count = len(step.requests)
        if len(step.tokens) != count:
            _unequal("tokens", len(step.tokens), count)
        if step.start is not None and len(step.start) != count:
            _unequal("start", len(step.start), count)
        self._rest(step, count)

    def _rest(self, step: Step | Rest, count: int) -> None:
        if step.blocks:
            self._tables("blocks", step.blocks)
        if step.sent:
            self._tables("sent", step.sent)
        if step.observed is not NOTHING_OBSERVED:
            self._observed(step.observed)
        if step.acts:
            self._acts(step.acts, count)
        self.steps += 1
        self.grants += count

    def _deliver(self, deliver: Deliver) -> None:
        count = len(deliver.requests)
        if len(deliver.tokens) != count:
            _unequal("tokens", len(deliver.tokens), count)
        if deliver.accepted is not None and len(deliver.accepted) != count:
            _unequal("accepted", len(deliver.accepted), count)
        if deliver.disposition is not None and len(deliver.disposition) != count:
            _unequal("disposition", len(deliver.disposition), count)
        if deliver.emitted is not None and len(deliver.emitted) != count:
            _unequal("emitted", len(deliver.emitted), count)
        if deliver.proposed is not None and len(deliver.proposed) != count:
            _unequal("proposed", len(deliver.proposed), count)
        if deliver.acts:
            for i, act in enumerate(deliver.acts):
                if isinstance(act, _PLANNED):
                    kind = act.__struct_config__.tag
                    raise Fault(f"acts[{i}].act", f"{kind} is part of a step, and cannot stand in a delivery")
            self._acts(deliver.acts, 0)

    def _acts(self, acts: tuple[wire.Act, ...], grants: int) -> None:
        before = preemptions = 0
        for i, act in enumerate(acts):
            after = act.after
            if after > grants:
                raise Fault(f"acts[{i}].after", f"{after}, but only {grants} grants are made")
            if after < before:
                raise Fault(f"acts[{i}].after", f"{after} behind {before}: acts stand in the order they happened")
            before = after
            if type(act) is wire.Demote:
                preemptions += 1
            elif type(act) is wire.Release or type(act) is wire.Plan or type(act) is wire.Load:
                self._per_group(f"acts[{i}].blocks", act.blocks)
            elif type(act) is wire.Swap:
                self._copy(f"acts[{i}].blocks", act.direction, act.blocks)
            elif type(act) is wire.Evict:
                self._group(f"acts[{i}]", act.group)
                for block in act.blocks:
                    self._in_tier(f"acts[{i}]", block, "host", act.group)
            elif type(act) is wire.Exchange:
                self._blocks(f"acts[{i}].blocks", act.group, act.blocks)
                self._blocks(f"acts[{i}].instead", act.group, act.instead)
                if len(act.blocks) != len(act.instead):
                    raise Fault(f"acts[{i}].instead", f"{len(act.instead)} blocks for {len(act.blocks)}")
            elif isinstance(act, _LABELS) and (
                act.group >= self._groups or (act.blocks and max(act.blocks) >= self._device[act.group])
            ):
                self._blocks(f"acts[{i}]", act.group, act.blocks)
        self.preemptions += preemptions  # only now: a refused event counts for nothing

    def _copy(self, where: str, direction: str, blocks: tuple[tuple[int, int, int], ...]) -> None:
        tiers = ("device", "host") if direction == "out" else ("host", "device")
        for i, (*ends, group) in enumerate(blocks):
            self._group(f"{where}[{i}]", group)
            for tier, block in zip(tiers, ends, strict=True):
                self._in_tier(f"{where}[{i}]", block, tier, group)

    def _in_tier(self, where: str, block: int, tier: str, group: int) -> None:
        total = self._totals.get((tier, group))
        if total is None:
            raise Fault(where, f"the header gives no {tier} pool of group {group}")
        if block >= total:
            _outside(where, block, tier, group, total)

    def _observed(self, observed: wire.Observed) -> None:
        free, free_ids = observed.free, observed.free_ids
        if free is not None and len(free) != self._groups:
            raise Fault("observed.free", f"{len(free)} counts for {self._groups} groups")
        if free_ids is not None:
            if len(free_ids) != self._groups:
                raise Fault("observed.free_ids", f"{len(free_ids)} lists for {self._groups} groups")
            self._per_group("observed.free_ids", free_ids)
        if observed.host_free is not None and len(observed.host_free) != self._groups:
            raise Fault("observed.host_free", f"{len(observed.host_free)} counts for {self._groups} groups")
        if observed.refs:
            for i, refs in enumerate(observed.refs):
                if refs.group >= self._groups or refs.block >= self._device[refs.group]:
                    self._blocks(f"observed.refs[{i}]", refs.group, (refs.block,))

    def _per_group(self, where: str, blocks: tuple[tuple[int, ...], ...] | None) -> None:
        if not blocks:  # not read, or none in any group
            return
        if len(blocks) != self._groups:
            raise Fault(where, f"{len(blocks)} lists for {self._groups} groups")
        for group, ids in enumerate(blocks):
            self._blocks(f"{where}[{group}]", group, ids)

    def _tables(self, field: str, tables: Sequence[wire.Delta | wire.Sent]) -> None:
        least = self._least
        for table in tables:
            if table.group:
                break
            for block in table.blocks:
                if block >= least:
                    break
            else:
                continue
            break
        else:
            return  # all in the first group, and of ids that every group has: nearly always
        for i, each in enumerate(tables):
            self._blocks(f"{field}[{i}]", each.group, each.blocks)

    def _grown(self, grown: Deltas) -> None:
        """`_tables`, of tuples; what is sent is the same."""
        least = self._least
        for i, (_, group, blocks) in enumerate(grown):
            if group:
                self._blocks(f"blocks[{i}]", group, blocks)
            for block in blocks:  # one, as a rule
                if block >= least:
                    self._blocks(f"blocks[{i}]", group, blocks)

    def _blocks(self, where: str, group: int, blocks: tuple[int, ...]) -> None:
        if group >= self._groups:
            self._group(where, group)
        if blocks:
            largest = max(blocks)
            if largest >= self._device[group]:
                _outside(where, largest, "device", group, self._device[group])

    def _group(self, where: str, group: int) -> None:
        if group >= self._groups:
            raise Fault(where, f"group {group} does not exist, the header has {self._groups}")


def _unequal(field: str, length: int, requests: int) -> NoReturn:
    raise Fault(field, f"{length} elements for {requests} requests: parallel arrays have equal length")


def _outside(where: str, block: int, tier: str, group: int, total: int) -> NoReturn:
    raise Fault(where, f"block {block} is outside the {tier} pool of group {group}, which has {total} blocks")
