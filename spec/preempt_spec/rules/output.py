"""output/*: the stream a user sees."""

from __future__ import annotations

from collections.abc import Iterator

from preempt_spec.events import Deliver, Finish
from preempt_spec.micro import Grant, grant_start
from preempt_spec.policies.outputs import room_for_outputs
from preempt_spec.rules.rule import Kind, on, rule
from preempt_spec.view import Fate, Place, View

STREAM = rule(
    "output/stream",
    Kind.MUST,
    "The emitted stream is append-only; each token was sampled in the context of exactly the stream emitted before it.",
)


@on(STREAM, Grant)
def within_the_stream(s: View, e: Grant) -> Iterator[str | None]:
    """A grant has some tokens, and reaches no further than those known, promised by flying frames, or drafted."""
    r = s.request(e.request)
    start = grant_start(s, e)
    known = len(r.tokens) + r.placeholders + e.drafts
    if e.tokens < 1:
        yield f"{e.request} is granted {e.tokens} tokens: nothing to sample from"
    elif start + e.tokens > known:
        yield f"{e.request} is granted tokens up to {start + e.tokens}; {known} are known"
    elif e.drafts > e.tokens - 1:
        yield f"{e.request} is granted {e.tokens} tokens, {e.drafts} of them drafts: nothing to sample behind"
    elif e.drafts > r.drafts and (r.place is Place.RUNNING or e.tokens - e.drafts > 1):
        # But vLLM pads the single token of an admission to the shape of a decode, with drafts nobody proposed (0.33.0).
        yield f"{e.request} is granted {e.drafts} drafts; {r.drafts} were proposed"
    else:
        yield None


@on(STREAM, Deliver)
def in_its_context(s: View, e: Deliver) -> Iterator[str | None]:
    """What is appended was sampled behind the very last token, and the engine appends just that."""
    due = s.frames.get(e.frame, {})
    for i, r in enumerate(e.requests):
        tokens, state = e.tokens[i], e.disposition[i] if e.disposition is not None else "delivered"
        if state != "delivered" and e.emitted is not None and e.emitted[i]:
            yield f"the output of {r} from frame {e.frame} was {state} and the user was shown {list(e.emitted[i])}"
        if r not in due or r not in s.live() or due[r].fate is Fate.GONE or state != "delivered":
            continue
        x, q = due[r], s.request(r)
        most = room_for_outputs(s, q)
        if not x.outputs:
            if tokens:
                yield f"{r} got a token from frame {e.frame}, which ended before its last known token"
        elif not 1 <= len(tokens) <= x.outputs:
            yield f"{r} got {len(tokens)} tokens from frame {e.frame}"
        elif e.accepted is not None and e.accepted[i] != len(tokens) - 1:
            yield f"{r} got {len(tokens)} tokens from frame {e.frame}, with {e.accepted[i]} drafts accepted"
        elif x.position != len(q.tokens):
            at = f"token {x.position} of {r}, sampled by frame {e.frame}, comes as token {len(q.tokens)}"
            yield f"{at}: {'it was lost' if x.position > len(q.tokens) else 'it was there already'}"
        elif x.after is not None and x.after != q.last:
            yield f"token {x.position} of {r} was sampled behind that of frame {x.after}, which is not in the stream"
        elif e.emitted is not None and e.emitted[i] != tokens[:most]:
            yield f"{r} was delivered {list(tokens[:most])} and the engine emitted {list(e.emitted[i])}"
        else:
            yield None


@on(STREAM, Finish)
def ends_at_its_length(s: View, e: Finish) -> Iterator[str | None]:
    """A request that ends for its length emitted that many tokens."""
    r = s.request(e.request)
    if e.reason == "length":
        emitted = len(r.tokens) - r.prompt
        whole = emitted == r.max_tokens or len(r.tokens) >= s.limits.max_length
        yield None if whole else f"{e.request} ended for its length after {emitted} of {r.max_tokens} tokens"
