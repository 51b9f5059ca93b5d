"""Reads the books of one LMDeploy scheduler, and what it does with blocks: what both generations have in common.

Runs in the engine's Python, next to `lmdeploy_child`. Bound methods of one scheduler and of its parts are wrapped, last
of all, so that a fault put into them stays underneath and is seen.

A decode looks at its batch in an order of its own, and its grants are told in that order: whoever was looked at before
has its room. All blocks are told by their physical ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.child import Reply
    from preempt_oracle.engines.lmdeploy_engine import Sessions
else:
    Reply = Any
    Sessions = Any


class Books:
    """The acts and block deltas of one step of `loop`, and what came back outside of one."""

    block_of = "block_id"  # what a node of the trie calls its block

    def __init__(self, loop: Sessions) -> None:
        self.loop, self.scheduler = loop, loop.scheduler
        self.manager = self.scheduler.block_manager
        self.allocator = self.manager.allocator
        self.status = loop.lib.status
        self.going = tuple(self.status[name] for name in loop.going)
        self.names: dict[int, str] = {}  # seq_id -> request
        self.preempted: set[str] = set()  # demoted and not yet prefilled again
        self.stepping = False
        self.begin()
        self._hook()
        self._hook_blocks()

    def begin(self) -> None:
        """A step or a delivery begins: forget the one before."""
        self.acts: list[Reply] = []
        self.deltas: list[list[Any]] = []
        self.hits: list[list[Any]] = []
        self.matched: dict[int, list[int]] = {}  # seq_id -> blocks that a prefix hit appended, until it is admitted
        self.returned: dict[str, list[int]] = {}  # what came back outside of a step
        self.back: list[int] = []  # blocks that lost a reference since somebody asked
        self.told: dict[int, int] = {}  # entries of each table that the latest message was made from
        self.looked: list[Any] = []  # whom a decode looked at, in that order
        self.decoding = self.decoded = False
        self.admitted = 0
        self.lacks: Any = None  # for whom room was last asked for, unless there was room
        self.asked: Any = None  # for whom room was last asked for

    def step(self) -> tuple[list[Any], Any, Any]:
        """As `Loop.step`."""
        self.stepping = True
        try:
            return self.loop.step()
        finally:
            self.stepping = False

    def name(self, seq: Any) -> str:
        """The request of a sequence."""
        return self.names[seq.seq_id]

    def forget(self) -> None:
        """No frame flies: only whom the engine still has in its books must stay nameable."""
        self.names = {q.seq_id: self.names[q.seq_id] for q in self.scheduler.seq_manager.get_all_sequences()}

    def table(self, seq: Any) -> list[int]:
        """The allocator's table, in physical blocks."""
        return [int(b) for b in self.allocator.get_physical_blocks(seq.logical_blocks.get_real_blocks())]

    def physical(self, block: int) -> int:
        """The physical id of a logical block."""
        return int(self.allocator._log_mem.phy_map[block])

    def cached(self) -> set[int]:
        """Logical blocks that can be found in the trie."""
        found: set[int] = set()
        nodes = list(self.scheduler.block_trie._roots.values())
        while nodes:
            node = nodes.pop()
            nodes += node.children.values()
            if (block := int(getattr(node, self.block_of))) >= 0:
                found.add(block)
        return found

    def hung(self) -> set[int]:
        """Logical blocks that the trie refers to."""
        return self.cached()

    def idle(self) -> list[int]:
        """Blocks that nothing but the trie refers to, by physical id."""
        return [self.physical(b) for b in sorted(self.hung()) if int(self.allocator._log_mem.ref_count[b]) == 1]

    def waiting(self) -> list[Any]:
        """Who waits, in the order in which a prefill looks at them."""
        return sorted(self.scheduler.waiting, key=lambda seq: seq.arrive_time)

    def running(self) -> list[Any]:
        """Who runs, by the scheduler's own books."""
        return [seq for status in self.going for seq in self.scheduler.seq_manager.get_sequences(status).values()]

    def held(self) -> list[tuple[str, int, int]]:
        """Of those who wait: blocks and computed tokens."""
        return [(self.name(seq), int(seq.num_blocks), int(seq.num_history_ids)) for seq in self.waiting()]

    def sent(self, batch: list[Any], inputs: Any) -> list[tuple[str, list[int]]]:
        """The block table that the workers are told, per sequence: of the message, whose rows are filled with zeros."""
        rows = inputs.block_offsets.tolist()
        return [(self.name(q), row[: self.told.get(q.seq_id, len(row))]) for q, row in zip(batch, rows, strict=True)]

    def turned(self, batch: list[Any]) -> list[Any]:
        """The batch of a decode in the order in which it was looked at; who was not comes last."""
        order = {id(seq): i for i, seq in enumerate(self.looked)}
        return sorted(batch, key=lambda seq: order.get(id(seq), len(order)))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _hook(self) -> None:
        """Wrap what only this generation has."""
        raise NotImplementedError

    def _kept(self, _: Any) -> list[int]:
        """Blocks of a hit of before that somebody who waits was left with: it has them no more."""
        return []

    def _admissions(self) -> int:
        """How many were admitted so far in this step."""
        return self.admitted

    def _hook_blocks(self) -> None:
        manager, trie = self.manager, self.scheduler.block_trie
        allocate, free, lacking = manager.allocate, self.allocator.free, manager.num_required_blocks
        hang, evict = trie.allocate, trie.evict
        tables = self.scheduler.get_block_tables

        def hanging(seq: Any) -> Any:
            table, cached = self.table(seq), self.cached()
            answer = hang(seq)
            changed = [(old, new) for old, new in zip(table, self.table(seq), strict=True) if old != new]
            after = self._after(seq) + 1  # the grant for which it was allocated is made
            if changed:
                old, new = ([pair[i] for pair in changed] for i in (0, 1))
                act = {"act": "exchange", "after": after, "request": self.name(seq), "blocks": old, "instead": new}
                self.acts.append(act)
            if fresh := sorted(map(self.physical, self.cached() - cached)):
                self.acts.append({"act": "publish", "after": after, "request": self.name(seq), "blocks": fresh})
            return answer

        def evicting(*args: Any, **kwargs: Any) -> Any:
            cached = {b: self.physical(b) for b in self.cached()}
            answer = evict(*args, **kwargs)
            if gone := sorted(cached[b] for b in cached.keys() - self.cached()):
                self._act("withdraw", blocks=gone)
            return answer

        def allocating(seq: Any, *args: Any, **kwargs: Any) -> Any:
            hit = self._kept(seq) + self.matched.pop(seq.seq_id, [])
            before = len(seq.logical_blocks) - len(hit)
            if hit:
                self.hits.append([self.name(seq), int(seq.num_history_ids)])
            answer = allocate(seq, *args, **kwargs)
            if added := self.table(seq)[before:]:
                self.deltas.append([self.name(seq), 0, added])
            self.admitted += not self.decoded
            return answer

        def freeing(blocks: Any) -> Any:
            physical = [int(b) for b in self.allocator.get_physical_blocks(blocks)]
            before = [int(n) for n in self.allocator.get_ref_count(blocks)]
            answer = free(blocks)
            after = [int(n) for n in self.allocator.get_ref_count(blocks)]
            self.back += [b for b, had, has in zip(physical, before, after, strict=True) if has < had]
            return answer

        def telling(seqs: Any) -> Any:
            answer = tables(seqs)
            self.told = {seq.seq_id: len(row) for seq, row in zip(seqs, answer, strict=True)}
            return answer

        def looking(seq: Any, *args: Any, **kwargs: Any) -> Any:
            if self.decoding and all(other is not seq for other in self.looked):
                self.looked.append(seq)
                self.lacks = None
            return lacking(seq, *args, **kwargs)

        trie.allocate, trie.evict, manager.allocate, self.allocator.free = hanging, evicting, allocating, freeing
        self.scheduler.get_block_tables, manager.num_required_blocks = telling, looking

    def _given_back(self, apart: list[int]) -> list[int]:
        """Blocks that lost a reference since `back` was emptied, less one for each of those told otherwise."""
        back = self.back[::-1]
        for block in apart:
            back.remove(block)
        return back[::-1]

    def _demoted(self, seq: Any, served: list[str], at: int) -> None:
        name = self.name(seq)
        self.acts.insert(
            at,
            {"act": "demote", "after": self._after(seq), "request": name, "cause": "growth", "beneficiaries": served},
        )
        self.preempted.add(name)
        for index, other in enumerate(self.waiting()):
            if other is seq:
                self._act("requeue", seq, request=name, queue="waiting", index=index, known=int(seq.num_all_ids))
                break

    def _after(self, seq: Any = None) -> int:
        """Grants made before what happens now: of a decode, those looked at before; else, admissions."""
        if not self.decoded:
            return self._admissions()
        turn, count = seq if seq is not None else self.asked, 0
        for other in self.looked:
            if other is turn:
                break
            count += other.status is self.status.RUNNING
        return count

    def _act(self, act: str, seq: Any = None, **fields: Any) -> None:
        self.acts.append({"act": act, "after": self._after(seq), **fields})
