"""Two events of the same moment, the engine's and the predicted one, laid side by side: every field in which they
differ.

What says the same in another order or form is brought into one first: tables as told are sorted by request, a prefix
hit of no tokens is none, and what an adapter did not read (an absent field) is not compared; but a field that the
engine's header promises must be there (`required`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import fields, frozen

from preempt_spec import events as ev

#: Without these observations of the engine, agreement would mean little.
REQUIRED: Final = frozenset(
    {
        "blocks",
        "counts",
        "demote",
        "emitted",
        "free",
        "free-ids",
        "held",
        "hits",
        "known",
        "place",
        "publish",
        "queues",
        "refs",
        "release",
        "reset",
        "sent",
        "start",
        "stats",
        "trigger",
    }
)

#: Field -> what it is, in the order in which a divergence is shown: what was decided, then what it was decided by.
WORDS: Final[Mapping[str, str]] = {
    "event": "what happened",
    "frame": "frame",
    "requests": "grants, in order",
    "tokens": "tokens of the grants",
    "start": "where the grants start: computed tokens",
    "drafts": "drafts in the grants",
    "victims": "victims, in order",
    "triggers": "for whom, need and supply",
    "released": "blocks released by victims",
    "requeued": "where victims wait, and their known tokens",
    "undone": "grants made and taken back",
    "labels": "pages published and withdrawn",
    "skipped": "passed over, for a reason",
    "order": "all of that, in order",
    "hits": "prefix hits",
    "resumed": "resumed",
    "blocks": "blocks added to tables",
    "sent": "tables as told to the worker",
    "emitted": "tokens appended",
    "disposition": "what became of outputs",
    "proposed": "drafts proposed",
    "reason": "reason",
    "request": "request",
    "arrives": "prompt, most outputs, priority, arrival, salt",
    "kind": "kind",
    "running": "running queue",
    "waiting": "waiting queue",
    "free": "free blocks",
    "free_ids": "free list, next first",
    "held": "held outside of running",
    "refs": "references other than one",
    "preemptions": "preemptions so far",
    "cached": "tokens counted as cached",
}


#: What an adapter need not say of a step: nothing of it exists with one tier and one place to wait.
MAY_LACK: Final = frozenset({"swapped", "loading", "host_free"})


@frozen
class Line:
    """A field of both states. `engine` or `predicted` None: not there."""

    field: str
    engine: Any
    predicted: Any

    @property
    def differs(self) -> bool:
        """Whether the prediction was wrong."""
        return bool(self.engine != self.predicted)


def compare(engine: ev.Event, predicted: ev.Event) -> tuple[Line, ...]:
    """Every field that both have, those that differ among them."""
    if type(engine) is not type(predicted):
        return (Line("event", _named(engine), _named(predicted)),)
    left, right = dict(_fields(engine)), dict(_fields(predicted))
    return tuple(
        Line(name, left[name], right[name])
        for name in WORDS
        if name in left and (left[name] is not None or (isinstance(engine, ev.Step) and name not in MAY_LACK))
    )


def _named(event: ev.Event) -> str:
    if isinstance(event, ev.EngineError):
        return f"{event.kind}: {event.message} ({event.where})"
    return type(event).__name__.lower()


def _fields(event: ev.Event) -> Iterator[tuple[str, Any]]:
    match event:
        case ev.Step():
            yield from (
                ("frame", event.frame),
                ("requests", event.requests),
                ("tokens", dict(zip(event.requests, event.tokens, strict=True))),
                ("start", event.start and dict(zip(event.requests, event.start, strict=True))),
                ("drafts", {d.request: d.tokens for d in event.drafts if d.tokens}),
                ("hits", {h.request: h.tokens for h in event.hits if h.tokens}),
                ("resumed", {r.request for r in event.resumed}),
                ("blocks", {d.request: d.blocks for d in event.blocks}),
                ("sent", {x.request: (x.blocks, x.full) for x in event.sent}),
            )
            yield from _acts(event.acts)
            yield from _books(event.observed)
        case ev.Deliver():
            names = event.requests
            delivered = ("delivered",) * len(names)
            # Absent: read, and the same as what was sampled.
            emitted = event.tokens if event.emitted is None else event.emitted
            yield from (
                ("frame", event.frame),
                ("requests", names),
                ("emitted", dict(zip(names, emitted, strict=True))),
                ("disposition", dict(zip(names, event.disposition or delivered, strict=True))),
                ("proposed", event.proposed),
            )
            yield from _acts(event.acts)
        case ev.Control():
            yield "kind", event.kind
            yield from _acts(event.acts)
        case ev.Abort() | ev.Finish():
            yield "request", event.request
            yield "blocks", event.blocks
            if isinstance(event, ev.Abort):
                yield from _books(event.observed)
            else:
                yield "reason", event.reason
        case ev.Arrive():
            yield "request", event.request
            yield "arrives", (event.prompt, event.max_tokens, event.priority, event.arrival, event.salt)
        case _:
            yield "request", getattr(event, "request", "")


def _acts(acts: tuple[ev.Act, ...]) -> Iterator[tuple[str, Any]]:
    """Each kind of act with its place in the step; the order between kinds shows in `after`."""
    victims = [a for a in acts if isinstance(a, ev.Demote)]
    yield "victims", tuple((a.request, a.cause, a.after) for a in victims)
    yield "triggers", tuple((a.beneficiaries, a.need, a.supply) for a in victims)
    yield "released", tuple((a.request, a.blocks, a.computed, a.drafts) for a in acts if isinstance(a, ev.Release))
    yield "requeued", tuple((a.request, a.queue, a.index, a.known) for a in acts if isinstance(a, ev.Requeue))
    yield (
        "undone",
        tuple(
            (type(a).__name__.lower(), a.request, a.tokens, a.blocks if isinstance(a, ev.Plan) else None, a.after)
            for a in acts
            if isinstance(a, ev.Plan | ev.Unplan)
        ),
    )
    yield (
        "labels",
        tuple(
            (type(a).__name__.lower(), a.request if isinstance(a, ev.Publish) else "", a.blocks, a.after)
            for a in acts
            if isinstance(a, ev.Publish | ev.Withdraw)
        ),
    )
    yield "skipped", tuple(a.request for a in acts if isinstance(a, ev.Skip))
    yield "order", tuple(type(a).__name__.lower() for a in acts)


def _books(observed: ev.Observed) -> Iterator[tuple[str, Any]]:
    for a in fields(ev.Observed):
        value = getattr(observed, a.name)
        if a.name in ("held", "refs", "cached") and value is not None:
            value = frozenset(value)
        yield a.name, value
