"""A build hook of hatchling: compiles the monitor, and what it does most of the time, into the wheel, by mypyc.

Off unless it is asked for: `HATCH_BUILD_HOOKS_ENABLE=1 pip install .` or `make compiled`. It needs a C compiler, and
takes about a minute. The wheel holds the sources too: where no compiled module fits (another Python), those are run.

What is compiled is listed in pyproject.toml, under this hook. Left out: what defines structs of msgspec and classes of
attrs, which mypyc cannot compile; the clauses, since compiled functions have no docstrings, which are the rules' prose;
and the readers' generators, which are slower when they are compiled.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Run by itself: setuptools changes the directory, the arguments and the loggers of the process it is in.
_BUILD = """
import sys
from mypyc.build import mypycify
from setuptools import setup
into, config, *files = sys.argv[1:]
sys.argv[1:] = ["-q", "build_ext", "--build-lib", into + "/lib", "--build-temp", into + "/temp"]
options = ["--config-file", config, "--explicit-package-bases", "--namespace-packages", *files]
setup(name="preempt_oracle", packages=[], ext_modules=mypycify(
    options, opt_level="3", debug_level="0", target_dir=into + "/c", group_name="preempt_oracle"))
"""
_CONFIG = """
[mypy]
ignore_missing_imports = True
mypy_path = {roots}
cache_dir = {cache}
"""


class CustomBuildHook(BuildHookInterface[Any]):
    """See above. `modules`: patterns of what is compiled; `except`: names of files that are not."""

    _into: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add what came of it to the wheel, which then is one of this platform and this Python."""
        if version == "editable":
            return  # a development environment runs what is written
        root = Path(self.root)
        into = self._into = Path(tempfile.mkdtemp(prefix="preempt-oracle-compiled-"))
        left_out = set(self.config["except"])
        files = sorted(f for pattern in self.config["modules"] for f in root.glob(pattern) if f.name not in left_out)
        roots = ":".join(str(root / r) for r in ("spec", "properties", "oracle"))
        config = into / "mypy.ini"
        config.write_text(_CONFIG.format(roots=roots, cache=into / "mypy_cache"), encoding="utf-8")
        names = [str(f.relative_to(root)) for f in files]
        self.app.display_info(f"compiling {len(names)} modules")
        command, env = [sys.executable, "-c", _BUILD, str(into), str(config), *names], {**os.environ, "MYPYPATH": roots}
        try:
            subprocess.run(command, check=True, cwd=root, env=env)
        except BaseException:
            shutil.rmtree(into)
            raise
        for built in (into / "lib").rglob("*.so"):
            build_data["force_include"][str(built)] = str(built.relative_to(into / "lib"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Nothing is left behind."""
        if self._into is not None:
            shutil.rmtree(self._into)
