"""The engines that are driven: versions, what an environment of one takes, how its adapter is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from preempt_oracle.engines import vllm_versions

UNVERIFIED = "unverified"


@frozen
class EngineSpec:
    """One row of `ENGINES`."""

    name: str
    distribution: str
    kind: str  # target, torch
    versions: tuple[str, ...]  # run with the adapter; the last is the default. Others run as unverified
    child: str  # the adapter's script
    policies: tuple[str, ...]
    probe: Mapping[str, Any]  # a smallest configuration: an environment is whole if the adapter can start with it
    size: str
    files: tuple[str, ...]  # what the folder must hold, looked at each time it is used
    extra: tuple[str, ...] = ()  # exact pins of what goes into the folder with the engine
    more: Callable[[str], tuple[str, ...]] = lambda _: ()  # further ones of a version
    full: tuple[str, ...] = ()  # those of `versions` of which all is checked, injected faults included; () = each
    recorded: tuple[str, ...] = ()  # those of `versions` that every run of the tests drives; () = each
    pip_flags: tuple[str, ...] = ()
    variants: tuple[Mapping[str, bool], ...] = ({},)  # options of the adapter that make an engine of its own of it
    probe_seconds: int = 60
    quick: bool = True  # the probe is cheap enough to run before each use, not only after an install

    def pins(self, version: str) -> tuple[str, ...]:
        """The requirements that go into the folder, the engine first."""
        return (f"{self.distribution}=={version}", *self.extra, *self.more(version))

    @property
    def told_apart_by(self) -> frozenset[str]:
        """Names of the options of `variants`."""
        return frozenset(name for variant in self.variants for name in variant)

    @property
    def checked(self) -> tuple[str, ...]:
        """The versions of which all is checked: expected verdicts, and that every injected fault is caught."""
        return self.full or self.versions

    @property
    def driven(self) -> tuple[str, ...]:
        """The versions that every run of the tests drives, and of which traces are shipped, if any are."""
        return self.recorded or self.versions

    def standing(self, version: str) -> str:
        """What the adapter is worth with this version: verified, runs (nothing was injected), unverified."""
        return "verified" if version in self.checked else "runs" if version in self.versions else UNVERIFIED


_SMALL = {"blocks": 8, "page_size": 4, "max_running": 8, "budget": 64, "max_length": 32, "watermark": 0}

ENGINES: Mapping[str, EngineSpec] = {
    spec.name: spec
    for spec in (
        EngineSpec(
            name="vllm",
            distribution="vllm",
            kind="torch",
            versions=vllm_versions.VERSIONS,
            child="vllm_child.py",
            policies=("vllm-fcfs", "vllm-priority"),
            probe={**_SMALL, "policy": "vllm-fcfs", "chunked": True, "caching": False, "whole_fit": False},
            size="0.8 GB, on a base of 1 GB",
            files=("vllm/v1/core/sched/scheduler.py",),
            more=vllm_versions.more,
            full=vllm_versions.FULL,
            recorded=vllm_versions.EVERY_RUN,
            probe_seconds=300,
            quick=False,  # importing vLLM takes half a minute
        ),
        EngineSpec(
            name="lmdeploy",
            distribution="lmdeploy",
            kind="torch",
            versions=("0.10.2", "0.18.0"),  # 0.10.2: of before November 2025, and of another generation
            child="lmdeploy_child.py",
            policies=("lmdeploy",),
            probe={**_SMALL, "policy": "lmdeploy", "lookahead": 1},
            size="0.4 GB, on a base of 1 GB",
            files=("lmdeploy/pytorch/paging/scheduler.py", "lmdeploy/pytorch/engine/engine.py"),
            # Imported by the package itself; xgrammar, which it imports too, is in the base.
            extra=(
                *("mmengine-lite==0.10.7", "addict==2.4.0", "termcolor==3.3.0", "yapf==0.43.0"),
                *("platformdirs==4.14.8", "shortuuid==1.0.13"),
            ),
            probe_seconds=120,
            quick=False,  # importing it takes some seconds
        ),
        EngineSpec(
            name="vidur",
            distribution="vidur",
            kind="target",
            versions=("0.0.26",),
            child="vidur_child.py",
            policies=("vidur-vllm",),
            probe={**_SMALL, "policy": "vidur-vllm"},
            size="20 MB",
            files=("vidur/scheduler/replica_scheduler/vllm_replica_scheduler.py",),
            # Version 0.0.26 fails an assertion at every resume; repaired, the rest of its scheduler can be seen.
            variants=({}, {"repair": True}),
        ),
        EngineSpec(
            name="nano-vllm-fork",
            distribution="nano-vllm-fork",
            kind="target",
            versions=("20260210",),
            child="nano_vllm_fork_child.py",
            policies=("nano-vllm",),
            probe={**_SMALL, "policy": "nano-vllm"},
            size="60 MB",
            files=("nanovllm/engine/scheduler.py", "nanovllm/engine/block_manager.py"),
            extra=("numpy==2.4.6", "xxhash==4.1.0"),
            # It declares Python < 3.13 for torch's sake; the scheduler, all that runs here, needs neither.
            pip_flags=("--ignore-requires-python",),
            # A victim sits in both queues; repaired, the rest of its scheduler can be seen.
            variants=({}, {"repair": True}),
        ),
        EngineSpec(
            name="sglang",
            distribution="sglang",
            kind="torch",
            versions=("0.5.23",),
            child="sglang_child.py",
            policies=("sglang-retract", "sglang-priority"),
            probe={**_SMALL, "max_length": 24, "policy": "sglang-retract", "chunked": False},
            size="1.4 GB, on a base of 1 GB",
            files=("sglang/srt/managers/scheduler.py", "sglang/srt/mem_cache/unified_radix_cache.py"),
            extra=(
                *("transformers==5.19.0", "triton==3.9.0", "compressed-tensors==0.18.0", "dill==0.4.1"),
                *("einops==0.8.2", "gguf==0.19.0", "ipython==9.18.1", "loguru==0.7.3", "orjson==3.13.0"),
                *("sentencepiece==0.2.3", "setproctitle==1.3.8", "traitlets==5.16.1", "uvicorn==0.54.0"),
            ),
            probe_seconds=300,
            quick=False,  # importing SGLang takes up to half a minute
        ),
        EngineSpec(
            name="transformers",
            distribution="transformers",
            kind="torch",
            versions=("5.18.0", "5.23.0"),  # 5.18.0: the oldest whose pool is cut into sectors
            child="transformers_child.py",
            policies=("hf-cb", "hf-cb-prefill-first", "hf-cb-offload"),
            probe={**_SMALL, "policy": "hf-cb"},
            size="130 MB, on a base of 1 GB",
            files=(
                "transformers/generation/continuous_batching/scheduler.py",
                "transformers/generation/continuous_batching/offloading_manager.py",
            ),
            full=("5.23.0",),
            recorded=("5.23.0",),
            quick=False,  # importing torch and transformers takes seconds
        ),
    )
}
