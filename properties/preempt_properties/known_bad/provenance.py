"""What a request attends, what is findable, and what the worker was told (bugs of kind D)."""

from __future__ import annotations

from itertools import pairwise

from attrs import evolve

from preempt_properties.known_bad.base import BUT_LAZY, CACHING, MIXED, RETRACTING, KnownBad
from preempt_spec import events as ev
from preempt_spec.edit import change
from preempt_spec.policies.policy import Policy, Publish
from preempt_spec.view import Place

Found = tuple[tuple[tuple[int, ...], ...], int]


class ForgetsAResume(KnownBad):
    """Tells the worker of a resumed request as of one that went on running."""

    rule = "resume/message"
    bug = "vllm #26385"

    def tell_resumed(self) -> tuple[ev.Resumed, ...]:
        """Nobody."""
        return ()


class SendsNewBlocksOnly(KnownBad):
    """Sends an admitted request's fresh blocks and leaves out the ones it hit."""

    rule = "resume/message"
    bug = "vllm-omni #6053"

    def tell(self) -> tuple[ev.Sent, ...]:
        """Tables without the pages of a hit."""
        hits = {h.request: h.tokens for h in self.hits}
        return tuple(
            evolve(x, blocks=x.blocks[hits.get(x.request, 0) // self.state.pages[x.group] :]) if x.full else x
            for x in super().tell()
        )


class SendsGrowthTooLate(KnownBad):
    """Leaves a running request's new block out of the message of the step that writes into it."""

    rule = "resume/message"
    bug = "vllm-ascend #14233"

    def tell(self) -> tuple[ev.Sent, ...]:
        """Full descriptions only."""
        return tuple(x for x in super().tell() if x.full)


class HitsAllOfIt(KnownBad):
    """Takes a hit that leaves no token to compute: cached and scheduled together exceed the sequence."""

    rule = "resume/hit"
    bug = "nano-vllm #211"

    def find_prefix(self, request: str) -> Found:
        """One more page, if the last one is resident too."""
        s = self.state
        r = s.requests[request]
        longer = evolve(r, tokens=(*r.tokens, 0))
        self.state = evolve(s, requests={**s.requests, request: longer})
        found = super().find_prefix(request)
        self.state = s
        return found

    def first_tokens(self, request: str, hit: int) -> int:
        """One, if the hit left none and there is budget."""
        s = self.state
        full = hit >= len(s.request(request).tokens)
        return min(1, s.limits.budget - s.plan.spent) if full else super().first_tokens(request, hit)


class RemembersAStaleHit(KnownBad):
    """Looks a prefix up when an admission fails and believes the answer steps later."""

    rule = "resume/hit"
    also = frozenset({"resume/provenance"})  # if the prefix is resident, only in another block
    bug = "vllm #18957"
    policies = CACHING

    def prepare(self) -> None:
        """Nothing looked up."""
        self.looked_up: dict[str, Found] = {}

    def find_prefix(self, request: str) -> Found:
        """The longest answer it ever got."""
        found = super().find_prefix(request)
        return max(self.looked_up.setdefault(request, found), found, key=lambda f: f[1])


class FindsEvictedPages(KnownBad):
    """Leaves the hash of a page findable when its block is handed out and written anew."""

    rule = "resume/hit"
    #: If the prefix is resident, only in another block; if the page became findable since the step before.
    also = frozenset({"resume/provenance", "resume/publish"})
    bug = "kvcached #362"

    def withdraw(self, group: int, blocks: tuple[int, ...]) -> None:
        """Nothing."""


class IgnoresTheSalt(KnownBad):
    """Shares prefixes between tenants whose salts differ."""

    rule = "resume/hit"

    def find_prefix(self, request: str) -> Found:
        """Whatever salt the page was written under."""
        s, best = self.state, super().find_prefix(request)
        r = s.requests[request]
        for salt in ("", "s"):
            self.state = evolve(s, requests={**s.requests, request: evolve(r, salt=salt)})
            best = max(best, super().find_prefix(request), key=lambda f: f[1])
        self.state = s
        return best


class HitsWithoutACache(KnownBad):
    """Takes the first page of a prompt for cached although its cache is off."""

    rule = "resume/hit"
    bug = "vllm #18631"
    policies = (*MIXED, "vidur-vllm", "vllm-v0-swap")  # nano-vllm always caches

    def grant(self, request: str, tokens: int, hit: int = 0, blocks: tuple[tuple[int, ...], ...] = ()) -> None:
        """The last of several tokens of an admission is granted, as if the others were there."""
        r = self.state.request(request)
        if self.state.limits.caching or r.place is not Place.WAITING or tokens < 2:
            super().grant(request, tokens, hit, blocks)
        else:
            super().grant(request, 1, tokens - 1, ((),) * len(self.state.groups))


class ShedsAPageTooEarly(KnownBad):
    """Gives a page back one token before the window has passed it."""

    rule = "resume/provenance"
    policies = BUT_LAZY
    needs = frozenset({"groups"})

    def shed(self, request: str) -> None:
        """As of one token later."""
        r = self.state.request(request)
        self.state = change(self.state, request, computed=r.computed + 1)
        super().shed(request)
        self.state = change(self.state, request, computed=r.computed)


class MovesItsStateWithoutACopy(KnownBad):
    """Gives a running request a second block for its recurrent state, and goes on from what happens to be in it."""

    rule = "resume/provenance"
    policies = BUT_LAZY
    bug = "vllm #29387"
    needs = frozenset({"groups"})

    def pick_blocks(self, group: int, count: int, keep: tuple[int, ...]) -> tuple[int, ...]:
        """One more where there is one already."""
        recurrent = self.state.groups[group].kind == "recurrent"
        return super().pick_blocks(group, 1 if recurrent else count, keep)


class HashesPagesWithoutTheirPast(KnownBad):
    """Finds a page by its own tokens, wherever in whatever text it was computed."""

    rule = "resume/provenance"

    def find_prefix(self, request: str) -> Found:
        """The hit is as long as it should be; its pages come from anywhere."""
        blocks, hit = super().find_prefix(request)
        s, r = self.state, self.state.requests[request]
        swapped = []
        for g, m in enumerate(s.memory):
            page = {b.published[1][-m.page :]: i for i, b in m.blocks.items() if b.published is not None}
            swapped.append(tuple(page.get(r.tokens[i * m.page : (i + 1) * m.page], b) for i, b in enumerate(blocks[g])))
        if any(len(set(row)) < len(row) for row in swapped):
            return blocks, hit
        return tuple(swapped), hit


class SkipsATokenOfItsPrefill(KnownBad):
    """Continues a prefill one token too far on: a slot that is attended was never written."""

    rule = "frame/once"
    bug = "LightLLM #741"
    policies = MIXED

    def serve_running(self) -> None:
        """A chunk that could be split starts late."""
        super().serve_running()
        plan = self.state.plan
        late = {
            r: (start + 1, n - 1) if n > 1 and r in plan.entered else (start, n)
            for r, (start, n) in plan.granted.items()
        }
        self.state = evolve(self.state, plan=evolve(plan, granted=late))


class ReadsAForeignBlock(KnownBad):
    """Gives a resumed request back the blocks it had, whoever wrote into them since."""

    rule = "resume/provenance"
    bug = "ROCm/ATOM #2028"

    def find_prefix(self, request: str) -> Found:
        """The first page of a hit is replaced by any idle block."""
        blocks, hit = super().find_prefix(request)
        idle = [sorted(self.state.free_ids(g) - set(blocks[g])) for g in range(len(blocks))]
        if not hit or not all(idle):
            return blocks, hit
        return tuple((idle[g][0], *row[1:]) for g, row in enumerate(blocks)), hit


class PublishesHalfAPage(KnownBad):
    """Makes a page findable as soon as its first token is written."""

    rule = "resume/publish"
    bug = "vllm #49125"

    def publish_full_pages(self) -> None:
        """The page behind the full ones too."""
        super().publish_full_pages()
        if self.state.limits.caching:
            for r, (start, n) in self.state.plan.granted.items():
                for g, page in enumerate(self.state.pages):
                    rest = self.state.request(r).tables[g][(start + n) // page :][:1]
                    if rest:
                        self._act(ev.Publish(r, rest, len(self.state.plan.granted), g))


class PublishesACancelledWrite(KnownBad):
    """Publishes a grant's pages when it is planned, and leaves them findable when the grant is taken back."""

    rule = "resume/publish"
    bug = "FastDeploy #5502"
    policies = ("vllm-priority",)

    def take_back(self, victim: str) -> None:
        """The pages this grant would have filled stay published."""
        start, n = self.state.plan.granted[victim]
        at = list(self.state.plan.granted).index(victim)
        if self.state.limits.caching:
            for g, page in enumerate(self.state.pages):
                full = self.state.request(victim).tables[g][start // page : (start + n) // page]
                if full:
                    self._act(ev.Publish(victim, full, at + 1, g))
        super().take_back(victim)


class PublishesTheBlocksOfOthers(KnownBad):
    """Publishes by a row index that has moved: the blocks are the next request's."""

    rule = "resume/publish"
    bug = "TensorRT-LLM #13592"

    def publish_full_pages(self) -> None:
        """Each grant publishes the first block of its neighbour."""
        rows = [r for r in self.state.plan.granted if self.state.request(r).place is Place.RUNNING]
        for r, other in pairwise(rows):
            foreign = [b for b in self.state.request(other).tables[0] if b not in self.state.request(r).tables[0]]
            if foreign and self.state.limits.caching:
                self._act(ev.Publish(r, (foreign[0],), len(self.state.plan.granted), 0))
                return
        super().publish_full_pages()


class Committing(KnownBad):
    """Makes a page findable once the passes that filled it came back. Nothing is wrong."""

    policies = CACHING

    @classmethod
    def contract(cls, policy: Policy) -> Policy:
        """At commit."""
        return evolve(policy, publish=Publish.COMMIT)


class PublishesWhatStillFlies(Committing):
    """Counts what was planned for written: a page is found before the pass that fills it is back."""

    rule = "resume/publish"
    bug = "nano-vllm #211"

    def publish_full_pages(self) -> None:
        """What this step fills, too."""
        granted = self.state.plan.granted
        for r, (start, tokens) in granted.items() if self.state.limits.caching else ():
            self.publish(r, start + tokens, len(granted))


class TakesOverAnotherPage(KnownBad):
    """Lets a page that somebody else published take the place of a request's own, whatever it holds."""

    rule = "resume/provenance"
    policies = RETRACTING

    def merge(self, request: str, upto: int) -> None:
        """The first page; of the same length, at least."""
        r, m = self.state.request(request), self.state.memory[0]
        if upto < m.page or m.block(r.tables[0][0]).published is not None:
            return
        right = r.prefix(m.page)
        for other, block in sorted(m.blocks.items()):
            page = block.published
            if page is not None and page != right and len(page[1]) == m.page and other not in r.tables[0]:
                self.merged.add(request)
                self._act(ev.Exchange(request, r.tables[0][:1], (other,)))
                return


class CountsItsTokensBeforeTheHit(KnownBad):
    """Counts the tokens of an admission before it looks for a hit: together they exceed the sequence."""

    rule = "output/stream"
    also = frozenset({"live/progress"})  # if there is no room for what it counts too many
    bug = "nano-vllm #211"

    def first_tokens(self, request: str, hit: int) -> int:
        """As if there were no hit, if all of it fits in the budget."""
        return super().first_tokens(request, 0) or super().first_tokens(request, hit)
