"""A scenario: a configuration and a script of what the world does, as a few readable lines.

```toml
policy = "vllm-fcfs"
blocks = 4
page_size = 2
max_running = 2
budget = 8
max_length = 8
script = '''
add a prompt=1,2,3 max=4
add b prompt=5 max=6 priority=1
step 3
abort a
step
'''
```

Every failure writes one, `replay` runs it. `step` is a scheduling decision and the delivery of its frame; with
`frames = 3`, of the oldest frame once three would fly (`deliver` brings it back sooner). `reset`, `pause` and `resume`
are what the operator does between steps. After the script the run goes on, resumed, until nobody is left or nothing
moves any more. Three more fields are optional:
`engine = "vllm==0.33.0"` (where to replay it), `rule = "queue/front"` (which it broke there) and a table `options` (of
the engine's adapter).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from attrs import asdict, field, fields, frozen
from attrs.validators import ge, in_, instance_of, le

#: The kinds of KV-cache groups a configuration may name.
GROUPS = ("full", "full+sliding", "full+recurrent", "full+sliding+recurrent")


class ScenarioError(Exception):
    """A scenario that cannot be read. The message names line and field."""


def _count(low: int, high: int = 1_000_000, default: int | None = None) -> Any:
    check = [_whole, ge(low), le(high)]
    return field(validator=check) if default is None else field(default=default, validator=check)


def _whole(_: object, attribute: Any, value: object) -> None:
    if type(value) is not int:
        raise TypeError(f"{attribute.name} must be a whole number, not {value!r}")


def _flag(default: bool) -> Any:
    return field(default=default, validator=instance_of(bool))


@frozen
class Config:
    """What an engine is started with. `blocks`: usable ones, of `page_size` tokens; other sizes in tokens."""

    policy: str = field(validator=instance_of(str))
    blocks: int = _count(1)
    page_size: int = _count(1, 4096)
    max_running: int = _count(1)
    budget: int = _count(1, 10_000_000)
    max_length: int = _count(2, 10_000_000)
    long_prefill: int = _count(0, default=0)
    chunked: bool = _flag(True)
    caching: bool = _flag(False)
    whole_fit: bool = _flag(True)
    watermark: int = _count(0, default=0)  # blocks
    frames: int = _count(1, 16, default=1)  # that may fly at once
    drafts: int = _count(0, 64, default=0)  # proposed for a grant, at most
    host_blocks: int = _count(0, default=0)  # of the host tier, per group
    groups: str = field(default="full", validator=in_(GROUPS))  # kinds of KV-cache groups
    lookahead: int = _count(0, default=0)  # tokens that a table gets room for behind those known, when it grows
    threshold: int = _count(0, default=0)  # by more than this a priority must be better to displace who runs


@frozen
class Add:
    """A request arrives."""

    request: str
    prompt: tuple[int, ...]
    max_tokens: int
    priority: int = 0
    arrival: int = 0
    salt: str = ""


@frozen
class Step:
    """The scheduler decides, the frame runs, its tokens are delivered: `count` times."""

    count: int = 1


@frozen
class Abort:
    """The user cancels a request: now (`before` the next step), or while the next frame is `flying`."""

    request: str
    when: str = "before"


@frozen
class Control:
    """The operator acts: reset, pause or resume."""

    kind: str


@frozen
class Deliver:
    """The oldest flying frame comes back now; nothing happens if none flies."""


Command = Add | Step | Abort | Control | Deliver
Option = bool | int | float | str


@frozen
class Scenario:
    """A configuration and a script; where to replay it, which rule it breaks, and the adapter's options, if known."""

    config: Config
    script: tuple[Command, ...]
    engine: str = ""
    rule: str = ""
    options: Mapping[str, Option] = field(factory=dict)


def dumps(scenario: Scenario, comment: str = "") -> str:
    """The scenario as TOML, defaults left out."""
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    lines += [f"{k} = {_shown(v)}" for k in ("engine", "rule") if (v := getattr(scenario, k))]
    if scenario.options:
        inside = ", ".join(f"{_shown(k)} = {_shown(v)}" for k, v in scenario.options.items())
        lines.append(f"options = {{ {inside} }}")
    for a in fields(Config):
        value = getattr(scenario.config, a.name)
        if value != a.default:
            lines.append(f"{a.name} = {_shown(value)}")
    return "\n".join([*lines, 'script = """', *map(_line, scenario.script), '"""', ""])


def _shown(value: Option) -> str:
    """A TOML value."""
    if isinstance(value, str):
        # TOML's basic strings are JSON's, but for U+007F, and for surrogates, which a TOML document cannot hold at all.
        return json.dumps(value.encode(errors="replace").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower()


def _line(command: Command) -> str:
    match command:
        case Add():
            parts = [f"add {command.request}", f"prompt={','.join(map(str, command.prompt))}"]
            parts.append(f"max={command.max_tokens}")
            parts += [f"{k}={v}" for k in ("priority", "arrival", "salt") if (v := getattr(command, k))]
            return " ".join(parts)
        case Step():
            return "step" if command.count == 1 else f"step {command.count}"
        case Abort():
            return f"abort {command.request}" + ("" if command.when == "before" else f" {command.when}")
        case Control():
            return command.kind
        case Deliver():
            return "deliver"


def loads(text: str) -> Scenario:
    """Read a scenario. Raises ScenarioError naming the line or field."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as e:
        raise ScenarioError(f"not TOML: {e}") from None
    return of_table(data)


def of_table(data: dict[str, Any]) -> Scenario:
    """A scenario from a TOML table that was read already, which is used up. Raises ScenarioError naming the field."""
    script = data.pop("script", None)
    if not isinstance(script, str):
        raise ScenarioError("script: missing, or not a text")
    known = {"engine": data.pop("engine", ""), "rule": data.pop("rule", "")}
    for name, value in known.items():
        if not isinstance(value, str):
            raise ScenarioError(f"{name}: must be a text, not {value!r}")
    options = data.pop("options", {})
    if not isinstance(options, dict) or not all(isinstance(v, Option) for v in options.values()):
        raise ScenarioError("options: must be a table of texts, numbers, true or false")
    unknown = sorted(set(data) - {a.name for a in fields(Config)})
    if unknown:
        raise ScenarioError(f"{unknown[0]}: unknown field")
    try:
        config = Config(**data)
    except (TypeError, ValueError) as e:
        raise ScenarioError(str(e.args[0]).replace("Config.__init__() ", "")) from None
    return Scenario(config, tuple(_commands(script)), **known, options=options)


def _commands(script: str) -> list[Command]:
    commands: list[Command] = []
    seen: set[str] = set()
    for n, line in enumerate(script.splitlines(), 1):
        words = line.split("#")[0].split()
        if words:
            try:
                command = _command(words)
            except ValueError as e:
                raise ScenarioError(f"script line {n}: {e}") from None
            if isinstance(command, Add):
                seen.add(command.request)
            if isinstance(command, Abort) and command.request not in seen:
                raise ScenarioError(f"script line {n}: {command.request} was not added")
            commands.append(command)
    return commands


def _command(words: list[str]) -> Command:
    match words:
        case ["step"]:
            return Step()
        case ["step", count]:
            return Step(_number("step", count, 1))
        case ["abort", request]:
            return Abort(_name(request))
        case ["abort", request, "flying"]:
            return Abort(_name(request), "flying")
        case ["reset" | "pause" | "resume" as kind]:
            return Control(kind)
        case ["deliver"]:
            return Deliver()
        case ["add", request, *rest]:
            return _add(_name(request), rest)
    raise ValueError(f"{' '.join(words)[:60]!r} is not add, step, abort, deliver, reset, pause or resume")


def _add(request: str, rest: list[str]) -> Add:
    given: dict[str, str] = {}
    for word in rest:
        key, eq, value = word.partition("=")
        if not eq or key not in ("prompt", "max", "priority", "arrival", "salt") or key in given:
            raise ValueError(f"{word[:60]!r}: expected prompt=, max=, priority=, arrival= or salt=, each once")
        given[key] = value
    for key in ("prompt", "max"):
        if key not in given:
            raise ValueError(f"{key}= is missing")
    return Add(
        request,
        tuple(_number("prompt", t, 0) for t in given["prompt"].split(",")),
        _number("max", given["max"], 1),
        _number("priority", given.get("priority", "0"), -(2**31)),
        _number("arrival", given.get("arrival", "0"), 0),
        given.get("salt", ""),
    )


def _name(text: str) -> str:
    if not (text.isascii() and text.replace("-", "").replace("_", "").isalnum() and len(text) <= 64):
        raise ValueError(f"{text[:60]!r} is no request name (letters, digits, - and _)")
    return text


def _number(what: str, text: str, low: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{what}: {text[:30]!r} is not a whole number") from None
    if not low <= value <= 10_000_000:
        raise ValueError(f"{what}: {value} is outside {low} to 10000000")
    return value


def as_json(scenario: Scenario) -> dict[str, Any]:
    """The scenario as plain data, for reports."""
    return {"config": asdict(scenario.config), "script": [_line(c) for c in scenario.script]}
