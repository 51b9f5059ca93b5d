"""A package as it is imported: its functions and methods, who calls them, and a change put in place."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import attrs

from preempt_properties.mutants.operators import Mutant, functions

#: Module and function of the package (`Class.method` of a method).
Function = tuple[str, str]


@attrs.frozen
class Package:
    """A package whose functions are to be changed, or some modules of it."""

    name: str
    modules: tuple[str, ...] = ()  # none: all
    methods: bool = True  # as well as functions at the top level

    def shipped(self) -> dict[Function, ast.FunctionDef]:
        """Every function of it, from its source."""
        folder = Path(next(iter(importlib.import_module(self.name).__path__)))
        names = self.modules or sorted(m.name for m in pkgutil.iter_modules([str(folder)]))
        texts = {name: (folder / f"{name}.py").read_text(encoding="utf-8") for name in names}
        found = {(module, name): f for module, text in texts.items() for name, f in functions(module, text).items()}
        return {at: f for at, f in found.items() if self.methods or "." not in at[1]}

    def put(self, mutant: Mutant) -> None:
        """Change a function in this process, for all that imported it. Nothing undoes it: the process ends soon."""
        self._replace((mutant.module, mutant.function), mutant.source)

    def live(self, function: Function) -> FunctionType:
        """The function that runs, under its decorators."""
        found: Any = importlib.import_module(f"{self.name}.{function[0]}")
        for part in function[1].split("."):
            found = inspect.getattr_static(found, part)
        if isinstance(found, property):
            found = found.fget
        found = inspect.unwrap(getattr(found, "__func__", found))
        assert isinstance(found, FunctionType), function
        return found

    def _replace(self, function: Function, source: str) -> None:
        live, name = self.live(function), function[1].split(".")[-1]
        # In a class of its own: only there is `super` known.
        inside = "class _Made:\n" + "".join(f"    {line}\n" for line in source.splitlines())
        made: dict[str, Any] = {}
        exec(compile(inside, f"<{'.'.join(function)}>", "exec"), live.__globals__, made)
        new: FunctionType = vars(made["_Made"])[name]
        live.__code__ = _closed(new.__code__, live.__code__)
        live.__defaults__, live.__kwdefaults__ = new.__defaults__, new.__kwdefaults__

    @contextmanager
    def recorded(self) -> Iterator[set[Function]]:
        """A set that every function puts itself into when it is called, meanwhile."""
        called: set[Function] = set()
        before: list[tuple[FunctionType, Any, Any, Any]] = []
        for at, function in self.shipped().items():
            live = self.live(at)
            live.__globals__["_called"] = called
            before.append((live, live.__code__, live.__defaults__, live.__kwdefaults__))
            note = ast.parse(f"_called.add({at!r})").body
            function.body = [*note, *function.body]
            self._replace(at, ast.unparse(function))
        try:
            yield called
        finally:
            for live, code, defaults, keywords in before:
                live.__code__, live.__defaults__, live.__kwdefaults__ = code, defaults, keywords


def _closed(new: CodeType, old: CodeType) -> CodeType:
    """Code may only take the place of code with the same free variables: what no longer needs one keeps it."""
    if set(new.co_freevars) == set(old.co_freevars):
        return new
    return new.replace(co_freevars=old.co_freevars)


def near(calls: Iterable[tuple[Any, set[Function]]], function: Function) -> list[Any]:
    """Who calls a function, those first that call little else."""
    return [who for who, called in sorted(calls, key=lambda x: len(x[1])) if function in called]
