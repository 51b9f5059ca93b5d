"""Events in one short line each, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preempt_oracle.report.words import safe
from preempt_oracle.trace import wire

FEW = 8  # elements shown of a list


def line(event: wire.Event, limit: int = 300) -> str:
    """`step 3: a 1@4, b 1@7; a +[3]; demote b for a; …`"""
    return safe(_line(event), limit)


def _line(event: wire.Event) -> str:
    match event:
        case wire.Arrive():
            more = "".join(f", {k} {v}" for k in ("priority", "arrival", "salt") if (v := getattr(event, k)))
            size = len(event.prompt)
            return f"arrive {event.request}: prompt {size} {ids(event.prompt)}, max {event.max_tokens}{more}"
        case wire.Reject():
            return f"reject {event.request}: {event.reason}"
        case wire.Abort() | wire.Finish():
            what = "abort" if isinstance(event, wire.Abort) else f"finish ({event.reason})"
            return f"{what} {event.request}{back(event.blocks)}"
        case wire.Step():
            parts = [part for part in (grants(event), blocks(event), *acts(event.acts), books(event.observed)) if part]
            return f"step {event.frame}: {'; '.join(parts) or event.reason or 'nothing'}"
        case wire.Deliver():
            return f"deliver {event.frame}: {delivered(event) or 'nothing'}"
        case wire.Control():
            return f"control {event.kind}: {'; '.join(acts(event.acts))}"
        case wire.EngineError():
            return f"error of the {event.origin}: {event.kind} at {event.where}: {event.message}"
        case _:
            return type(event).__name__.lower()


def ids(items: Sequence[object]) -> str:
    """`[1 2 3]`, shortened."""
    return f"[{' '.join(map(str, items[:FEW]))}{' …' if len(items) > FEW else ''}]"


def _some(parts: Sequence[str]) -> str:
    return ", ".join(parts[:FEW]) + (f", … {len(parts)} in all" if len(parts) > FEW else "")


def grants(step: wire.Step) -> str:
    """`a 1@4`: one token from position 4."""
    starts = step.start or [None] * len(step.requests)
    rows = zip(step.requests, step.tokens, starts, strict=True)
    return _some([f"{r} {n}" + ("" if at is None else f"@{at}") for r, n, at in rows])


def blocks(step: wire.Step) -> str:
    """`a +[3]`: blocks that joined tables; a hit's length is told with them."""
    hits = [f"{h.request} hit {h.tokens}" for h in step.hits if h.tokens]
    return _some([*hits, *(f"{d.request} +{ids(d.blocks)}" for d in step.blocks)])


def delivered(event: wire.Deliver) -> str:
    """`a 17`: its token."""
    return _some([f"{r} {' '.join(map(str, t)) or '-'}" for r, t in zip(event.requests, event.tokens, strict=True)])


def back(groups: tuple[tuple[int, ...], ...] | None) -> str:
    """The blocks that went back."""
    return "" if not groups else " " + " | ".join(map(ids, groups))


def acts(items: Sequence[wire.Act]) -> Iterator[str]:
    """Preemptions and what follows them; the bookkeeping of published blocks is left out."""
    for a in items:
        match a:
            case wire.Demote():
                yield f"preempt {a.request} for {', '.join(a.beneficiaries) or a.cause}"
            case wire.Release():
                yield f"release {a.request}{back(a.blocks)}"
            case wire.Requeue():
                yield f"requeue {a.request}" + ("" if a.index is None else f" at {a.index}")
            case wire.Plan():
                yield f"plan {a.request} {a.tokens}@{a.start}"
            case wire.Unplan():
                yield f"unplan {a.request}"
            case wire.Skip():
                yield f"skip {a.request}: {a.guard}"


def books(o: wire.Observed) -> str:
    """Queues and free blocks, as the engine has them."""
    parts = [] if o.running is None else [f"running {ids(o.running)}"]
    parts += [] if o.waiting is None else [f"waiting {ids(o.waiting)}"]
    parts += [] if o.free is None else [f"free {' '.join(map(str, o.free))}"]
    return ", ".join(parts)
