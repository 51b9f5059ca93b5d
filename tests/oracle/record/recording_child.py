"""The adapter of vLLM, with a scheduler that records as it would in production: run by path, in vLLM's Python.

Both look at one scheduler, the recorder from inside of its class, the adapter from outside. `RECORDING` in the
environment says how: `beside`, with the process that production has, or `inside`, without one; and every second pool is
looked at as a large one, whatever its size.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

spec = find_spec("preempt_oracle")
assert spec is not None
assert spec.submodule_search_locations is not None
sys.path.insert(0, str(Path(spec.submodule_search_locations[0]) / "engines"))

import child  # type: ignore[import-not-found]  # noqa: E402

child.claim()  # before the imports below: vLLM prints while it is imported

import vllm_child  # type: ignore[import-not-found]  # noqa: E402

from preempt_oracle.engines import vllm_books  # noqa: E402
from preempt_oracle.record import channel, keeper, records, shape  # noqa: E402
from preempt_oracle.record import vllm as recorded  # noqa: E402


class Direct:
    """A channel without a process behind it: what is sent is kept at once, by the keeper's own."""

    def __init__(self, begun, limit):  # type: ignore[no-untyped-def]
        self.keeper = keeper.Keeper(records.FIRST.decode(records.ENCODER.encode(begun)), log)

    @property
    def stopped(self):  # type: ignore[no-untyped-def]
        return self.keeper.idle

    def put(self, record):  # type: ignore[no-untyped-def]
        self.keeper.take(records.DECODER.decode(records.ENCODER.encode(record)))

    def flush(self):  # type: ignore[no-untyped-def]
        pass

    def close(self, last, lost):  # type: ignore[no-untyped-def]
        self.put(last)


def log(text):  # type: ignore[no-untyped-def]
    print(text, file=sys.stderr, flush=True)


class Both(vllm_child.Vllm):  # type: ignore[misc]
    """Two pairs of eyes on one scheduler; the recorder's modules are not the adapter's: their SMALL is their own."""

    starts = 0

    def start(self, config):  # type: ignore[no-untyped-def]
        self.starts += 1
        vllm_books.SMALL = shape.SMALL = 0 if self.starts % 2 else 64
        return super().start(config)


if os.environ.pop("RECORDING", "beside") == "inside":
    begin = recorded.begin
    recorded.begin = lambda *args: begin(*args, connect=Direct)
assert channel.Channel is not Direct
vllm_child.build.Scheduler = recorded.RecordingScheduler
vllm_child.features.AsyncScheduler = recorded.RecordingAsyncScheduler

child.serve(Both(), "vllm")
