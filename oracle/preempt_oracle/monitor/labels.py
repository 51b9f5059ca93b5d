"""Pages that become findable, or stop being so, while their requests decode steadily: proved at a glance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from preempt_oracle.monitor.change import publish, withdraw
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.trace import wire
from preempt_spec.policies.policy import Publish

#: Per block: the stream and the length whose page it is findable as; None: it is not.
Labels = dict[int, tuple[list[int], str, int] | None]


def proved(s: Shadow, acts: Sequence[wire.Act]) -> tuple[int, int, Labels] | None:
    """How many acts publish, how many pages become findable, and what all blocks are findable as behind them.

    None unless all clauses hold in a step of plain grants. A page of a member is what it is published as if its tokens
    are known and the member is past it, or gets past it in this very step: its slots are its own, and were looked at.
    Its block stays its own, as nobody is preempted.
    """
    if s.policy.publish is not Publish.SCHEDULE:
        return None
    m, requests = s.memory[0], s.requests
    page, total, refs, now = m.page, m.total, m.refs, s.clock + 1
    found: Labels = {}
    publishing = pages = 0
    for act in acts:
        if type(act) is wire.Publish:
            r = requests.get(act.request)
            if r is None or not r.steady or act.group:
                return None
            table, tokens = r.tables[0], r.tokens
            upto = min(len(tokens), r.base + now)
            for b in act.blocks:
                at = upto // page - 1  # most likely the page that was filled last
                if at < 0 or at >= len(table) or table[at] != b or refs[b] != 1:
                    at = table.index(b) if b in table else upto
                if (at + 1) * page > upto or found.get(b) is not None:
                    return None
                found[b] = (tokens, r.salt, at * page + page)
            publishing += 1
            pages += len(act.blocks)
        elif type(act) is not wire.Withdraw or act.group:
            return None
        else:
            for b in act.blocks:
                if b >= total or found.get(b) is not None:
                    return None
                found[b] = None
    return publishing, pages, found


def labels(acts: Sequence[wire.Act], at: int) -> Sequence[wire.Publish | wire.Withdraw]:
    """The acts from here on that only make pages findable, or stop that."""
    run: list[wire.Publish | wire.Withdraw] = []
    for act in acts[at:]:
        if type(act) is wire.Publish or type(act) is wire.Withdraw:
            run.append(act)
        else:
            break
    return run


def commute(s: Shadow, e: wire.Step, acts: Iterable[wire.Act], new: Mapping[str, Sequence[int]]) -> bool:
    """Whether these acts are such, hold, and are the same wherever they stand among grants.

    `new`: blocks that join tables in this step by a grant that is not made yet.
    """
    if s.policy.publish is not Publish.SCHEDULE:
        return False
    m = s.memory[0]
    for act in acts:
        if type(act) is wire.Publish and not act.group:
            r = s.requests.get(act.request)
            if r is None:
                return False
            rest = {*act.blocks}.difference(r.tables[0])
            if rest and not (rest <= {*new.get(act.request, ())} and act.request in e.requests[: act.after]):
                return False  # not its own, or told before the grant that brings it
        elif type(act) is not wire.Withdraw or act.group or max(act.blocks, default=0) >= m.total:
            return False
    return True


def make(s: Shadow, acts: Iterable[wire.Act]) -> None:
    """Make them so, in order."""
    for act in acts:
        if type(act) is wire.Publish:
            publish(s, act)
        elif type(act) is wire.Withdraw:
            withdraw(s, act)


def publishing(acts: Iterable[wire.Act]) -> int:
    """How many of them make pages findable."""
    return sum(type(act) is wire.Publish for act in acts)
