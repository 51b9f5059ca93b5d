"""LMDeploy's PyTorch engine of before its `inputs_maker` (0.10.2), without its model.

Who decides between a prefill and a decode is `InputsMakerAsync.do_prefill_default()`, and what becomes of the answer
`Engine._make_forward_inputs()`, both in `pytorch/engine/engine.py`. That code needs no model, so it runs as it is, on
an `Engine` that was not started: it has the scheduler, the strategies of an autoregressive model, and an executor that
keeps what it is sent.

What the loop around it does (`Engine._async_loop_main`) is five calls, made here one frame at a time: the engine
itself decides on the next prefill while this frame runs.
"""

from __future__ import annotations

import asyncio
import logging
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.child import require
    from preempt_oracle.engines.lmdeploy_engine import Executor, Nothing, Sessions, require_books
else:
    from child import require
    from lmdeploy_engine import Executor, Nothing, Sessions, require_books


def load() -> types.SimpleNamespace:
    """Import what is driven. Raises `Unsupported` naming what is missing."""
    import torch
    from lmdeploy.messages import PytorchEngineConfig
    from lmdeploy.pytorch.config import CacheConfig, DistConfig, SchedulerConfig
    from lmdeploy.pytorch.engine import engine
    from lmdeploy.pytorch.engine.model_agent import BatchedOutputs
    from lmdeploy.pytorch.engine.request import Response, ResponseType
    from lmdeploy.pytorch.messages import MessageStatus, SamplingParam
    from lmdeploy.pytorch.paging.block_manager import base_block_manager
    from lmdeploy.pytorch.paging.scheduler import Scheduler
    from lmdeploy.pytorch.strategies.ar.engine import AREngineStrategy
    from lmdeploy.pytorch.strategies.ar.sequence import ARSequenceStrategy

    logging.getLogger("lmdeploy").setLevel(logging.ERROR)
    require(Scheduler, ("schedule", "_schedule_prefill", "_schedule_decoding", "_set_message_status"))
    require(Scheduler, ("add_session", "add_sequence", "stop_session", "end_session", "waiting", "get_block_tables"))
    require(Scheduler, ("lock_running", "unlock_running", "collect_migration_done"))
    require(engine, ("build_inputs_maker", "_build_seq_meta"))
    require(engine.Engine, ("_make_forward_inputs", "_make_infer_outputs", "create_model_inputs"))
    require(engine.InputsMakerAsync, ("send_next_inputs", "do_prefill_default"))
    require(AREngineStrategy, ("get_prealloc_size", "get_num_loops"))
    require(ARSequenceStrategy, ("update_running", "make_sequence"))
    return types.SimpleNamespace(
        torch=torch,
        dates=base_block_manager,
        cache=CacheConfig,
        settings=SchedulerConfig,
        options=PytorchEngineConfig,
        spread=DistConfig,
        engine=engine,
        outputs=BatchedOutputs,
        status=MessageStatus,
        sampling=SamplingParam,
        response=Response,
        unanswered=ResponseType.HANDLER_NOT_EXIST,
        scheduler=Scheduler,
        sequences=ARSequenceStrategy,
        strategy=AREngineStrategy,
    )


class Loop(Sessions):
    """One scheduler, the engine and the inputs maker around it, and what of its loop is no input or output."""

    going = ("RUNNING", "LOCKED")
    flying = "LOCKED"

    def __init__(
        self,
        lib: types.SimpleNamespace,
        *,
        blocks: int,
        page: int,
        running: int,
        budget: int,
        longest: int,
        ahead: int,
        caching: bool,
    ) -> None:
        self.lib = lib
        self.count_blocks_by(lib.dates)
        cache = lib.cache(
            max_batches=running,
            block_size=page,
            num_cpu_blocks=0,
            num_gpu_blocks=blocks,
            max_prefill_token_num=budget,
            enable_prefix_caching=caching,
            device_type="cpu",
        )
        settings = lib.settings(
            max_batches=running,
            max_session_len=longest,
            max_request_output_len=longest,
            prefill_interval=ahead,
        )
        # What its constructor sets, less the model, the executor's processes and the tasks of its event loop.
        engine = lib.engine.Engine.__new__(lib.engine.Engine)
        engine.executor = Executor()
        engine.engine_config = lib.options()
        engine.scheduler_config, engine.cache_config, engine.dist_config = settings, cache, lib.spread()
        engine.engine_strategy, engine.seq_strategy = lib.strategy(settings, cache), lib.sequences()
        engine.sampling_strategy, engine.model_agent_strategy = Nothing(), Nothing()
        engine.adapter_manager = Nothing()
        meta = lib.engine._build_seq_meta(cache, strategy=engine.seq_strategy)
        engine.scheduler = lib.scheduler(settings, cache, seq_meta=meta)
        self.engine, self.scheduler, self.sequences = engine, engine.scheduler, engine.seq_strategy
        self.maker = lib.engine.build_inputs_maker(engine)
        require_books(self.scheduler)
        require(self.scheduler.eviction_helper, ("evict_for_seq",))
        require(self.scheduler.block_manager, ("free",))
        require(self.scheduler.block_trie, ("leaves",))
        self.calls = asyncio.new_event_loop()

    def add(self, prompt: list[int], outputs: int) -> Any:
        """As `Engine._add_message()` does for a session that has no sequence yet."""
        seq = super().add(prompt, outputs)
        self.scheduler.add_sequence(seq)
        seq.resp = self.lib.response(type=self.lib.unanswered, sender_id=0, event=None)
        return seq

    def step(self) -> tuple[list[Any], Any, Any]:
        """One decision: the batch, and its inputs, of a prefill or of a decode; an empty batch has none."""
        self.scheduler.collect_migration_done()
        sent, batch = self.calls.run_until_complete(self.maker.send_next_inputs())
        if batch is None:
            return [], None, None
        self.scheduler.lock_running(batch)
        inputs = sent["inputs"]
        return list(batch), *((None, inputs) if inputs.is_decoding else (inputs, None))

    def deliver(self, batch: list[Any], prefill: Any, decode: Any, tokens: list[int]) -> None:
        """The frame's tokens, in the order of its batch."""
        outputs = self.outputs(batch, tokens)
        self.engine._make_infer_outputs(outputs, running=batch, is_decoding=prefill is None)
        self.scheduler.unlock_running(batch)
