"""Event streams with something wrong in them: valid streams, mutated in one place or a few. Pure, without Hypothesis.

A mutation knows nothing of rules. Most change one value somewhere inside an event (`perturb`); some are what whole
values cannot do: events and grants that are lost, repeated or out of order, acts out of nowhere. What comes out may be
a violation, a malformed trace, or right in another way; two judges must agree on which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import attrs
from attrs import evolve

from preempt_spec import events as ev

#: Whether an event can stand in a trace at all, as far as its form goes.
Accept = Callable[[ev.Event], bool]

#: Optional numbers, which have no value to start from when they are absent.
_NUMBERS = frozenset({"until", "index", "known", "computed", "drafts", "need", "supply", "before", "preemptions"})


def corrupt(random: Random, events: Sequence[ev.Event], accept: Accept, times: int = 1) -> list[ev.Event]:
    """The stream with `times` mutations, each of which leaves every event acceptable in form."""
    stream = list(events)
    for _ in range(times):
        for _ in range(20):
            changed = _mutated(random, stream, accept)
            if changed is not None:
                stream = changed
                break
    return stream


def thin(random: Random, events: Sequence[ev.Event]) -> list[ev.Event]:
    """The stream of an adapter that reads less: the same optional fields are missing from every event."""
    hidden = [name for name in ("start", "emitted", *_OBSERVED) if random.randrange(3) == 0]
    out: list[ev.Event] = []
    for e in events:
        match e:
            case ev.Step():
                seen = evolve(e.observed, **dict.fromkeys(name for name in hidden if name in _OBSERVED))
                out.append(evolve(e, observed=seen, start=None if "start" in hidden else e.start))
            case ev.Deliver():
                out.append(evolve(e, emitted=None if "emitted" in hidden else e.emitted))
            case _:
                out.append(e)
    return out


# In the order of the class: what is drawn must not hang on the hash of a string, which differs from run to run.
_OBSERVED = tuple(a.name for a in attrs.fields(ev.Observed))


def _mutated(random: Random, stream: list[ev.Event], accept: Accept) -> list[ev.Event] | None:
    if not stream:
        return None
    i = random.randrange(len(stream))
    # Steps are where most can be wrong.
    steps = [n for n, e in enumerate(stream) if isinstance(e, ev.Step)]
    if steps and random.randrange(3):
        i = random.choice(steps)
        busy = [n for n in steps if any(isinstance(a, ev.Demote) for a in getattr(stream[n], "acts", ()))]
        if busy and random.randrange(2):
            i = random.choice(busy)
    e = stream[i]
    ids = sorted({x.request for x in stream if isinstance(x, ev.Arrive)})
    new: list[ev.Event]
    if random.randrange(4) == 0 and (changed := _late(random, stream, i)) is not None:
        return changed if all(accept(x) for x in changed[max(i - 1, 0) : i + 3]) else None
    match random.randrange(24):
        case 0:
            new = []
        case 1:
            new = [e, e]
        case 2 | 3:
            new = [_foreign(random, ids), e]
        case 4 if i + 1 < len(stream):
            return [*stream[:i], stream[i + 1], e, *stream[i + 2 :]]
        case 5 | 6 | 7 | 8 | 9 if isinstance(e, ev.Step) and e.requests:
            new = [_regranted(random, e)]
        case 10 | 11 | 12 | 13 | 14 if isinstance(e, ev.Step):
            new = [_acted(random, e, ids)]
        case _:
            new = [perturb(random, e, ids)]
    return [*stream[:i], *new, *stream[i + 1 :]] if all(accept(x) for x in new) else None


def _late(random: Random, stream: list[ev.Event], i: int) -> list[ev.Event] | None:
    """What frames and copies in flight do wrong: an event near `i` that is lost, repeated, late, or ends otherwise."""
    kinds = (ev.Deliver, ev.CopyStart, ev.CopyDone)
    at = [n for n, e in enumerate(stream) if isinstance(e, kinds)]
    if not at:
        return None
    i = min(at, key=lambda n: abs(n - i))
    e = stream[i]
    match random.randrange(6):
        case 0:
            return [*stream[:i], *stream[i + 1 :]]
        case 1:
            j = min(i + random.randrange(1, 6), len(stream))
            return [*stream[:j], e, *stream[j:]]
        case 2:
            j = min(i + random.randrange(1, 6), len(stream) - 1)
            return [*stream[:i], *stream[i + 1 : j + 1], e, *stream[j + 1 :]]
        case _:
            return [*stream[:i], _otherwise(random, e), *stream[i + 1 :]]


def _otherwise(random: Random, e: ev.Event) -> ev.Event:
    """A delivery that gives another answer for one request; a copy with other ends, or that fails."""
    match e:
        case ev.CopyDone():
            return evolve(e, ok=not e.ok)
        case ev.CopyStart() if e.blocks:
            i, j = random.randrange(len(e.blocks)), random.randrange(len(e.blocks))
            (src, dst, g), (other, _, _) = e.blocks[i], e.blocks[j]
            new = random.choice(((dst, src, g), (other, dst, g), (src, dst + 1, g), (max(src - 1, 0), dst, g)))
            before = random.choice((e.before, e.before, None, 3))
            return evolve(e, blocks=(*e.blocks[:i], new, *e.blocks[i + 1 :]), before=before)
        case ev.Deliver() if e.requests:
            i, n = random.randrange(len(e.requests)), len(e.requests)
            told = list(e.disposition or ("delivered",) * n)
            tokens = list(e.tokens)
            match random.randrange(5):
                case 0:
                    told[i] = random.choice(("delivered", "empty", "dropped"))
                case 1:
                    tokens[i] = random.choice((tokens[i][1:], (*tokens[i], 3), (*tokens[i], 3, 4)))
                case 2:
                    keep = [k for k in range(n) if k != i]
                    fields = ("requests", "tokens", "accepted", "disposition", "emitted", "proposed")
                    lists: dict[str, Any] = {f: getattr(e, f) for f in fields}
                    fewer: dict[str, Any] = {f: x and tuple(x[k] for k in keep) for f, x in lists.items()}
                    return evolve(e, **fewer)
                case 3:
                    return evolve(e, proposed=tuple(random.randrange(3) for _ in range(n)))
                case _:
                    return evolve(e, acts=(*e.acts, random.choice((ev.Unfence((random.randrange(4),)), ev.Pin((1,))))))
            return evolve(e, tokens=tuple(tokens), disposition=tuple(told))
    return e


def _foreign(random: Random, ids: list[str]) -> ev.Event:
    """An event out of nowhere."""
    r = random.choice(ids) if ids else "?"
    return random.choice(
        (
            ev.Abort(r),
            ev.Finish(r, "stop"),
            ev.Finish(r),
            ev.Reject(r, random.choice(("", "too long"))),
            ev.Arrive(r, (1, 2, 3), 2),
            ev.Arrive("new", (1, 2, 3), 2, random.randrange(3), random.randrange(3)),
            ev.Control(random.choice(("reset", "pause", "resume", "caps"))),
            ev.Control("reset", (ev.Demote(r, 0, "reset"), ev.Release(r), ev.Requeue(r, 0, "waiting", 0))),
            ev.Deliver(random.randrange(5), (r,), ((1,),)),
            ev.EngineError(random.choice(("engine", "adapter")), "KeyError"),
            ev.CopyStart(0, "out", ()),
            ev.CopyStart(
                random.randrange(9),
                random.choice(("out", "in")),
                tuple((random.randrange(3), random.randrange(3), 0) for _ in range(random.randrange(3))),
                random.choice((None, None, random.randrange(30))),
            ),
            ev.CopyDone(random.randrange(9), random.random() < 0.5),
            ev.Deliver(random.randrange(20)),
            ev.Step(random.randrange(40)),
        )
    )


def _regranted(random: Random, e: ev.Step) -> ev.Step:
    """A grant is lost, repeated, moved, or given to a different place, in all of the parallel arrays."""
    starts: Sequence[int | None] = e.start if e.start is not None else (None,) * len(e.requests)
    rows: list[tuple[str, int, Any]] = list(zip(e.requests, e.tokens, starts, strict=True))
    i, j = random.randrange(len(rows)), random.randrange(len(rows))
    match random.randrange(5):
        case 0:
            del rows[i]
        case 1:
            rows.insert(j, rows[i])
        case 2:
            rows[i], rows[j] = rows[j], rows[i]
        case 3:
            request, tokens, start = rows[i]
            by = random.choice((-1, 1))
            rows[i] = (request, tokens - by, None if start is None else start + by)  # the same end
        case _:
            request, tokens, start = rows[i]
            rows[i] = (request, max(0, tokens + random.choice((-1, 1, 2))), start)
    acts = tuple(evolve(a, after=min(a.after, len(rows))) for a in e.acts)
    return evolve(
        e,
        requests=tuple(r for r, _, _ in rows),
        tokens=tuple(n for _, n, _ in rows),
        start=None if e.start is None else tuple(s for _, _, s in rows),
        acts=acts,
    )


def _acted(random: Random, e: ev.Step, ids: list[str]) -> ev.Step:
    """An act is lost, repeated, moved, or out of nowhere."""
    acts = list(e.acts)
    kind = random.randrange(4)
    if acts and kind == 0:
        del acts[random.randrange(len(acts))]
    elif acts and kind == 1:
        i, j = random.randrange(len(acts)), random.randrange(len(acts))
        acts.insert(j, acts[i])
    elif len(acts) > 1 and kind == 2:
        i = random.randrange(len(acts) - 1)
        acts[i], acts[i + 1] = acts[i + 1], acts[i]
    else:
        at = random.randrange(len(acts) + 1)
        acts.insert(at, _act(random, e, ids))
    # They stand in the order they happened, whatever was moved.
    before, out = 0, []
    for a in acts:
        before = min(max(before, a.after), len(e.requests))
        out.append(evolve(a, after=before))
    return evolve(e, acts=tuple(out))


def _act(random: Random, e: ev.Step, ids: list[str]) -> ev.Act:
    r = random.choice(ids) if ids else "?"
    other = random.choice(ids) if ids else "?"
    b = tuple(random.sample(range(4), random.randrange(1, 3)))
    after = random.randrange(len(e.requests) + 1)
    return random.choice(
        (
            ev.Demote(r, after, "growth", (other,)),
            ev.Demote(r, after, "reset"),
            ev.Release(r, after, None, random.choice((None, e.frame))),
            ev.Requeue(r, after, "waiting", random.choice((None, 0, 1))),
            ev.Plan(r, after, 0, random.randrange(3), (b,)),
            ev.Unplan(r, after, random.randrange(3)),
            ev.Skip(r, "cadence", after),
            ev.Publish(r, b, after),
            ev.Withdraw(b, after),
            ev.Pin(b, after),
            ev.Unpin(b, after),
            ev.Unfence(b, after),
            ev.Release(r, after, None, random.choice((None, e.frame)), None, None, random.randrange(5)),
            ev.Requeue(r, after, "swapped", random.choice((None, 0, 1))),
            ev.Shed(r, b, after),
            ev.Exchange(r, b, tuple(random.sample(range(4), len(b))), after),
            ev.Swap(r, "out", tuple((x, x, 0) for x in b), after),
            ev.Swap(r, "in", tuple((x, x, 0) for x in b), after),
            ev.Load(r, random.randrange(5), (b,), after),
            ev.Evict(b, after),
        )
    )


def perturb(random: Random, value: Any, ids: Sequence[str]) -> Any:
    """The value with one part of it changed; another value, as a rule."""
    if attrs.has(type(value)):
        names = [a.name for a in attrs.fields(type(value))]
        name = random.choice(names)
        old = getattr(value, name)
        if old is None:
            return evolve(value, **{name: random.randrange(4) if name in _NUMBERS else None})
        unread = name in _NUMBERS and random.randrange(3) == 0
        return evolve(value, **{name: None if unread else perturb(random, old, ids)})
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice((value + 1, value - 1, value + random.randrange(-4, 5), 0))
    if isinstance(value, str):
        return random.choice((*ids, *ids, *ids, "", "?"))
    if isinstance(value, tuple):
        return _perturb_tuple(random, value, ids)
    return value


def _perturb_tuple(random: Random, value: tuple[Any, ...], ids: Sequence[str]) -> tuple[Any, ...]:
    if not value:
        return random.choice(((0,), (1, 2), ((1,),), (random.choice(ids),) if ids else ()))
    i, j = random.randrange(len(value)), random.randrange(len(value))
    match random.randrange(6):
        case 0:
            return (*value[:i], *value[i + 1 :])
        case 1:
            return (*value[:j], value[i], *value[j:])
        case 2:
            swapped = list(value)
            swapped[i], swapped[j] = swapped[j], swapped[i]
            return tuple(swapped)
        case 3:
            return (*value, perturb(random, value[i], ids))
        case _:
            return (*value[:i], perturb(random, value[i], ids), *value[i + 1 :])
