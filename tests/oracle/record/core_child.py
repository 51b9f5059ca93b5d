"""vLLM's own engine core, its loop, its queue of batches and its shutdown, over a model that is played: run by path.

`core_child.py RUNS`, a JSON list of pairs: scheduled ahead or not, and the scheduler class by the name that
`--scheduler-cls` gives it ("" for vLLM's own). What is not vLLM's is the model, and the memory that it would have left.
Prints a JSON list: what the users of each saw, or its error at start.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import Any

spec = find_spec("preempt_oracle")
assert spec is not None
assert spec.submodule_search_locations is not None
sys.path.insert(0, str(Path(spec.submodule_search_locations[0]) / "engines"))

import child  # type: ignore[import-not-found]  # noqa: E402

wire = child.claim()

import vllm_build as build  # type: ignore[import-not-found]  # noqa: E402
from vllm.v1.engine import core as cores  # noqa: E402

STOP = 7


def done(answer: Any, non_block: bool) -> Any:
    future: Future[Any] = Future()
    future.set_result(answer)
    return future if non_block else answer


class Played:
    """An executor whose model says, of each request, a token that depends on how long it is by then."""

    max_concurrent_batches = 1

    def __init__(self, config: Any) -> None:
        self.known: dict[str, int] = {}  # tokens
        self.computed: dict[str, int] = {}

    def execute_model(self, output: Any, non_block: bool = False) -> Any:
        for new in output.scheduled_new_reqs:
            tokens = getattr(new, "prefill_token_ids", None) or new.prompt_token_ids
            self.known[new.req_id] = max(len(tokens), self.known.get(new.req_id, 0))
            self.computed[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        self.computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        rows = {}
        for name, count in output.num_scheduled_tokens.items():
            at = self.computed[name] + count
            rows[name] = [STOP if at % 31 == 0 else 100 + at] if at >= self.known[name] else []
            self.known[name] += len(rows[name])
        # A runner has an order of its own.
        self.answer = build.features.runner_output(dict(reversed(rows.items())))
        return done(None if rows else self.answer, non_block)

    def sample_tokens(self, grammar: Any, non_block: bool = False) -> Any:
        return done(self.answer, non_block)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def main(ahead: bool, name: str) -> dict[str, Any]:
    shape = build.parse(
        {
            "policy": "vllm-fcfs", "blocks": 14, "page_size": 4, "max_running": 4, "budget": 32, "max_length": 48,
            "caching": True, "frames": 2 if ahead else 1, "whole_fit": True,
        }
    )  # fmt: skip
    with build.described():
        config, _ = build._configs(shape)
    config.scheduler_config.scheduler_cls = name or None
    pages = build.KVCacheConfig(
        num_blocks=shape.total,
        kv_cache_tensors=[],
        kv_cache_groups=[build.KVCacheGroupSpec(["layer"], build._spec(shape))],
    )
    cores.EngineCore._initialize_kv_caches = lambda self, config: pages
    cores.cleanup_dist_env_and_memory = lambda: None  # there is no accelerator to forget
    try:
        core = cores.EngineCore(config, Played, log_stats=True)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    seen: dict[str, list[int]] = {}
    reasons: dict[str, str] = {}
    for number in range(24):
        told = {"request": f"r{number}", "prompt": [number, *range(5 + number % 7)], "max_tokens": 20 + number % 9}
        request = build.request(shape, {**told, "arrival": number})
        request.sampling_params.stop_token_ids = [STOP]
        core.add_request(request)
    for step in range(2000):
        if not core.scheduler.has_requests():
            break
        if step == 9:
            core.abort_requests(["r1", "r20"])
        outputs, executed = core.step_fn()
        core.post_step(executed)
        for client in (outputs or {}).values():
            for one in client.outputs:
                seen.setdefault(one.request_id, []).extend(one.new_token_ids)
                if one.finish_reason is not None:
                    reasons[one.request_id] = str(one.finish_reason)
    scheduler = type(core.scheduler)
    core.shutdown()
    return {"seen": seen, "reasons": reasons, "class": f"{scheduler.__module__}.{scheduler.__qualname__}"}


wire.write(json.dumps([main(bool(ahead), name) for ahead, name in json.loads(sys.argv[1])]) + "\n")
wire.flush()
