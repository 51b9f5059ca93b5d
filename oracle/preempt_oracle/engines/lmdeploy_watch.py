"""Looks into one LMDeploy scheduler while it works: who grew, who left for want of room, whose blocks came back.

Runs in the engine's Python, next to `lmdeploy_child`: what LMDeploy 0.18.0 has beyond `lmdeploy_books`. Its decodes
look at who runs from the last position to the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.lmdeploy_books import Books
else:
    from lmdeploy_books import Books


class Watch(Books):
    """The acts and block deltas of one step, and what came back outside of one."""

    def _admissions(self) -> int:
        return int(self.scheduler.num_ready())

    def _hook(self) -> None:
        scheduler = self.scheduler
        helper, lifecycle = scheduler.eviction_helper, scheduler.sequence_lifecycle
        make_room = helper.try_make_capacity_for
        release, preempt = lifecycle.release_paging_resources, scheduler.preempt_seqs
        match, decode = scheduler.block_trie.match, scheduler.schedule_running

        def making_room(seq: Any, *args: Any, **kwargs: Any) -> Any:
            self.asked = self.lacks = seq  # while it is asked, too: others give back their blocks then
            answer = make_room(seq, *args, **kwargs)
            if answer:
                self.lacks = None
            return answer

        def matching(seq: Any) -> Any:
            before = len(seq.logical_blocks)
            answer = match(seq)
            if blocks := self.table(seq)[before:]:
                self.matched[seq.seq_id] = blocks
            return answer

        def releasing(seq: Any) -> Any:
            self.back = []
            hit = self.matched.pop(seq.seq_id, [])  # a hit that came to nothing was never told of
            nothing = len(seq.logical_blocks) == len(hit)
            answer = release(seq)
            back = self._given_back(hit)
            if self.stepping and not (hit and nothing):
                self._act("release", request=self.name(seq), blocks=[back], computed=int(seq.num_history_ids))
            elif not self.stepping:
                self.returned.setdefault(self.name(seq), []).extend(back)
            return answer

        def preempting(seqs: Any) -> Any:
            seqs = list(seqs)
            ran = [seq for seq in seqs if seq.status in self.going]
            served = [self.name(self.lacks)] if self.lacks is not None else []
            at = len(self.acts)
            answer = preempt(seqs)
            for seq in ran:
                if seq.status not in self.going:
                    self._demoted(seq, served, at)
            return answer

        def decoding(running: Any, *args: Any, **kwargs: Any) -> Any:
            self.looked, self.decoding, self.decoded, self.lacks = [], True, True, None
            answer = decode(running, *args, **kwargs)
            self.decoding = False
            return answer

        helper.try_make_capacity_for, scheduler.block_trie.match = making_room, matching
        lifecycle.release_paging_resources, scheduler.preempt_seqs = releasing, preempting
        scheduler.schedule_running = decoding
