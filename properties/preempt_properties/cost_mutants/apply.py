"""The cost package as it is imported: its functions, what others call of them, and a change put in place."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import preempt_spec.cost
from preempt_properties.cost_mutants.operators import Mutant, functions

#: Module and name of a function of the cost package.
Function = tuple[str, str]
_FOLDER = Path(next(iter(preempt_spec.cost.__path__)))


def shipped() -> dict[Function, ast.FunctionDef]:
    """Every function of the cost package, from its source."""
    names = sorted(m.name for m in pkgutil.iter_modules([str(_FOLDER)]))
    texts = {name: (_FOLDER / f"{name}.py").read_text(encoding="utf-8") for name in names}
    return {(module, name): f for module, text in texts.items() for name, f in functions(module, text).items()}


def put(mutant: Mutant) -> None:
    """Change a function in this process, for all that have imported it. Nothing undoes it: the process ends soon."""
    _replace((mutant.module, mutant.function), mutant.source)


def _replace(function: Function, source: str) -> None:
    module = importlib.import_module(f"preempt_spec.cost.{function[0]}")
    made: dict[str, Any] = {}
    exec(compile(source, f"<{function[0]}.{function[1]}>", "exec"), vars(module), made)
    live: FunctionType = getattr(module, function[1])
    new: FunctionType = made[function[1]]
    live.__code__, live.__defaults__, live.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


@contextmanager
def recorded() -> Iterator[set[Function]]:
    """A set that every function of the cost package puts itself into when it is called, meanwhile."""
    called: set[Function] = set()
    before: list[tuple[FunctionType, Any, Any, Any]] = []
    for (module, name), function in shipped().items():
        space = importlib.import_module(f"preempt_spec.cost.{module}")
        vars(space)["_called"] = called
        live: FunctionType = getattr(space, name)
        before.append((live, live.__code__, live.__defaults__, live.__kwdefaults__))
        note = ast.parse(f"_called.add(({module!r}, {name!r}))").body
        function.body = [*note, *function.body]
        _replace((module, name), ast.unparse(function))
    try:
        yield called
    finally:
        for live, code, defaults, keywords in before:
            live.__code__, live.__defaults__, live.__kwdefaults__ = code, defaults, keywords
