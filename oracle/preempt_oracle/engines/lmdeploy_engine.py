"""LMDeploy's PyTorch engine without its model: the scheduler, and the code of the engine's loop that drives it.

Who decides between a prefill and a decode is not the scheduler but `InputsMakerAsync`, with a counter, the number of
waiting tokens and the number of those that run. That code needs no model, so the adapter runs it as it is: it is given
an executor that keeps what it is sent, and the strategies of an autoregressive model. Nothing of it is imitated.

What the loop around it does (`EngineLoop.main_loop`) is three calls, made here one frame at a time: the engine itself
decides on the next frame while this one runs.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.child import require
else:
    from child import require


class Executor:
    """Stands in for the workers: keeps what the latest frame was sent."""

    device_type = "cpu"

    def __init__(self) -> None:
        self.sent: Any = None

    async def forward_async(self, inputs: Any) -> None:
        """A frame leaves."""
        self.sent = inputs


class Nothing:
    """Strategies of the model's side, and adapters to its weights: whatever is asked of them is nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def num_adapters(self) -> int:
        """None but the model itself."""
        return 1


def load() -> types.SimpleNamespace:
    """Import what is driven. Raises `Unsupported` naming what is missing."""
    import torch
    from lmdeploy.pytorch.config import CacheConfig, SchedulerConfig
    from lmdeploy.pytorch.disagg.config import EngineRole
    from lmdeploy.pytorch.engine.inputs_maker import InputsMakerAsync, InputsMakerConfig
    from lmdeploy.pytorch.engine.model_agent import BatchedOutputs
    from lmdeploy.pytorch.messages import MessageStatus, SamplingParam, SequenceMeta
    from lmdeploy.pytorch.paging.block_manager import base_block_manager
    from lmdeploy.pytorch.paging.scheduler import Scheduler
    from lmdeploy.pytorch.strategies.ar.engine import AREngineStrategy
    from lmdeploy.pytorch.strategies.ar.sequence import ARSequenceStrategy

    logging.getLogger("lmdeploy").setLevel(logging.ERROR)
    require(Scheduler, ("schedule", "schedule_running", "activate_seqs", "preempt_seqs", "get_block_tables"))
    require(Scheduler, ("add_session", "stop_session", "end_session", "waiting", "num_ready", "state_checkpoints"))
    require(InputsMakerAsync, ("send_next_inputs", "update_running_seqs", "preempt_invalid_decode_seqs"))
    require(InputsMakerAsync, ("do_prefill_default",))
    require(ARSequenceStrategy, ("update_running", "make_sequence"))
    require(AREngineStrategy, ("get_prealloc_size", "get_num_required_tokens"))
    return types.SimpleNamespace(
        torch=torch,
        dates=base_block_manager,
        cache=CacheConfig,
        settings=SchedulerConfig,
        role=EngineRole.Hybrid,
        maker=InputsMakerAsync,
        maker_settings=InputsMakerConfig,
        outputs=BatchedOutputs,
        status=MessageStatus,
        sampling=SamplingParam,
        meta=SequenceMeta,
        scheduler=Scheduler,
        sequences=ARSequenceStrategy,
        strategy=AREngineStrategy,
    )


class Sessions:
    """What both generations of the engine have: each request is a session of its own."""

    calls: asyncio.AbstractEventLoop
    lib: types.SimpleNamespace
    scheduler: Any
    going: tuple[str, ...]  # the states in which a sequence runs
    flying: str  # the state of one that is in a frame
    sessions = 0

    def count_blocks_by(self, dates: Any) -> None:
        """Give the blocks a clock that counts. The memory they are dated in has whole seconds, and of those of one
        second the trie gives up the one with the lowest address: so the same run does the same."""
        ticks = itertools.count(1)
        dates.time = types.SimpleNamespace(perf_counter=lambda: next(ticks))

    def add(self, prompt: list[int], outputs: int) -> Any:
        """A request arrives, in a session of its own; its sequence."""
        session = self.scheduler.add_session(self.sessions)
        self.sessions += 1
        sampling = self.lib.sampling(max_new_tokens=outputs, ignore_eos=True)
        seq = session.add_sequence(self.lib.torch.tensor(prompt), sampling_param=sampling)
        require(seq, ("seq_id", "session_id", "logical_blocks", "num_blocks", "num_history_ids", "num_token_ids"))
        require(seq, ("num_all_ids", "history_cache", "generated_ids", "arrive_time", "status", "num_new_tokens"))
        return seq

    def outputs(self, batch: list[Any], tokens: list[int]) -> Any:
        """What the worker answers with, in the order of its batch: the tokens, and who reached its length."""
        torch = self.lib.torch
        stopped = [seq.num_new_tokens + 1 >= seq.sampling_param.max_new_tokens for seq in batch]
        return self.lib.outputs(next_token_ids=torch.tensor(tokens), stopped=torch.tensor(stopped))

    def step(self) -> tuple[list[Any], Any, Any]:
        """One decision: the batch, and its inputs, of a prefill or of a decode; an empty batch has none."""
        raise NotImplementedError

    def end(self, seq: Any) -> None:
        """What the engine does at the end of a session, once its last response is sent."""
        self.scheduler.end_session(seq.session_id)

    def abort(self, seq: Any) -> None:
        """What the engine does for a request that its user cancels."""
        self.scheduler.stop_session(seq.session_id)
        self.scheduler.end_session(seq.session_id)

    def close(self) -> None:
        """No more steps."""
        self.calls.close()


def require_books(scheduler: Any) -> None:
    """What is read of either generation's books."""
    require(scheduler, ("seq_manager", "block_manager", "eviction_helper", "block_trie"))
    require(scheduler.seq_manager, ("get_sequences", "get_all_sequences"))
    require(scheduler.block_manager, ("allocate", "allocator", "get_num_free_gpu_blocks", "num_required_blocks"))
    allocator = scheduler.block_manager.allocator
    require(allocator, ("free", "get_ref_count", "get_physical_blocks", "get_phy_allocator", "_log_mem"))
    require(allocator.get_phy_allocator("gpu"), ("_free_blocks", "_free_count", "_num_blocks"))
    require(scheduler.block_trie, ("match", "allocate", "evict", "_roots"))


class Loop(Sessions):
    """One scheduler, its inputs maker, and the part of the engine's loop that is no input or output."""

    going = ("RUNNING", "READY")
    flying = "RUNNING"

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
        self.sequences = lib.sequences()
        self.scheduler = lib.scheduler(settings, cache, seq_meta=lib.meta(page, strategy=self.sequences))
        self.executor = Executor()
        self.maker = lib.maker(
            self.executor,
            self.scheduler,
            self.scheduler.state_checkpoints,
            Nothing(),
            lib.strategy(settings, cache),
            Nothing(),
            Nothing(),
            lib.maker_settings(
                max_batches=running,
                max_prefill_token_num=budget,
                role=lib.role,
                block_size=page,
                kernel_block_size=page,
                window_size=-1,
                enable_prefix_caching=caching,
                prefix_cache_decode_state_interval=0,
                prefill_interval=ahead,
            ),
        )
        require_books(self.scheduler)
        require(self.scheduler, ("sequence_lifecycle",))
        require(self.scheduler.eviction_helper, ("try_make_capacity_for",))
        require(self.scheduler.sequence_lifecycle, ("release_paging_resources",))
        require(self.maker, ("running_seqs", "to_evict_seqs"))
        self.calls = asyncio.new_event_loop()

    def step(self) -> tuple[list[Any], Any, Any]:
        """One decision: the batch, and its inputs, of a prefill or of a decode; an empty batch has none."""
        self.executor.sent = None
        # What `send_next_inputs` answers with, the loop keeps as `forward_inputs` and `next_running`.
        inputs, batch = self.calls.run_until_complete(self.maker.send_next_inputs())
        # The loop calls this behind the output of the frame before, which has come by now.
        self.maker.preempt_invalid_decode_seqs()
        if batch is None:
            return [], None, None
        self.scheduler.activate_seqs(batch)
        self.maker.update_running_seqs(batch, inputs["inputs"])
        return list(batch), inputs["inputs"], inputs["delta"]

    def deliver(self, batch: list[Any], prefill: Any, decode: Any, tokens: list[int]) -> None:
        """The frame's tokens, in the order of its batch."""
        outputs = self.outputs(batch, tokens)
        self.sequences.update_running(running=batch, batched_outputs=outputs, model_inputs=prefill, delta=decode)
