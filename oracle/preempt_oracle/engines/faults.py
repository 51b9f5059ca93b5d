"""Faults put into a real engine on purpose, to see whether the adapter's observations notice them.

Runs in the engine's Python (standard library only). A `Fault` wraps methods of the engine's OWN objects, underneath
whatever the adapter wraps to look at them: the observing code knows nothing of it. An adapter takes part with three
lines: `self.injection = inject(config, FAULTS)` at the beginning of `start`, `self.injection.put(engine)` between
building the engine and looking at it, `self.injection.remove()` in `stop`. Without the option `fault` nothing happens.

On the wire: `options.fault` of a start names the fault, "" none (the control run). The header reply then lists
`faults`, and every reply has `fired`: how often the fault has acted since the start. One that never acted proves
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:  # else run by path, in the engine's Python, where this package is not installed
    from preempt_oracle.engines.child import Refused, Unsupported
else:
    from child import Refused, Unsupported

#: The option of a start that names a fault.
OPTION = "fault"


@dataclass(frozen=True)
class Fault:
    """One thing an engine may get wrong, and the rule that has to name it."""

    name: str
    does: str  # one sentence, the engine as its subject
    rules: tuple[str, ...]  # intended: one, or several of which any is right (`why` says so)
    put: Callable[[Injection, Any], None]  # wraps methods of the engine it is given
    also: tuple[str, ...] = ()  # rules that rightly speak at the same event
    why: str = ""  # the argument for a second rule
    policies: tuple[str, ...] = ()  # the profiles under which it makes sense; () = all of the adapter's
    #: Settings without which it cannot act: a truth value asks for any value that is as true, else for equality.
    config: Mapping[str, Any] = field(default_factory=dict)
    script: tuple[str, ...] = ()  # what the workload must have: "abort", "salt", "priority"
    lacks: tuple[str, ...] = ()  # observations without which it cannot be seen, and which this adapter does not have

    def told(self) -> dict[str, Any]:
        """Everything but the code, for the wire."""
        return {
            "name": self.name,
            "does": self.does,
            "rules": list(self.rules),
            "also": list(self.also),
            "why": self.why,
            "policies": list(self.policies),
            "config": dict(self.config),
            "script": list(self.script),
            "lacks": list(self.lacks),
        }


class Injection:
    """One fault, or none, in one engine: which methods it replaced, and how often it acted."""

    def __init__(self, catalogue: Iterable[Fault], fault: Fault | None) -> None:
        self.catalogue = tuple(catalogue)
        self.fault = fault
        self.fired = 0
        self._wrapped: list[tuple[Any, str, Any]] = []

    def acted(self) -> None:
        """The fault has just done its wrong thing: call this when it really differs from what the engine would do."""
        self.fired += 1

    def put(self, engine: Any) -> None:
        """Put the fault into an engine that was just built and that nobody observes yet."""
        if self.fault is not None:
            self.fault.put(self, engine)

    def wrap(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        """Call `wrapper(original, ...)` instead of `owner.name(...)`; `owner` is an object, or a class.

        Of an object the original is bound. Of a class it is the plain function, whose first argument is the instance;
        static and class methods are not supported there. Raises `Unsupported` if the engine has no such method.
        """
        original = getattr(owner, name, None)
        if not callable(original):
            label = getattr(owner, "__qualname__", type(owner).__qualname__)
            raise Unsupported(f"{label} has no method {name}: fault {self.fault and self.fault.name!r} cannot be put")

        def faulty(*args: Any, **kwargs: Any) -> Any:
            return wrapper(original, *args, **kwargs)

        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, faulty)
        self._wrapped.append((owner, name, (faulty, before)))

    def remove(self) -> None:
        """Take the wrappers off again, last one first. May be called twice."""
        while self._wrapped:
            owner, name, (faulty, before) = self._wrapped.pop()
            if vars(owner).get(name) is not faulty:
                continue  # an observer that was put on top has taken both off
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    def told(self, do: str) -> dict[str, Any]:
        """What the reply to a command `do` has beyond its usual fields."""
        extra: dict[str, Any] = {"fired": self.fired}
        if do == "start":
            extra["faults"] = [fault.told() for fault in self.catalogue]
        return extra


_ABSENT = object()


def inject(config: dict[str, Any], catalogue: Iterable[Fault]) -> Injection | None:
    """What `config` asks for, its option `fault` taken out in place; None without that option.

    Raises `Refused` for a fault that is not in the catalogue.
    """
    options = config.get("options") or {}
    if OPTION not in options:
        return None
    faults = tuple(catalogue)
    config["options"] = {key: value for key, value in options.items() if key != OPTION}
    wanted = options[OPTION]
    if wanted == "":
        return Injection(faults, None)
    for fault in faults:
        if fault.name == wanted:
            return Injection(faults, fault)
    raise Refused(f"config.options.{OPTION}: {wanted!r} is none of {', '.join(f.name for f in faults)}")
