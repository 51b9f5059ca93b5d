"""Where the engines under test live, how they get there, and how a child process of one is started.

`install` makes an environment, `ready` finds one that is whole, `checkout` takes the user's own Python, `listing`
shows what there is. Two kinds:

* target: a light engine in a folder of its own (`pip install --no-deps --target`), put on the path of the Python that
  runs preempt-oracle;
* torch: one base venv with torch and what such schedulers import besides, and a folder per engine and version on top
  of it, which is looked at first.

No registry is named here: pip uses its own configuration, and `pip_args` reach it unchanged.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from attrs import field, frozen

from preempt_oracle.engines import vllm_versions
from preempt_oracle.engines.building import EnvironmentFailure, Log, build, locked, pip, root, run, stamp, stamped

__all__ = ["ENGINES", "EngineSpec", "Environment", "EnvironmentFailure", "checkout", "install", "listing", "ready"]

HERE = Path(__file__).parent
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
            versions=("0.18.0",),
            child="lmdeploy_child.py",
            policies=("lmdeploy",),
            probe={**_SMALL, "policy": "lmdeploy", "lookahead": 1},
            size="0.4 GB, on a base of 1 GB",
            files=("lmdeploy/pytorch/paging/scheduler.py", "lmdeploy/pytorch/engine/inputs_maker.py"),
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


@frozen
class Environment:
    """An engine that can be started: run `[python, child]` with the environment variables `env`."""

    name: str
    version: str
    python: str
    env: Mapping[str, str] = field(repr=False)
    child: Path
    verified: bool

    @property
    def command(self) -> list[str]:
        """The child process's command line."""
        return [self.python, str(self.child)]


@frozen
class Listed:
    """One row of `listing`. `standing`: as `EngineSpec.standing` has it.

    `state`: ready, absent, or damaged (half-made, or made from other pins: install again).
    """

    name: str
    version: str
    state: str
    standing: str
    size: str
    path: Path


def spec_of(name: str) -> EngineSpec:
    """The row of `ENGINES`. Raises `EnvironmentFailure` naming the known ones."""
    if name not in ENGINES:
        raise EnvironmentFailure(f"unknown engine {name!r}; known: {', '.join(ENGINES)}")
    return ENGINES[name]


def requirement(text: str) -> tuple[str, str]:
    """`NAME` or `NAME==VERSION` as (name, version); without a version, the newest verified one.

    Raises `EnvironmentFailure` for an unknown engine or what cannot be a version.
    """
    name, equals, version = (part.strip() for part in text.partition("=="))
    spec = spec_of(name)
    return name, _checked(version) if equals else spec.versions[-1]


def ready(name: str, version: str) -> Environment | None:
    """The environment of this engine and version for the running Python, or None if it is absent or not whole."""
    spec = spec_of(name)
    found = _found(spec, _checked(version))
    if found is None or not spec.quick:
        return found
    return None if probe(found) else found


def install(name: str, version: str, pip_args: Sequence[str] = (), log: Log = lambda _: None) -> Environment:
    """Make the environment, unless a whole one is there; `log` gets a line now and then, pip's output goes to a file.

    Raises `EnvironmentFailure`: no pip, no network, no such version, or an engine the adapter cannot drive.
    """
    spec = spec_of(name)
    version = _checked(version)
    folder = _folder(spec.name, version)
    log_file = folder.with_name(folder.name + ".log")
    if spec.kind == "torch":
        _install_base(pip_args, log)
    with locked(folder, log):
        found = _found(spec, version)
        if found is not None and not probe(found):
            log(f"{name} {version} is ready")
            return found
        python = _python(spec)

        def fill(made: Path) -> None:
            flags = ["--no-deps", *spec.pip_flags, *pip_args, "--target", str(made)]
            pip(python, [*flags, *spec.pins(version)], log_file)

        def check(made: Path) -> None:
            environment = _environment(spec, version)
            missing = [file for file in spec.files if not (made / file).is_file()]
            wrong = f"it has no {missing[0]}" if missing else probe(environment)
            if wrong:
                raise EnvironmentFailure(f"{name} {version} was installed, but its adapter cannot drive it: {wrong}")

        log(f"installing {name} {version} ({spec.size})")
        build(folder, stamp(spec.name, version, spec.pins(version)), fill, check)
        log(f"{name} {version} is ready")
    return _environment(spec, version)


def checkout(name: str, python_path: str | Path) -> Environment:
    """The user's own Python with the engine in it, whatever version that is; PYTHONPATH stays as it is.

    Raises `EnvironmentFailure` if that Python cannot be run or is older than 3.10.
    """
    spec = spec_of(name)
    # Not resolved: the name under which a Python is called decides which venv it is.
    python = str(Path(python_path).expanduser().absolute())
    try:
        done = subprocess.run(
            [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise EnvironmentFailure(f"{python} cannot be run: {error}") from None
    match = re.fullmatch(r"(\d+)\.(\d+)\s*", done.stdout)
    if done.returncode or match is None:
        raise EnvironmentFailure(f"{python} is not a Python interpreter")
    if (int(match[1]), int(match[2])) < (3, 10):
        raise EnvironmentFailure(f"{python} is Python {done.stdout.strip()}; adapters need 3.10 or newer")
    return Environment(name, UNVERIFIED, python, _variables(os.environ.get("PYTHONPATH")), HERE / spec.child, False)


def listing() -> tuple[Listed, ...]:
    """Every verified version, and whatever else is in the cache; nothing is run for it."""
    rows = []
    for spec in ENGINES.values():
        start, end = _folder(spec.name, "\0").name.split("\0")
        there = sorted(root().glob(f"{start}[0-9]*{end}"))
        others = [path.name.removeprefix(start).removesuffix(end) for path in there if path.is_dir()]
        for version in dict.fromkeys([*spec.versions, *others]):
            folder = _folder(spec.name, version)
            state = "ready" if _found(spec, version) else "damaged" if folder.exists() else "absent"
            rows.append(Listed(spec.name, version, state, spec.standing(version), spec.size, folder))
    return tuple(rows)


def probe(environment: Environment) -> str:
    """Start the adapter once with a smallest configuration: "" if it answers with a header, else what went wrong."""
    spec = ENGINES[environment.name]
    commands = [{"id": 1, "do": "start", "config": dict(spec.probe)}, {"id": 2, "do": "stop"}]
    try:
        done = subprocess.run(
            environment.command,
            input="".join(json.dumps(command) + "\n" for command in commands),
            capture_output=True,
            text=True,
            env=dict(environment.env),
            timeout=spec.probe_seconds,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {spec.probe_seconds} seconds"
    except OSError as error:
        return str(error)
    try:
        answer = json.loads(done.stdout.splitlines()[0])
        if answer["event"] == "header":
            if environment.version not in (UNVERIFIED, answer["version"]):
                return f"it is version {answer['version']}"
            return ""
        return str(answer.get("reason") or f"{answer['kind']}: {answer['message']} ({answer['where']})")
    except (LookupError, ValueError, TypeError):
        complaint = [line for line in done.stderr.splitlines() if line.strip()]
        return complaint[-1].strip() if complaint else f"no answer, exit code {done.returncode}"


# -- folders ----------------------------------------------------------------------------------------------------------


def _checked(version: str) -> str:
    """A version, and nothing that means something else in a path or to pip."""
    if not re.fullmatch(r"[0-9][0-9A-Za-z.+!_-]{0,60}", version):
        raise EnvironmentFailure(f"{version!r} is not a version")
    return version


def _folder(name: str, version: str) -> Path:
    return root() / f"{name}-{version}-py{sys.version_info[0]}.{sys.version_info[1]}"


def _python(spec: EngineSpec) -> str:
    return str(_folder("torch", "base") / "bin" / "python") if spec.kind == "torch" else sys.executable


def _found(spec: EngineSpec, version: str) -> Environment | None:
    folder = _folder(spec.name, version)
    if not stamped(folder, stamp(spec.name, version, spec.pins(version))):
        return None
    if spec.kind == "torch" and not _base_found():
        return None
    if not all((folder / file).is_file() for file in spec.files):
        return None
    versions = [found.version for found in metadata.distributions(name=spec.distribution, path=[str(folder)])]
    return _environment(spec, version) if versions == [version] else None


def _environment(spec: EngineSpec, version: str) -> Environment:
    folder = _folder(spec.name, version)
    variables = _variables(str(folder))
    return Environment(spec.name, version, _python(spec), variables, HERE / spec.child, version in spec.versions)


def _variables(python_path: str | None) -> dict[str, str]:
    """The child's environment: ours, less what would bend its imports, and with one hash seed for every run."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "PYTHONSTARTUP", "PYTHONOPTIMIZE")  # -O drops asserts
    variables = {key: value for key, value in os.environ.items() if key not in dropped}
    variables |= {"PYTHONHASHSEED": "0", "PYTHONNOUSERSITE": "1"}
    if python_path:
        variables["PYTHONPATH"] = python_path
    return variables


# -- the base venv of those that import torch -------------------------------------------------------------------------


def _base_pins() -> tuple[list[str], list[str]]:
    """The requirements of `requirements-torch.txt`: those installed with their dependencies, and those without."""
    text = (HERE / "requirements-torch.txt").read_text(encoding="utf-8")
    whole, _, alone = text.partition("# --no-deps")

    def names(part: str) -> list[str]:
        return [line for line in part.splitlines()[1:] if line and not line.startswith("#")]

    return names(whole), names(alone)  # the first line of either part is the rest of a comment


def _base_seal() -> dict[str, str]:
    whole, alone = _base_pins()
    return stamp("torch", "base", [*whole, "--no-deps", *alone])


def _base_found() -> bool:
    folder = _folder("torch", "base")
    return stamped(folder, _base_seal()) and (folder / "bin" / "python").exists()


def _install_base(pip_args: Sequence[str], log: Log) -> None:
    folder = _folder("torch", "base")
    log_file = folder.with_name(folder.name + ".log")
    with locked(folder, log):
        if _base_found():
            return
        log("installing torch and what else these schedulers import (1 GB)")
        whole, alone = _base_pins()

        def fill(made: Path) -> None:
            run([sys.executable, "-m", "venv", str(made)], log_file, "cannot make a venv")
            python = str(made / "bin" / "python")
            pip(python, [*pip_args, *whole], log_file)
            pip(python, ["--no-deps", *pip_args, *alone], log_file)

        def check(made: Path) -> None:
            # Renamed, a venv's scripts point nowhere; its Python finds itself again, and nothing else is used.
            run([str(made / "bin" / "python"), "-c", "import torch, pydantic"], log_file, "the base venv is unusable")

        build(folder, _base_seal(), fill, check)
