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
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from attrs import field, frozen

from preempt_oracle.engines.building import EnvironmentFailure, Log, build, locked, pip, root, run, stamp, stamped
from preempt_oracle.engines.table import ENGINES, UNVERIFIED, EngineSpec

__all__ = ["ENGINES", "EngineSpec", "Environment", "EnvironmentFailure", "checkout", "install", "listing", "ready"]

HERE = Path(__file__).parent


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
