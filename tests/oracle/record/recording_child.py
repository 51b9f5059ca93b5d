"""The adapter of vLLM, with a scheduler that records as it would in production: run by path, in vLLM's Python.

Both look at one scheduler, the recorder from inside of its class, the adapter from outside. `RECORDING` in the
environment says how: `beside`, with the process that production has, or `inside`, without one; and every second pool is
looked at as a large one, whatever its size.
"""

import os
import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

spec = find_spec("preempt_oracle")
assert spec is not None
assert spec.submodule_search_locations is not None
sys.path.insert(0, str(Path(spec.submodule_search_locations[0]) / "engines"))

import child  # type: ignore[import-not-found]  # noqa: E402

child.claim()  # before the imports below: vLLM prints while it is imported

import vllm_child  # type: ignore[import-not-found]  # noqa: E402

from preempt_oracle.engines import vllm_books  # noqa: E402
from preempt_oracle.record import keeper, records  # noqa: E402

recorded: Any = import_module("preempt_oracle.record.vllm")
shape: Any = import_module("preempt_oracle.record.shape")


class Direct:
    """A channel without a process behind it: what is sent is kept at once, by the keeper's own."""

    def __init__(self, begun: records.Begun, limit: int) -> None:
        self.keeper = keeper.Keeper(records.FIRST.decode(records.ENCODER.encode(begun)), log)

    @property
    def stopped(self) -> bool:
        return self.keeper.idle

    def put(self, record: records.Record) -> None:
        self.keeper.take(records.DECODER.decode(records.ENCODER.encode(record)))

    def flush(self) -> None: ...

    def close(self, last: records.Record, lost: Any) -> None:
        self.put(last)


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Both(vllm_child.Vllm):  # type: ignore[misc]
    """Two pairs of eyes on one scheduler; the recorder's modules are not the adapter's: their SMALL is their own."""

    starts = 0

    def start(self, config: dict[str, Any]) -> Any:
        self.starts += 1
        vllm_books.SMALL = shape.SMALL = 0 if self.starts % 2 else 64
        return super().start(config)


if os.environ.pop("RECORDING", "beside") == "inside":
    recorded.begin = partial(recorded.begin, connect=Direct)
vllm_child.build.Scheduler = recorded.RecordingScheduler
vllm_child.features.AsyncScheduler = recorded.RecordingAsyncScheduler

child.serve(Both(), "vllm")
