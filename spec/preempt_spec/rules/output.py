"""output/*: the stream a user sees."""

from __future__ import annotations

from collections.abc import Iterator

from preempt_spec.events import Deliver, Finish
from preempt_spec.micro import Grant, grant_start
from preempt_spec.rules.rule import Kind, on, rule
from preempt_spec.view import View

STREAM = rule(
    "output/stream",
    Kind.MUST,
    "The emitted stream is append-only; each token was sampled in the context of exactly the stream emitted before it.",
)


@on(STREAM, Grant)
def within_the_stream(s: View, e: Grant) -> Iterator[str | None]:
    """A grant reaches no further than the known tokens, and has some."""
    r = s.request(e.request)
    start = grant_start(s, e)
    if e.tokens < 1:
        yield f"{e.request} is granted {e.tokens} tokens: nothing to sample from"
    elif start + e.tokens > len(r.tokens):
        yield f"{e.request} is granted tokens up to {start + e.tokens}; {len(r.tokens)} are known"
    else:
        yield None


@on(STREAM, Deliver)
def sampled_at_the_end(s: View, e: Deliver) -> Iterator[str | None]:
    """Exactly the requests whose grant reached their last known token get one, and the engine appends just that."""
    due = s.frames[e.frame]
    seen = set()
    for i, r in enumerate(e.requests):
        tokens = e.tokens[i]
        state = e.disposition[i] if e.disposition is not None else "delivered"
        if r in seen:
            yield f"{r} is delivered twice by frame {e.frame}"
        elif r not in due:
            yield f"{r} is delivered by frame {e.frame}, which did not grant it"
        elif r not in s.live():
            yield None if state == "dropped" else f"{r} is over and its output was not dropped"
        elif tokens and not due[r]:
            yield f"{r} got a token from frame {e.frame}, which ended before its last known token"
        elif state != "delivered" and due[r]:
            yield f"the token of {r} from frame {e.frame} was {state}"
        elif due[r] and len(tokens) != 1:
            yield f"{r} got {len(tokens)} tokens from frame {e.frame}"
        elif e.emitted is not None and e.emitted[i] != tokens:
            yield f"{r} was delivered {list(tokens)} and the engine emitted {list(e.emitted[i])}"
        else:
            yield None
        seen.add(r)
    missing = [r for r in due if due[r] and r not in seen and r in s.live()]
    if missing:
        yield f"the token of {missing[0]} from frame {e.frame} was lost"


@on(STREAM, Finish)
def ends_at_its_length(s: View, e: Finish) -> Iterator[str | None]:
    """A request that ends for its length emitted that many tokens."""
    r = s.request(e.request)
    if e.reason == "length":
        emitted = len(r.tokens) - r.prompt
        whole = emitted == r.max_tokens or len(r.tokens) >= s.limits.max_length
        yield None if whole else f"{e.request} ended for its length after {emitted} of {r.max_tokens} tokens"
