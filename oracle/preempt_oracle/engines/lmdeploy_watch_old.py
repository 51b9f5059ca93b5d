"""Looks into one LMDeploy scheduler of before its `inputs_maker` (0.10.2) while it works.

Runs in the engine's Python, next to `lmdeploy_child`: what that generation has beyond `lmdeploy_books`. Its decodes
look at who runs from the first position to the last, and its releases are plain calls of `BlockManager.free`.

A prefix hit is not taken back where its request finds no room behind it (`Scheduler._schedule_prefill`: `match`, then
`break`): whoever waits then goes on holding the blocks that it hit, until it is admitted, cancelled, or somebody who
lacks room takes back what those who wait hold. No grant came of them, so they are no part of its table: they are told
as pins, and what it holds is told without them, as it was before the hit. With the admission they are told as hit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.child import Reply
    from preempt_oracle.engines.lmdeploy_books import Books
    from preempt_oracle.engines.lmdeploy_engine_old import Loop
else:
    from lmdeploy_books import Books

    Reply = Loop = Any


class Watch(Books):
    """The acts and block deltas of one step, and what came back outside of one."""

    block_of = "block"

    def __init__(self, loop: Loop) -> None:
        self.pinned: dict[int, list[int]] = {}  # seq_id -> blocks that it hit, who then found no room
        self.steps: dict[int, int] = {}  # its computed tokens before that
        self.making_room = False
        self.freed: list[tuple[Reply, Any]] = []  # releases of those who are set back once there is room
        super().__init__(loop)

    def held(self) -> list[tuple[str, int, int]]:
        """Of those who wait: blocks and computed tokens, what they merely hit apart."""
        rows = zip(self.waiting(), super().held(), strict=True)
        pinned, steps = self.pinned, self.steps
        return [(n, b - len(pinned.get(q.seq_id, ())), steps.get(q.seq_id, step)) for q, (n, b, step) in rows]

    def hung(self) -> set[int]:
        """Those that can be found, and those that only its list of leaves leads to: it gives them up like any other.

        It may evict a page that has others behind it (finding L2), which then are found no more.
        """
        found = self.cached()
        for leaf in self.scheduler.block_trie.leaves:
            node = leaf
            while node.parent is not None:
                found.add(int(node.block))
                node = node.parent
        return found

    def _kept(self, seq: Any) -> list[int]:
        self.steps.pop(seq.seq_id, None)
        blocks = self.pinned.pop(seq.seq_id, [])
        if blocks:
            self._act("unpin", blocks=blocks)
        return blocks

    def _hook(self) -> None:
        scheduler, manager = self.scheduler, self.manager
        helper, trie = scheduler.eviction_helper, scheduler.block_trie
        make_room, free, match, turn = helper.evict_for_seq, manager.free, trie.match, scheduler._set_message_status
        prefill, decode = scheduler._schedule_prefill, scheduler._schedule_decoding

        def making_room(seq: Any, *args: Any, **kwargs: Any) -> Any:
            self.asked = self.lacks = seq  # while it is asked, too: others give back their blocks then
            self.making_room, self.freed = True, []
            answer = make_room(seq, *args, **kwargs)
            self.making_room = False
            for act, other in self.freed:  # their step is set behind the call that frees their blocks
                act["computed"] = int(other.num_history_ids)
            if answer:
                self.lacks = None
            return answer

        def matching(seq: Any) -> Any:
            before, step = len(seq.logical_blocks), int(seq.num_history_ids)
            answer = match(seq)
            if blocks := self.table(seq)[before:]:
                self.matched[seq.seq_id] = blocks
                self.steps.setdefault(seq.seq_id, step)
            return answer

        def prefilling(*args: Any, **kwargs: Any) -> Any:
            answer = prefill(*args, **kwargs)
            for seq, blocks in self.matched.items():  # of whoever did not fit behind it
                self.pinned.setdefault(seq, []).extend(blocks)
                self._act("pin", blocks=blocks)
            self.matched = {}
            return answer

        def freeing(seq: Any) -> Any:
            apart = self._kept(seq)
            own, self.back = len(seq.logical_blocks) - len(apart), []
            answer = free(seq)
            back = self._given_back(apart)
            if not self.stepping:
                self.returned.setdefault(self.name(seq), []).extend(back)
            elif own:
                self._act("release", request=self.name(seq), blocks=[back], computed=int(seq.num_history_ids))
                if self.making_room:
                    self.freed.append((self.acts[-1], seq))
            return answer

        def turning(seq: Any, *args: Any, **kwargs: Any) -> Any:
            ran, at = seq.status in self.going, len(self.acts)
            answer = turn(seq, *args, **kwargs)
            if self.stepping and ran and seq.status is self.status.WAITING:
                self._demoted(seq, [self.name(self.lacks)] if self.lacks is not None else [], at)
            return answer

        def decoding(*args: Any, **kwargs: Any) -> Any:
            self.looked, self.decoding, self.decoded, self.lacks = [], True, True, None
            answer = decode(*args, **kwargs)
            self.decoding = False
            return answer

        helper.evict_for_seq, manager.free, trie.match = making_room, freeing, matching
        scheduler._set_message_status = turning
        scheduler._schedule_prefill, scheduler._schedule_decoding = prefilling, decoding
