"""An engine's process with a scheduler of vLLM's shape that records, as the environment says: `serving_child.py HOW`.

It serves a workload, and then ends: `shutdown`, `exit` without one, `kill` by a signal that nobody can handle, or
`limit`: shut down, with files that cannot become large. Prints what its callers saw.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import signal
import sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("pieces", Path(__file__).with_name("conftest.py"))
assert spec is not None
assert spec.loader is not None
pieces = importlib.util.module_from_spec(spec)
sys.modules["pieces"] = pieces
spec.loader.exec_module(pieces)

how = sys.argv[1]
if how == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))
scheduler = pieces.Beside()
seen = pieces.serve(scheduler, pieces.workload(120))
print(len(seen), seen[-1], flush=True)
if how == "kill":
    scheduler.capture.channel.flush()
    os.kill(os.getpid(), signal.SIGKILL)
if how in ("shutdown", "limit"):
    scheduler.shutdown()
