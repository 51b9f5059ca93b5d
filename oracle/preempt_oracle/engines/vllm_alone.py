"""vLLM's environment where it is driven alone: no GPU, no network. Import it before anything of vLLM.

Only the adapter does: where vLLM serves, what is shared with the adapter must leave its environment as it is.
"""

from __future__ import annotations

import os

os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
