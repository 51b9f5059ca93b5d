"""The engine's side of the adapter protocol: commands on stdin, one JSON line each, one reply line per command.

Standard library only: this file runs inside the engine's own Python (3.10 or newer), next to the adapter that is
started by path. An adapter subclasses `Engine` and ends with `serve(MyEngine(), "package_of_the_engine")`.

An adapter translates and never judges. Whatever the engine raises becomes an `engine_error` whose `origin` says whose
code raised it: a crash of the engine is a finding, a crash of the adapter is a broken harness.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from importlib import metadata
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Injection

Reply = dict[str, Any]
Command = Mapping[str, Any]

#: What each command must carry besides "id" and "do": field -> type.
COMMANDS: Mapping[str, Mapping[str, type]] = {
    "start": {"config": dict},
    "add": {"request": str, "prompt": list, "max_tokens": int},
    "abort": {"request": str},
    "control": {"kind": str},
    "step": {},
    "deliver": {"frame": int, "requests": list, "tokens": list},
    "stop": {},
}

PROTOCOL_EXIT = 3  # "harness broken", as everywhere in preempt-oracle


class Refused(Exception):
    """The engine does not do this: the reply is `refused` with the reason, and the run may go on.

    Raised by `start` for a configuration outside the engine's contract, and by `abort` or `control` where the engine
    has no such operation.
    """


class Unsupported(Exception):
    """The installed engine lacks something this adapter relies on: wrong version, or a changed internal."""


class ProtocolError(Exception):
    """The harness sent something that is not a command that may be sent now."""


class Engine:
    """One scheduler under test. Every method answers with the payload of its reply, an object with "event".

    `start` may be called again after an error, a refusal or a stop, and must then forget everything.
    """

    injection: Injection | None = None  # the fault put into it by a start that asked for one (`faults.inject`)

    def start(self, config: dict[str, Any]) -> Reply:
        """Build a fresh scheduler; answer with the header of trace v1 (see `header`). Raises `Refused`."""
        raise NotImplementedError

    def add(self, cmd: Command) -> Reply:
        """A request arrives: an `arrive` or a `reject` event."""
        raise NotImplementedError

    def abort(self, request: str) -> Reply:
        """Cancel a live request: an `abort` event."""
        raise Refused("this engine has no abort")

    def control(self, cmd: Command) -> Reply:
        """reset, pause, resume or caps: a `control` event."""
        raise Refused(f"this engine has no control {cmd['kind']!r}")

    def step(self) -> Reply:
        """Ask the scheduler for one decision: a `step` event, an empty one with its reason included."""
        raise NotImplementedError

    def deliver(self, cmd: Command) -> Reply:
        """Hand a frame's sampled tokens to the scheduler: a `deliver` event."""
        raise NotImplementedError

    def stop(self) -> None:
        """Drop the scheduler. Called at most once per successful start, also at the end of input."""


def require(owner: object, names: Iterable[str]) -> None:
    """Check that `owner` has all of `names`. Raises `Unsupported` naming what is missing."""
    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        label = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", None) or type(owner).__qualname__
        raise Unsupported(f"{label} has no {', '.join(missing)}: not a version this adapter was written for")


def fixed(config: Mapping[str, Any], **values: object) -> dict[str, Any]:
    """`config` with these knobs set as the engine has them, for an engine that cannot turn them.

    Raises `Refused` if the configuration asks for anything else.
    """
    for name, value in values.items():
        if name in config and config[name] != value:
            raise Refused(f"{name}={config[name]!r}: this engine only has {name}={value!r}")
    return {**config, **values}


def whole(config: Mapping[str, Any], name: str, least: int) -> int:
    """`config[name]`, an integer of at least `least`. Raises `Refused` naming the field."""
    value = config.get(name)
    if type(value) is not int or value < least:
        raise Refused(f"{name}={value!r}: must be an integer of at least {least}")
    return value


def header(
    engine: str,
    version: str,
    config: Mapping[str, Any],
    observes: Iterable[str],
    capabilities: Iterable[str],
    *,
    reserved: int = 0,
    assumes: Iterable[str] = (),
) -> Reply:
    """The header reply for one device pool of one group. `reserved`: blocks on top of the usable `config["blocks"]`."""
    limits = ("max_running", "budget", "max_length", "long_prefill", "chunked", "caching", "whole_fit", "watermark")
    grown = {name: config[name] for name in ("lookahead", "threshold") if config.get(name)}
    ahead = {"frames": config["frames"], "drafts": config.get("drafts", 0)} if config.get("frames", 1) > 1 else {}
    return {
        "event": "header",
        "engine": engine,
        "version": version,
        "policy": config["policy"],
        "limits": {**{name: config[name] for name in limits if name in config}, **ahead, **grown},
        "groups": [{"name": "full", "kind": "full", "page_size": config["page_size"]}],
        "pools": [{"tier": "device", "group": 0, "total": config["blocks"] + reserved, "reserved": reserved}],
        "observes": sorted(observes),
        "assumes": list(assumes),
        "capabilities": sorted(capabilities),
    }


def arrive(cmd: Command) -> Reply:
    """The `arrive` reply to an `add` that the engine took as it is."""
    defaults = {"priority": 0, "arrival": 0, "salt": ""}
    fields = ("request", "prompt", "max_tokens", *defaults)
    return {"event": "arrive", **{field: cmd.get(field, defaults.get(field)) for field in fields}}


def version_of(distribution: str) -> str:
    """The version of an installed distribution, `unknown` for a checkout without metadata."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


_wire: TextIO | None = None


def claim() -> TextIO:
    """Take the real stdout away from everybody else and return it; call it before importing a chatty engine.

    Engines print. The descriptor itself is moved, so that writes from C extensions and from child processes of the
    engine go to stderr as well instead of into the protocol.
    """
    global _wire
    if _wire is None:
        _wire = os.fdopen(os.dup(1), "w", encoding="ascii", newline="\n")
        os.dup2(2, 1)
        sys.stdout.flush()  # what was printed before this call and still sits in the buffer goes to stderr now
    return _wire


def serve(engine: Engine, package: str) -> None:
    """Answer commands until the end of input, then return.

    `package` is the import name of the engine's top package; exceptions from its files count as the engine's.
    Raises SystemExit(3) after answering something that was not a command of the protocol.
    """
    out = claim()
    # The engine must not eat commands: from now on its stdin is empty.
    commands = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    live = False
    for line in commands:
        number: Any = None
        try:
            cmd = _parse(line)
            number = cmd["id"]
            do = cmd["do"]
            if do != "start" and not live:
                raise ProtocolError(f"{do!r} before a successful start")
        except ProtocolError as error:
            if number is None:
                number = _number(line)
            _answer(out, number, _error("protocol", "ProtocolError", str(error), ""))
            raise SystemExit(PROTOCOL_EXIT) from None
        try:
            if do == "start":
                if live:
                    live = False
                    engine.stop()
                reply = engine.start(cmd["config"])
                live = True
            elif do == "stop":
                live = False
                engine.stop()
                reply = {"event": "stopped"}
            elif do == "add":
                reply = engine.add(cmd)
            elif do == "abort":
                reply = engine.abort(cmd["request"])
            elif do == "control":
                reply = engine.control(cmd)
            elif do == "step":
                reply = engine.step()
            else:
                reply = engine.deliver(cmd)
            text = _encode(number, marked(engine, do, reply))
        except Refused as refusal:
            text = _encode(number, marked(engine, do, {"event": "refused", "reason": str(refusal)}))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit of an engine is a crash like any other
            live = False
            traceback.print_exc(file=sys.stderr)
            text = _encode(number, marked(engine, do, describe(error, package)))
        out.write(text)
        out.flush()
    if live:
        try:
            engine.stop()
        except Exception:  # nobody is left to read a reply; the end of input is a clean end
            traceback.print_exc(file=sys.stderr)


def describe(error: BaseException, package: str, adapter: str = "") -> Reply:
    """The `engine_error` of an exception: engine, if the innermost frame that is not a library's is the engine's.

    `package`: the engine's import name, of a package or of a single module. `adapter`: the file of an adapter that is
    no program of its own; it is the adapter's also inside of the engine's package, unless it is all there is of it.

    Frames of the standard library and of third-party packages are passed over: an engine that makes `random.choice`
    fail crashed, and so did an adapter that did. A failed import is never the engine's: its environment is incomplete,
    and that must not be taken for a finding.
    """
    if isinstance(error, ImportError):
        frames = list(_frames(error.__traceback__))
        return _error("adapter", *_what(error), _place(*frames[-1]) if frames else "")
    roots = _roots(package)
    here = os.path.dirname(os.path.abspath(__file__))
    adapter_file = getattr(sys.modules.get("__main__"), "__file__", None)
    adapter_roots = {here, os.path.dirname(os.path.abspath(adapter_file)) if adapter_file else here}
    frames = list(_frames(error.__traceback__))
    for frame, line in reversed(frames):
        name = os.path.abspath(frame.f_code.co_filename)
        if name == adapter and name not in roots:
            return _error("adapter", *_what(error), _place(frame, line))
        for root in roots:
            if _inside(name, root):
                relative = os.path.relpath(name, os.path.dirname(root)).replace(os.sep, "/")
                return _error("engine", *_what(error), f"{relative}:{line} in {frame.f_code.co_name}")
        if any(os.path.dirname(name) == root for root in adapter_roots):
            return _error("adapter", *_what(error), _place(frame, line))
    where = _place(*frames[-1]) if frames else ""
    return _error("adapter", *_what(error), where)


def _frames(trace: TracebackType | None) -> Iterable[tuple[FrameType, int]]:
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _place(frame: FrameType, line: int) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{line} in {frame.f_code.co_name}"


def _what(error: BaseException) -> tuple[str, str]:
    try:
        message = str(error)
    except Exception:  # a broken __str__ must not hide the crash it belongs to
        message = "(no message: str() of the exception failed)"
    return type(error).__name__, message[:2000]


def _error(origin: str, kind: str, message: str, where: str) -> Reply:
    return {"event": "engine_error", "origin": origin, "kind": kind, "message": message, "where": where}


def _roots(package: str) -> list[str]:
    module = sys.modules.get(package)
    if module is not None:
        paths, file = list(getattr(module, "__path__", ())), getattr(module, "__file__", None)
    else:
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            spec = None
        paths = list(spec.submodule_search_locations or ()) if spec is not None else []
        file = spec.origin if spec is not None and spec.has_location else None
    return [os.path.abspath(path) for path in paths or ([file] if file else [])]


def _inside(name: str, root: str) -> bool:
    return name == root or name.startswith(root + os.sep)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse(line: bytes) -> dict[str, Any]:
    try:
        cmd = json.loads(line.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a line of JSON: {error}") from None
    if not isinstance(cmd, dict):
        raise ProtocolError("a command is a JSON object")
    if type(cmd.get("id")) is not int:
        raise ProtocolError('a command has an integer "id"')
    do = cmd.get("do")
    if not isinstance(do, str) or do not in COMMANDS:
        raise ProtocolError(f"unknown command {do!r}; known: {', '.join(COMMANDS)}")
    for field, kind in COMMANDS[do].items():
        if type(cmd.get(field)) is not kind:
            raise ProtocolError(f"{do}: field {field!r} must be {kind.__name__}")
    return cmd


def _number(line: bytes) -> int | None:
    """The id of a command that was refused for another reason, so that the harness can match the reply."""
    try:
        number = json.loads(line).get("id")
    except (ValueError, AttributeError, RecursionError):
        return None
    return number if type(number) is int else None


def marked(engine: Engine, do: str, reply: Reply) -> Reply:
    """The reply to the command `do`, with what is told of a fault that was put into the engine on purpose."""
    injection = getattr(engine, "injection", None)  # an adapter in the harness's process need not be an Engine
    return reply if injection is None else {**reply, **injection.told(do)}


def _encode(number: int | None, reply: Reply) -> str:
    if "event" not in reply:
        raise TypeError('a reply of an adapter has an "event"')
    return json.dumps({"id": number, **reply}, separators=(",", ":"), allow_nan=False) + "\n"


def _answer(out: TextIO, number: int | None, reply: Reply) -> None:
    out.write(_encode(number, reply))
    out.flush()
