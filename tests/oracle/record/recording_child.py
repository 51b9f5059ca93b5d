"""The adapter of vLLM, with a scheduler that records as it would in production: run by path, in vLLM's Python.

Both look at one scheduler, the recorder from inside of its class, the adapter from outside.
"""

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

from preempt_oracle.record import vllm as recorded  # noqa: E402

vllm_child.build.Scheduler = recorded.RecordingScheduler
vllm_child.features.AsyncScheduler = recorded.RecordingAsyncScheduler

child.serve(vllm_child.Vllm(), "vllm")
