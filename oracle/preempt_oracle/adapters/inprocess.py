"""A scheduler in this process: any object with the methods of `preempt_oracle.engines.child.Engine`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from preempt_oracle.adapters.processes import Late, children, kill, within
from preempt_oracle.adapters.protocol import HarnessError
from preempt_oracle.engines.child import Engine, Refused, describe, marked


class InProcess:
    """A transport that calls an adapter's methods. `package`: the engine's import name; its exceptions are findings.

    `patience`: seconds a call may take; None: any time. Only the main thread can be told that it took too long.
    """

    def __init__(self, engine: Engine, name: str, package: str, patience: float | None = None) -> None:
        self.engine, self.name, self._package, self._patience = engine, name, package, patience
        self._live = False
        file = getattr(sys.modules.get(type(engine).__module__), "__file__", None)
        self._file = str(Path(file).absolute()) if file else ""
        self._before = children()
        self.outlived = ""  # what it leaves behind, known once it is closed

    def exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        """Call the method the command names. An exception is answered as an engine_error, as a child would."""
        do = command["do"]
        try:
            if do != "start" and not self._live:
                raise HarnessError(f"{self.name}: {do!r} before a successful start")
            with within(self._patience):
                reply = self._call(do, command)
        except Refused as refusal:
            reply = {"event": "refused", "reason": str(refusal)}
        except Late:
            self._live = False  # nobody knows what it was about: not even its stop() is called
            raise HarnessError(f"{self.name} did not answer {do} within {self._patience:g} s") from None
        except (HarnessError, KeyboardInterrupt):
            raise
        except Exception as error:
            self._live = False
            reply = describe(error, self._package, self._file)
        if not isinstance(reply, dict):
            raise HarnessError(f"{self.name}: {do} returned {type(reply).__name__}, not an object with an event")
        return {"id": command["id"], **marked(self.engine, do, reply)}

    def _call(self, do: str, command: dict[str, Any]) -> dict[str, Any]:
        engine = self.engine
        match do:
            case "start":
                reply = engine.start(command["config"])
                self._live = reply.get("event") == "header"
                return reply
            case "add":
                return engine.add(command)
            case "abort":
                return engine.abort(command["request"])
            case "control":
                if not callable(getattr(engine, "control", None)):  # older adapters need not have it
                    raise Refused(f"this engine has no control {command['kind']!r}")
                return engine.control(command)
            case "step":
                return engine.step()
            case "deliver":
                return engine.deliver(command)
        self._live = False
        engine.stop()
        return {"event": "stopped"}

    def close(self) -> None:
        """Nothing outlives the call: processes that the adapter started and forgot are killed, and told of."""
        if self._live:
            self._live = False
            self.engine.stop()
        if forgotten := children() - self._before:
            self.outlived = f"leaves processes behind: {', '.join(map(str, sorted(forgotten)))}"
            kill(forgotten)


def load(target: str, patience: float | None = None) -> InProcess:
    """`module:Class`, importable from here or the current folder. Raises HarnessError if there is no such class.

    `patience`: as for `InProcess`. The class may name its engine's package in `package`; else its own top package is
    the engine.
    """
    module, _, cls = target.partition(":")
    if not module or not cls.isidentifier():
        raise HarnessError(f"{target!r}: expected module:Class")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        imported = importlib.import_module(module)
    except ImportError as e:
        raise HarnessError(f"{module}: {e}") from None
    except Exception as e:  # a syntax error, or whatever its own code raises while it is imported
        raise HarnessError(f"{module}: {type(e).__name__}: {e}") from None
    found = getattr(imported, cls, None)
    if found is None:
        raise HarnessError(f"{module} has no {cls}")
    try:
        engine = found()
    except Exception as e:
        raise HarnessError(f"{target}: {type(e).__name__}: {e}") from None
    missing = [m for m in ("start", "add", "step", "deliver", "stop") if not callable(getattr(engine, m, None))]
    if missing:
        raise HarnessError(f"{target} has no {missing[0]}(): see preempt_oracle.engines.child.Engine")
    return InProcess(engine, target, getattr(found, "package", module.split(".")[0]), patience)
