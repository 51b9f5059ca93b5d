"""Continuous batching of transformers with its model running: KV that goes to the host and comes back, and outputs.

Run by path, like an adapter, and spoken to in the same protocol: `start` with sizes, `add` for each request, then
`step`, which runs them all to their end twice, with `blocks` blocks and a host pool, and with enough for everybody, and
answers with what was seen. Nothing is compared here.

The KV is read through the views that the attention layers write and read, slot by slot; the engine copies whole blocks
through another view. It is read right before a victim's copy is asked for, when its blocks were given back and nobody
has written them, and right after it is back in its new blocks.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.child import (
        Command,
        Engine,
        Refused,
        Reply,
        arrive,
        claim,
        header,
        require,
        serve,
        version_of,
        whole,
    )
    from preempt_oracle.engines.faults import inject
    from preempt_oracle.engines.transformers_build import load, model, processor
    from preempt_oracle.engines.transformers_content_faults import FAULTS
else:
    from child import Command, Engine, Refused, Reply, arrive, claim, header, require, serve, version_of, whole
    from faults import inject
    from transformers_build import load, model, processor
    from transformers_content_faults import FAULTS

LAYERS, HEADS, VOCABULARY = 3, 2, 256
MOST_STEPS = 5000


class Content(Engine):
    """A small Llama, and processors for one round after another."""

    hf: Any = None
    llama: Any = None

    def start(self, config: dict[str, Any]) -> Reply:
        self.injection = inject(config, FAULTS)
        if self.hf is None:
            self.hf = load()
            self.llama = model(self.hf, layers=LAYERS, heads=HEADS, seed=7, vocabulary=VOCABULARY)
            with self.hf.torch.no_grad():
                # Wide enough that a token depends on all that was said before, and greedy decoding does not go round.
                for name, weight in self.llama.named_parameters():
                    if "norm" not in name:
                        weight.normal_(0.0, 0.6 if "embed" in name else 0.25)
        sizes = ("blocks", "page_size", "max_running", "budget")
        self.sizes = {name: whole(config, name, 1) for name in sizes}
        self.host = whole(config, "host_blocks", 0)
        self.sharing = config.get("caching") is True
        self.requests: list[Command] = []
        told = {**config, "policy": "hf-cb-offload", "max_length": whole(config, "max_length", 2)}
        return header("transformers", version_of("transformers"), told, ("copies",), ())

    def stop(self) -> None:
        self.requests = []

    def add(self, cmd: Command) -> Reply:
        if any(t >= VOCABULARY for t in cmd["prompt"]):
            raise Refused(f"request {cmd['request']!r}: the model knows {VOCABULARY} tokens")
        self.requests.append(cmd)
        return arrive(cmd)

    def step(self) -> Reply:
        enough = sum(-(-(len(c["prompt"]) + c["max_tokens"]) // self.sizes["page_size"]) for c in self.requests)
        free, _ = self._run(enough + 2, 0, pressed=False)
        pressed, seen = self._run(self.sizes["blocks"], self.host, pressed=True)
        self.requests = []
        told = {"trips": seen.trips, "recomputed": seen.dropped, "hits": seen.hits}
        return {"event": "content", "pressed": pressed, "unpressed": free, **told}

    def _run(self, blocks: int, host: int, *, pressed: bool) -> tuple[dict[str, Any], Trips]:
        """All requests to their end: what each was given, and what was seen of their KV. Sharing is under pressure."""
        sizes = {"page": self.sizes["page_size"], "running": self.sizes["max_running"], "budget": self.sizes["budget"]}
        sharing = pressed and self.sharing
        _, cb = processor(
            self.hf, self.llama, blocks=blocks, **sizes, caching=sharing, scheduler="fifo", host_blocks=host
        )
        if pressed and self.injection is not None:
            self.injection.put(cb)
        watch = Trips(cb)
        for c in self.requests:
            cb.scheduler.add_waiting_request(
                self.hf.state(
                    request_id=c["request"],
                    initial_tokens=list(c["prompt"]),
                    max_new_tokens=c["max_tokens"],
                    eos_token_id=-1,
                )
            )
        said: dict[str, dict[str, list[Any]]] = {
            c["request"]: {"tokens": [], "best": [], "margins": []} for c in self.requests
        }
        seen: list[Any] = []
        hook = self.llama.register_forward_hook(lambda _model, _args, out: seen.append(out.logits))
        try:
            for _ in range(MOST_STEPS):
                if not cb.prepare_next_batch():
                    break
                states = [f.state for f in cb.inputs_and_outputs.requests_in_batch if f.has_new_token]
                cb._generation_step(self.llama)
                before = [len(s.generated_tokens) for s in states]
                cb.update_batch()
                top = seen.pop()[0, : len(states)].float().topk(2)
                for i, state in enumerate(states):
                    told = said[state.request_id]
                    told["tokens"] += state.generated_tokens[before[i] :]
                    told["best"].append(int(top.indices[i, 0]))
                    told["margins"].append(float(top.values[i, 0] - top.values[i, 1]))
                seen.clear()
        finally:
            hook.remove()
            if self.injection is not None:
                self.injection.remove()
        return said, watch


class Trips:
    """The KV of each victim, when it goes out and when it is back."""

    def __init__(self, cb: Any) -> None:
        self.manager = cb.offloading_manager
        (self.allocator,) = cb.cache.cache_allocators.values()
        require(self.allocator, ("_kv_token_views", "block_physical_stride", "tokens_per_page"))
        self.trips: list[dict[str, Any]] = []
        self.away: dict[str, dict[str, Any]] = {}
        self.dropped = self.hits = 0
        search = cb.cache.search_prefix_match

        def searching(*args: Any) -> Any:
            found = search(*args)
            self.hits += found
            return found

        cb.cache.search_prefix_match = searching
        out, back = self.manager._offload_to_cpu, self.manager.restore_scheduled_requests

        def going(victims: Any, tables: Any) -> Any:
            images = {
                s.request_id: self.image(next(iter(tables[s.request_id].values())), s.position_offset) for s in victims
            }
            gone = out(victims, tables)
            for name in images:
                if name in gone:
                    self.away[name] = {"request": name, "out": images[name], "back": None}
                    self.trips.append(self.away[name])
                else:
                    self.dropped += 1
            return gone

        def coming(batch: Any) -> Any:
            names = [f.state for f in batch if f.state.is_cpu_offloaded]
            answer = back(batch)
            for state in names:
                table = self.allocator.block_table.get(state.request_id, [])
                self.away.pop(state.request_id)["back"] = self.image(table, state.position_offset)
            return answer

        self.manager._offload_to_cpu, self.manager.restore_scheduled_requests = going, coming

    def image(self, table: list[int], tokens: int) -> dict[str, Any]:
        """A digest of every layer's keys and values, for each of the first `tokens` tokens."""
        page, stride = self.allocator.tokens_per_page, self.allocator.block_physical_stride
        slots = [table[p // page] * stride + p % page for p in range(tokens) if p // page < len(table)]
        parts = {}
        for layer, views in self.allocator._kv_token_views.items():
            for name, view in zip("kv", views, strict=True):
                rows = view[slots].cpu().contiguous().numpy()
                parts[f"{layer}/{name}"] = [hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest() for row in rows]
        return {"tokens": tokens, "parts": parts}


if __name__ == "__main__":
    claim()
    serve(Content(), "transformers")
