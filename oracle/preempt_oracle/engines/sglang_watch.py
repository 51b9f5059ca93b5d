"""Looks into one SGLang scheduler while it works: who was retracted for whom, what came back, who got which pages.

Runs in the engine's Python, next to `sglang_child`. Methods are wrapped last of all, so that a fault put into them
stays underneath and is seen. A request's table is followed where pages are handed out (the allocator's answers), where
a prefix is hit and where the tree takes pages over (the tree's nodes); what the worker reads is another structure, the
rows of `req_to_token_pool`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.child import Reply, require
else:
    from child import Reply, require


class Watch:
    """The acts, block deltas and hits of one step of `scheduler`, and what came back at a delivery."""

    def __init__(self, sgl: Any, scheduler: Any) -> None:
        self.sgl, self.scheduler = sgl, scheduler
        self.allocator, self.cache = scheduler.token_to_kv_pool_allocator, scheduler.tree_cache
        self.page: int = scheduler.page_size
        require(self.allocator, ("alloc", "available_size", "get_all_free_pages", "free_group", "page_size"))
        require(self.cache, ("lock", "unlock", "on_release", "checkpoint", "evictable_size", "disable", "tree_core"))
        require(self.cache.tree_core, ("root_node", "node_by_id"))
        require(self.cache.tree_core.root_node, ("children", "parent", "component_data"))
        require(scheduler.req_to_token_pool, ("req_to_token",))
        self.tables: dict[str, list[int]] = {}  # request -> pages, as they were handed out
        self.found: set[int] = set()  # pages in the tree, as far as that was told
        self.scheduling = False
        self.trigger: tuple[str, list[str]] = ("growth", [])
        self.resource = "blocks"
        self.asked: tuple[int, int] | None = None  # pages that the batch lacked, and that were free
        self.dropped: list[int] = []  # pages whose locks the latest unlock dropped
        self._undo: list[tuple[Any, str, Any]] = []
        self.begin()
        self._hook()

    def begin(self) -> None:
        """A step or a delivery begins: forget the one before."""
        self.acts: list[Reply] = []
        self.deltas: list[list[Any]] = []
        self.hits: list[list[Any]] = []
        self.handed: list[int] = []  # slots that the allocator handed out
        self.early = 0  # acts before it did so for the first time
        self.unlocked: dict[str, list[int]] = {}  # request -> pages that its end unlocked
        self.exchanged: set[int] = set()  # pages that went out of a table because the tree has others of that content

    def close(self) -> None:
        """Take the wrappers off what outlives the scheduler."""
        while self._undo:
            owner, name, original = self._undo.pop()
            setattr(owner, name, original)

    # -- what is there -----------------------------------------------------------------------------------------------

    def free_pages(self) -> list[int]:
        """The allocator's own list: what nobody holds and nobody could find."""
        return [int(page) for page in self.allocator.get_all_free_pages().tolist()]

    def nodes(self) -> Iterator[Any]:
        """The tree's nodes but the root."""
        stack = list(self.cache.tree_core.root_node.children.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            yield node

    def pages(self, node: Any) -> list[int]:
        """The pages of a node."""
        value = node.component_data[self.sgl.full].value
        return [] if value is None else [int(slot) // self.page for slot in value[:: self.page].tolist()]

    def locks(self) -> dict[int, int]:
        """Each page in the tree, and how many running requests hold it there."""
        return {page: node.component_data[self.sgl.full].lock_ref for node in self.nodes() for page in self.pages(node)}

    def path(self, node_id: Any, length: int | None = None) -> list[int]:
        """The pages from the root to a node."""
        slots = self.cache.path_device_indices(node_id)
        return [int(slot) // self.page for slot in slots[:length][:: self.page].tolist()]

    def row(self, req: Any, length: int) -> list[int]:
        """The first `length` tokens' pages as the worker reads them; 0 for one whose slots are not those of a page."""
        if req.kv.req_pool_idx is None:
            return []
        slots = self.scheduler.req_to_token_pool.req_to_token[req.kv.req_pool_idx, :length].tolist()
        pages = []
        for first in range(0, length, self.page):
            part = slots[first : first + self.page]
            page = part[0] // self.page
            pages.append(page if part == list(range(page * self.page, page * self.page + len(part))) else 0)
        return pages

    # -- grants ------------------------------------------------------------------------------------------------------

    def granted(self, batch: Any, tokens: list[int], starts: list[int], extend: bool) -> None:
        """Follow what a batch was given: pages that were found, then those that were handed out, request by request."""
        for act in self.acts[self.early :]:  # the batch is made by the time pages are handed out for it
            act["after"] = len(batch.reqs)
        if extend:
            # Victims of an admission are back in the queue once those who were admitted have left it.
            again = [act for act in self.acts if act["act"] == "requeue"]
            self.acts = [act for act in self.acts if act["act"] != "requeue"]
            for act in again:
                self._act(**{**act, "after": len(batch.reqs)})
        slots = iter(self.handed)
        for req, n, start in zip(batch.reqs, tokens, starts, strict=True):
            table = self.tables.setdefault(req.rid, [])
            before = len(table)
            if extend:
                found = self.path(req.last_node, start) if start else []
                table[:] = found
                before = 0
                if start or not self.cache.disable:
                    self.hits.append([req.rid, start])
            for at in range(start, start + n):
                slot = next(slots, None)
                if slot is not None and at // self.page >= len(table):
                    table.append(slot // self.page)
            if table[before:]:
                self.deltas.append([req.rid, 0, table[before:]])

    # -- the wrappers ------------------------------------------------------------------------------------------------

    def _wrap(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            return wrapper(original, *args, **kwargs)

        if isinstance(owner, type):
            self._undo.append((owner, name, vars(owner)[name]))
        setattr(owner, name, watched)

    def _hook(self) -> None:
        for name in ("alloc",) if self.page == 1 else ("alloc", "alloc_extend", "alloc_decode"):
            self._wrap(self.allocator, name, self._handing)
        batch = self.sgl.batch
        self._wrap(batch, "retract_decode", self._retracting)
        self._wrap(batch, "check_decode_mem", self._asking)
        self._wrap(batch, "release_req", self._releasing)
        self._wrap(self.sgl.adder, "preempt_to_schedule", self._displacing)
        self._wrap(self.scheduler, "_add_request_to_queue", self._queueing)
        self._wrap(self.cache, "unlock", self._unlocking)
        self._wrap(self.cache, "on_release", self._released)
        self._wrap(self.cache, "checkpoint", self._checkpointing)

    def _handing(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self.retold()  # what was evicted to make room for this
        if not self.handed:
            self.early = len(self.acts)
        slots = original(*args, **kwargs)
        if slots is not None:
            self.handed += [int(slot) for slot in slots.tolist()]
        return slots

    def _asking(self, original: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        selected = args[0] if args else kwargs.get("selected_indices")
        answer = original(batch, *args, **kwargs)
        need = -(-int(batch.new_tokens_required_next_decode(selected)) // self.page)
        self.asked = need, (self.allocator.available_size() + self.cache.evictable_size()) // self.page
        return answer

    def _retracting(self, original: Any, batch: Any) -> Any:
        self.trigger = "growth", [req.rid for req in batch.reqs]
        try:
            return original(batch)
        finally:
            self.trigger = "growth", []

    def _displacing(self, original: Any, adder: Any, req: Any) -> Any:
        """The slots that are left behind those who were admitted before it, as the engine counts them."""
        left = self.scheduler.get_num_allocatable_reqs(len(adder.running_batch.reqs), running_batch=adder.running_batch)
        self.trigger, self.resource = ("admission", [req.rid]), "slots"
        self.asked = 1 + len(adder.can_run_list), left
        try:
            return original(adder, req)
        finally:
            self.trigger, self.resource, self.asked = ("growth", []), "blocks", None

    def _releasing(self, original: Any, batch: Any, idx: int, *args: Any, **kwargs: Any) -> Any:
        req, (cause, served) = batch.reqs[idx], self.trigger
        need, supply = self.asked or (None, None)
        self.retold()
        for_whom = {"cause": cause, "beneficiaries": served, "resource": self.resource}
        self._act("demote", request=req.rid, **for_whom, need=need, supply=supply)
        self.before = Counter(self.free_pages())
        self.joined: Counter[int] = Counter()
        answer = original(batch, idx, *args, **kwargs)
        back = self.back(req.rid, self.joined)
        self._act("release", request=req.rid, blocks=[back], computed=int(req.kv.kv_committed_len))
        self.tables.pop(req.rid, None)
        self.retold()
        return answer

    def _released(self, original: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(req, *args, **kwargs)
        self.unlocked[req.rid], self.dropped = self.dropped, []
        if self.scheduling:  # outside of a step, what is given back is collected and joins the list at the end
            self.joined = Counter(self.free_pages()) - self.before
        return answer

    def _unlocking(self, original: Any, lock: Any) -> Any:
        before = self.locks() if lock is not None else {}
        answer = original(lock)
        after = self.locks() if before else {}
        self.dropped = [page for page, n in before.items() if after.get(page, n) < n]
        return answer

    def _queueing(self, original: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(req, *args, **kwargs)
        if self.scheduling:
            queue = self.scheduler.waiting_queue
            index = next((i for i, other in enumerate(queue) if other is req), None)
            if index is not None:
                known = len(req.origin_input_ids) + len(req.output_ids)
                self._act("requeue", request=req.rid, queue="waiting", index=index, known=known)
        return answer

    def _checkpointing(self, original: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(req, *args, **kwargs)
        if not self.cache.disable:
            table = self.tables.get(req.rid, [])
            held = self.path(req.last_node)
            pairs = [(old, new) for old, new in zip(table, held, strict=False) if old != new]
            if pairs:
                old, new = [old for old, _ in pairs], [new for _, new in pairs]
                self._act("exchange", request=req.rid, blocks=old, instead=new)
                self.exchanged.update(old)
                table[: len(held)] = held
            self.retold(req.rid)
        return answer

    # -- what becomes of pages ---------------------------------------------------------------------------------------

    def retold(self, publisher: str | None = None) -> None:
        """Tell of pages that can be found since this was last asked, and of those that cannot any more."""
        if self.cache.disable:
            return
        found = {page for node in self.nodes() for page in self.pages(node)}
        if gone := sorted(self.found - found):
            self._act("withdraw", blocks=gone)
        if new := sorted(found - self.found):
            owner = publisher or next((name for name, table in self.tables.items() if {*new} & {*table}), None)
            if owner is not None:
                self._act("publish", request=owner, blocks=new)
        self.found = found

    def back(self, name: str, joined: Counter[int]) -> list[int]:
        """What a request's end gave back: pages that joined the free list, as often as they did, or were unlocked."""
        table, unlocked = self.tables.get(name, []), self.unlocked.get(name, [])
        mine = [page for page in table for _ in range(joined[page] or page in unlocked)]
        return mine + [page for page, n in joined.items() if page not in table for _ in range(n)]

    def _act(self, act: str, **fields: Any) -> None:
        self.acts.append({"act": act, "after": 0, **fields})
