"""Generated workloads: small, inside the contract, and under pressure.

Pure, without Hypothesis: a workload is a function of a `random.Random`, so a seed names it, and bytes can stand in for
the seed (`strategies.Bytes`). Pools are a few blocks, lengths lie at page boundaries, prompts share and repeat chunks,
requests come in bursts with ties, and users cancel when it hurts.

Nothing outside the contract is ever generated: an engine may do what it likes there, and an accusation would be wrong.
`_mixed`, `_prefill_first` and `_lengths` say why each bound is where it is.
"""

from __future__ import annotations

from random import Random

from attrs import evolve

from preempt_properties.overlap import OVERLAP, overlapped
from preempt_properties.scenario import Add, Config, Scenario
from preempt_properties.timeline import chance, script
from preempt_spec.policies.blocks import blocks_for
from preempt_spec.policies.displacing import displaces
from preempt_spec.policies.policy import Gate, Phase
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.policies.queues import by_priority

#: What an engine may be able to do, as adapters name it; `reuse`: an id may be used again as soon as its request was
#: aborted; `small_budget`: it starts with a budget below `max_running`, as vLLM does not. Two more must be asked for:
#: `reject` (the scheduler itself refuses what can never fit, so such requests are inside its contract) and `ties` (an
#: engine that follows its policy may break a rule on them: see `_adds`). What goes beyond one frame at a time is named
#: in `overlap`; `EVERYTHING` has both.
CAPABILITIES = frozenset(
    {
        "abort",
        "caching",
        "chunked",
        "long_prefill",
        "lookahead",
        "priority",
        "reuse",
        "salt",
        "small_budget",
        "threshold",
        "unchunked",
        "watermark",
        "whole_fit",
    }
)

EVERYTHING = CAPABILITIES | OVERLAP


#: Tokens of the smallest page in the contract of an engine, where that is more than one. nano-vllm sees growth at
#: "length modulo page is 1", which never holds for pages of one token; transformers refuses pages of less than four.
LEAST_PAGE = {"nano-vllm": 2, "hf-cb": 4, "hf-cb-prefill-first": 4, "hf-cb-offload": 4}

#: What a workload is out for. `grow`: a few requests outgrow the pool. `crowd`: many small ones grow in step, so that
#: one step needs several victims. `chunks`: long prefills are admitted by their first chunk and then need several
#: blocks at once. `twins`: prompts share nearly all of their pages, so that a victim gives little back.
_MOODS = ("grow", "grow", "grow", "crowd", "crowd", "chunks", "chunks", "twins")


def workload(random: Random, policy: str, *, capabilities: frozenset[str] = CAPABILITIES) -> Scenario:
    """A scenario for the profile named `policy`, using no more than `capabilities`. KeyError: no such profile."""
    mood = random.choice(_MOODS)
    if PROFILES[policy].contract.phase is Phase.TURNS:
        config = _turns(random, policy, mood, capabilities)
    elif PROFILES[policy].contract.phase is Phase.PREFILL_FIRST:
        config = _prefill_first(random, policy, mood, capabilities)
    else:
        config = _mixed(random, policy, mood, capabilities)
    ordered = by_priority(PROFILES[policy].contract) and "priority" in capabilities
    # Slots run out before blocks do, and the best come late: that is when an admission displaces somebody.
    house = ordered and displaces(PROFILES[policy].contract) and chance(random, 33)
    if house:
        few = random.choice((1, 2, 2, 3))
        config = evolve(config, max_running=few, blocks=config.blocks + random.choice((0, 2, 4)))
    equals = "ties" in capabilities and ordered and config.chunked and chance(random, 25)
    if equals:
        # Slow prefills that nobody waits for room for: who is preempted computes nothing that lasts before it is again.
        config = evolve(config, whole_fit=False, caching=False, long_prefill=random.randint(1, 2))
    adds = _adds(random, config, mood, capabilities)
    if equals:
        adds = [evolve(a, priority=0, arrival=0) for a in adds]
    if house and chance(random, 70):
        best_last = sorted((a.priority for a in adds), reverse=True)
        adds = [evolve(a, priority=p) for a, p in zip(adds, best_last, strict=True)]
    scenario = Scenario(config, tuple(script(random, config, adds, capabilities, late=house)))
    return overlapped(random, scenario, capabilities) if capabilities & OVERLAP else scenario


# -- the engine -------------------------------------------------------------------------------------------------------


def _mixed(random: Random, policy: str, mood: str, can: frozenset[str]) -> Config:
    page, blocks = _pool(random, mood, LEAST_PAGE.get(policy, 1))
    # vLLM refuses to start when the longest sequence exceeds the pool: a lone request always fits.
    longest = _longest(random, blocks * page)
    running = _slots(random, mood)
    chunked = "chunked" in can and (mood == "chunks" or not ("unchunked" in can and chance(random, 25)))
    # A budget below max_running only makes somebody wait. Without chunks a resume must fit in one step, so the budget
    # must reach the longest sequence.
    small, fair, ample = random.randint(1, 2 * page + 1), random.randint(2, longest), longest + running
    # A threshold cuts prefills, so it is nothing for an engine that may not cut them; vLLM wants it <= max_length.
    cut = chunked and "long_prefill" in can and chance(random, 85 if mood == "chunks" else 20)
    threshold = random.randint(page + 1 if mood == "chunks" else 1, min(5 * page, longest)) if cut else 0
    if mood == "chunks":
        small = fair = threshold + random.randint(2, 5)  # some are admitted beside the long prefill
    budget = random.choice((small, fair, ample, ample)) if chunked else longest + random.randrange(4)
    if "small_budget" not in can:
        budget = max(budget, running)
    return Config(
        policy=policy,
        blocks=blocks,
        page_size=page,
        max_running=running,
        budget=budget,
        max_length=longest,
        long_prefill=threshold,
        chunked=chunked,
        caching="caching" in can and (mood == "twins" or chance(random, 60)),
        whole_fit=not ("whole_fit" in can and chunked and (mood == "chunks" or chance(random, 30))),
        # Kept free at admission only while something runs: it delays, it never locks a lone request out.
        watermark=random.randint(1, max(1, blocks // 4)) if "watermark" in can and chance(random, 20) else 0,
    )


def _prefill_first(random: Random, policy: str, mood: str, can: frozenset[str]) -> Config:
    # SGLang's front end shortens what would leave no page for an estimate's error, and no page for the last token.
    slack = 2 if PROFILES[policy].contract.gate is Gate.CONSERVATIVE else 0
    page, blocks = _pool(random, mood, LEAST_PAGE.get(policy, 1), slack)
    watermark = 1 if "watermark" in can and (blocks - slack - 1) * page >= 4 and chance(random, 25) else 0
    # These engines do not check that a request fits: a sequence longer than the pool (less the watermark, which Vidur
    # applies to a lone request as well) would never be admitted again after a preemption.
    longest = _longest(random, (blocks - watermark - slack) * page)
    running = _slots(random, mood)
    return Config(
        policy=policy,
        blocks=blocks,
        page_size=page,
        max_running=running,
        # Prefills are never split, so the longest one must fit in the budget. Decode steps are not budgeted at all
        # there: with less budget than running requests they would exceed it, by the engine's design.
        budget=max(longest, running) + random.choice((0, 0, 1, longest)),
        max_length=longest,
        chunked=False,
        # nano-vllm always caches.
        caching="caching" in can and (policy == "nano-vllm" or mood == "twins" or chance(random, 60)),
        watermark=watermark,
        threshold=random.choice((0, 0, 0, 1)) if "threshold" in can and displaces(PROFILES[policy].contract) else 0,
    )


def _turns(random: Random, policy: str, mood: str, can: frozenset[str]) -> Config:
    page, blocks = _pool(random, mood, 1)
    if mood == "crowd":  # one victim feeds several of those before it: only where many run are several needed
        page, blocks = random.choice((1, 1, 2)), random.randint(8, 18)
    # A table grows by this many tokens at once; one is the least there is.
    ahead = random.choice((1, 1, 2, 3, page, page + 1)) if "lookahead" in can else 1
    ahead = min(ahead, blocks * page - 3)
    # A lone request that grows, or comes back with one token less than its full length, wants that much room behind it.
    longest = _longest(random, blocks * page - ahead + 1)
    return Config(
        policy=policy,
        blocks=blocks,
        page_size=page,
        max_running=7 if mood == "crowd" else _slots(random, mood),
        # As for those that prefill first: a prefill is never split, and decodes are not budgeted.
        budget=max(longest, 7) + random.choice((0, 0, 1, longest)),
        max_length=longest,
        chunked=False,
        caching="caching" in can and (mood == "twins" or chance(random, 60)),
        lookahead=ahead if "lookahead" in can else 0,
    )


def _pool(random: Random, mood: str, least: int, slack: int = 0) -> tuple[int, int]:
    """Page size and blocks. At least four tokens: in less there is no room for two requests, or for one that grows.

    `slack`: blocks on top of that.
    """
    small = mood in ("crowd", "chunks")
    page = max(least, random.randint(1, 2 if small else 4))
    blocks = random.randint(4 if small else max(2, blocks_for(4, page)), 10)
    return page, blocks + slack


def _longest(random: Random, room: int) -> int:
    return room if chance(random, 70) else random.randint(max(4, room // 2), room)


def _slots(random: Random, mood: str) -> int:
    return random.choice((4, 5, 7) if mood in ("crowd", "chunks") else (1, 2, 2, 3, 3, 4, 4, 5, 7))


# -- the requests -----------------------------------------------------------------------------------------------------


def _adds(random: Random, config: Config, mood: str, can: frozenset[str]) -> list[Add]:
    count = random.choice((4, 5, 6, 7) if mood == "crowd" else (2, 3, 3, 4, 4, 5, 6, 7))
    names = [chr(ord("a") + i) for i in range(count)]
    ordered = by_priority(PROFILES[config.policy].contract) and "priority" in can
    if ordered and chance(random, 30):
        random.shuffle(names)  # ties in a priority queue go by id: let ids and arrivals disagree
    priorities = [random.choice((0, 0, 1, 2)) if ordered else 0 for _ in names]
    if chance(random, 50):
        # The best come last, behind worse ones that run already: those are preempted with a grant in hand.
        priorities.sort(reverse=True)
    sizes = [_lengths(random, config, mood) for _ in names]
    if mood == "crowd" and chance(random, 50):
        sizes = [sizes[0]] * count  # all reach a page boundary in the same step
    if mood == "chunks" and chance(random, 80):
        sizes[0] = max(sizes)  # a long prefill in front, small victims behind
    content = _Content(random, config.page_size, mood)
    salted = "salt" in can and config.caching and chance(random, 40)
    # A livelock of the policy itself, shown by runs: of two requests tied in (priority, arrival) the one admitted first
    # is the victim, so two that share a pool by halves preempt each other in turn, for ever, unless admission waits for
    # room for the whole sequence. Ties are left out there, unless asked for.
    tick = 1 if ordered and not config.whole_fit and "ties" not in can else 0
    arrival, adds = 0, []
    for name, priority, (prompt, outputs) in zip(names, priorities, sizes, strict=True):
        # A clock that stands still makes ties; it runs backwards only where the queue is sorted by it anyway.
        arrival += random.choice((0, 0, 1, 1, 2)) + tick
        if ordered and arrival and not tick and chance(random, 10):
            arrival -= 1
        salt = random.choice(("", "s")) if salted else ""
        adds.append(Add(name, content.prompt(prompt), outputs, priority, arrival, salt))
    if "reject" in can and chance(random, 50):
        i = random.randrange(count)
        # One that can never fit. Only for a scheduler whose contract is to refuse it.
        adds[i] = evolve(adds[i], max_tokens=config.max_length - len(adds[i].prompt) + random.randint(1, 3))
    return adds


def _lengths(random: Random, config: Config, mood: str) -> tuple[int, int]:
    """Prompt and output tokens: at page boundaries, one beside them; the whole at most max_length."""
    page, longest = config.page_size, config.max_length
    pages = max(1, longest // page)
    if mood == "chunks":
        near = max(1, pages - random.randrange(3)) if chance(random, 35) else 1
    elif mood == "crowd":
        near = random.randint(1, max(1, pages // 4))
    elif chance(random, 75):
        near = random.randint(1, max(1, pages // max(2, config.max_running)))
    else:
        near = random.randint(1, pages)
    # A prompt leaves room for one output: engines refuse one that does not.
    prompt = min(max(near * page + random.randint(-1, 1), 1), longest - 1)
    if chance(random, 70):
        end = longest - random.randrange(min(page + 1, longest))  # outgrows whatever is left by the others
    elif chance(random, 70):
        end = random.randint(1, pages) * page + random.randint(-1, 2)
    else:
        end = prompt + 1
    return prompt, min(max(end, prompt + 1), longest) - prompt


class _Content:
    """Prompts that share: prefixes of common texts, their chunks at other positions, one chunk over and over."""

    def __init__(self, random: Random, page: int, mood: str) -> None:
        self.random, self.page, self.mood = random, page, mood
        self.texts = [[random.randrange(4) for _ in range(40)] for _ in range(2)]
        self.fresh = 10

    def prompt(self, length: int) -> tuple[int, ...]:
        """That many tokens."""
        random, page = self.random, self.page
        text = self.texts[0] if self.mood == "twins" else random.choice(self.texts)
        kind = random.randrange(5 if self.mood == "twins" else 10)
        if kind < 5:
            tokens = text[:length]
        elif kind < 7:
            first = random.randrange(1, 4) * page  # a page that others have, at another position
            tokens = text[first:] + text[:first]
        elif kind < 8:
            tokens = text[:page] * length
        elif kind < 9:
            keep = random.randrange(length + 1)  # leaves the common text somewhere, perhaps inside a page
            tokens = text[:keep] + [t + 4 for t in text]
        else:
            # Foreign to everybody: whatever is read of another request shows.
            self.fresh += 40
            tokens = list(range(self.fresh, self.fresh + length))
        return tuple((tokens * length)[:length])
