"""Whom a step looks at, in which order, and how far it comes."""

from __future__ import annotations

from preempt_spec.policies.outputs import ends
from preempt_spec.policies.policy import Phase, Policy, Reads, Slots, Victim
from preempt_spec.view import View


def passes_over(policy: Policy) -> bool:
    """Whether a step looks at everybody before it makes room, and passes over who does not fit."""
    return policy.phase in (Phase.DECODE_FIRST, Phase.CHUNKS_FIRST)


def admits_first(s: View) -> bool:
    """Whether a step looks at those who wait before it looks at those who run. A rule never asks: turns are open."""
    if s.policy.phase is not Phase.TURNS:
        return s.policy.phase is Phase.PREFILL_FIRST
    # As LMDeploy 0.18.0 pytorch/engine/inputs_maker.py, do_prefill_default(), has it, a clock for its counter.
    asked = sum(len(s.request(w).tokens) - s.request(w).computed for w in s.waiting)
    due = s.last_frame % (max(s.limits.lookahead, 1) + 1) == 0
    return due or 2 * len(s.running) < s.limits.max_running or asked >= s.limits.budget


def visiting(s: View, first: bool = False) -> tuple[str, ...]:
    """Those who run, in the order in which a step looks at them; whom it admitted comes behind all others.

    `first`: in its first pass, whether or not another one follows.
    """
    if s.policy.victim is Victim.ITSELF_NEWEST_FIRST:
        return tuple(reversed(s.running))
    if not passes_over(s.policy):
        return tuple(s.running)
    decoders_first = s.policy.phase is Phase.DECODE_FIRST
    late = tuple(s.plan.admitted)[0 if first else s.plan.anew :]

    def decodes(r: str) -> bool:
        at, _ = s.plan.granted.get(r, (s.request(r).computed, 0))  # a grant may end its prefill
        return at >= s.request(r).goal

    return tuple(sorted(s.running, key=lambda r: (r in late, r not in late and decodes(r) is not decoders_first)))


def spent_before(s: View, request: str) -> tuple[int, int]:
    """Tokens of the step's budget that are gone when it is `request`'s turn, and the requests that took them."""
    if not passes_over(s.policy):
        return s.plan.spent, len(s.plan.granted)
    order = visiting(s)
    if request not in order:
        return s.plan.spent, len(s.plan.granted)
    before = [s.plan.granted[r][1] for r in order[: order.index(request)] if r in s.plan.granted]
    return sum(before), len(before)


def readable(s: View, request: str, start: int) -> bool:
    """Whether a step may read what it takes to go on from `start`, behind all that it read before this request."""
    whole = [s.total(g) * group.page_size for g, group in enumerate(s.groups) if group.kind == "full"]
    if s.policy.reads is Reads.ANY or not whole:
        return True
    order = visiting(s)
    before = order[: order.index(request)] if request in order else tuple(s.plan.granted)
    return sum(s.plan.granted[r][0] for r in before if r in s.plan.granted) + max(start, 1) <= min(whole)


def unvisited(s: View, request: str) -> str | None:
    """Why the pass over those who run ended before it came to `request`, or None if it did come there."""
    tokens, requests = spent_before(s, request)
    if tokens >= s.limits.budget:
        return "budget"
    if s.policy.slots is Slots.BATCH and requests >= s.limits.max_running:
        return "batch full"
    return None if readable(s, request, s.request(request).computed) else "reads"


def starved(s: View) -> tuple[str, ...]:
    """Who was looked at in this step, got nothing, and still runs. The grants of the step are all made by then."""
    # Whoever starved in a pass that served nobody did so in the order of that pass.
    order = visiting(s, first=not s.plan.granted)
    rest = (r for r in order if r not in s.plan.granted and r not in s.plan.pending)
    return tuple(r for r in rest if unvisited(s, r) is None and not ends(s, r))
