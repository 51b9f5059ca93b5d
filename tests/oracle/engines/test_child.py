from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from preempt_oracle.engines import child

ENGINE = """
import json, os, sys
def fall(): return [][1]
def claim(): assert 1 == 2, "one is two"
def library(): return json.loads("{")
def back(call): return call()
def leave(): sys.exit(7)
class Mute(Exception):
    def __str__(self): raise RuntimeError("no words")
def mute(): raise Mute()
def chatter():
    print("printed by the engine")
    os.write(1, b"written by C\\n")
    print("left in the buffer", end="")
def eat(): return sys.stdin.read()
"""

ADAPTER = """
import sys
sys.path.insert(0, {engines!r})
from child import Engine, Refused, Unsupported, serve
print("before serve")
class Fake(Engine):
    started = 0
    def start(self, config):
        if config.get("import"):
            import no_such_module
        from fakeengine import core
        self.core = core
        self.started += 1
        if config.get("refuse"):
            raise Refused("too small")
        return {{"event": "header", "starts": self.started}}
    def add(self, cmd): return {{"event": "arrive", "request": cmd["request"]}}
    def step(self): return {{"event": "step", "frame": 0}}
    def deliver(self, cmd): return {{"event": "deliver", "bad": object()}}
    def fail(self): raise KeyError("mine")
    def control(self, cmd):
        what = cmd["kind"]
        if what == "adapter": self.fail()
        if what == "back": self.core.back(self.fail)
        if what == "refuse": raise Refused("no such control")
        return {{"event": "control", "kind": what, "got": getattr(self.core, what)()}}
serve(Fake(), "fakeengine")
"""


@pytest.fixture
def fake(tmp_path, speak):
    package = tmp_path / "site" / "fakeengine"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "core.py").write_text(ENGINE)
    script = tmp_path / "adapter" / "fake_child.py"
    script.parent.mkdir()
    script.write_text(ADAPTER.format(engines=str(Path(child.__file__).parent)))
    return speak([sys.executable, str(script)], {"PYTHONPATH": str(package.parent)})


def test_every_command_is_answered_and_the_end_of_input_is_a_clean_end(fake):
    assert fake("start", config={}) == {"event": "header", "starts": 1}
    assert fake("add", request="a", prompt=[1], max_tokens=1) == {"event": "arrive", "request": "a"}
    assert fake("step") == {"event": "step", "frame": 0}
    assert fake("stop") == {"event": "stopped"}
    assert fake("start", config={})["starts"] == 2
    assert fake.end()[:2] == (0, "")


def test_what_an_engine_prints_never_reaches_the_protocol(fake):
    fake("start", config={})
    assert fake("control", kind="chatter")["event"] == "control"
    assert fake("step")["event"] == "step"
    code, out, err = fake.end()
    assert (code, out) == (0, "")
    for line in ("before serve", "printed by the engine", "written by C", "left in the buffer"):
        assert line in err


def test_an_engine_cannot_eat_commands(fake):
    fake("start", config={})
    assert fake("control", kind="eat")["got"] == ""
    assert fake("step")["event"] == "step"


@pytest.mark.parametrize(
    ("what", "origin", "kind", "function"),
    [
        ("fall", "engine", "IndexError", "fall"),
        ("claim", "engine", "AssertionError", "claim"),
        ("library", "engine", "JSONDecodeError", "library"),
        ("leave", "engine", "SystemExit", "leave"),
        ("mute", "engine", "Mute", "mute"),
        ("adapter", "adapter", "KeyError", "fail"),
        ("back", "adapter", "KeyError", "fail"),
        ("absent", "adapter", "AttributeError", "control"),
    ],
)
def test_an_exception_belongs_to_whoever_raised_it(fake, what, origin, kind, function):
    fake("start", config={})
    error = fake("control", kind=what)
    assert (error["event"], error["origin"], error["kind"]) == ("engine_error", origin, kind)
    place, _, name = error["where"].partition(" in ")
    assert name == function
    file, _, line = place.partition(":")
    assert file == ("fakeengine/core.py" if origin == "engine" else "fake_child.py")
    assert int(line) > 0


def test_a_failed_import_is_a_broken_environment_and_no_finding(fake):
    error = fake("start", config={"import": True})
    assert (error["origin"], error["kind"]) == ("adapter", "ModuleNotFoundError")


def test_after_an_error_only_a_start_is_accepted(fake):
    fake("start", config={})
    assert fake("control", kind="fall")["event"] == "engine_error"
    assert fake("start", config={})["event"] == "header"
    assert fake("control", kind="fall")["event"] == "engine_error"
    assert fake("step")["origin"] == "protocol"
    assert fake.end()[0] == 3


def test_an_answer_that_is_not_json_is_the_adapters_fault(fake):
    fake("start", config={})
    error = fake("deliver", frame=0, requests=[], tokens=[])
    assert (error["origin"], error["kind"]) == ("adapter", "TypeError")


def test_a_refused_start_starts_nothing_and_a_refused_command_ends_nothing(fake):
    assert fake("start", config={"refuse": True}) == {"event": "refused", "reason": "too small"}
    assert fake("start", config={})["event"] == "header"
    assert fake("control", kind="refuse") == {"event": "refused", "reason": "no such control"}
    assert fake("abort", request="a")["event"] == "refused"
    assert fake("step")["event"] == "step"


@pytest.mark.parametrize(
    ("line", "number", "part"),
    [
        ("garbage", None, "not a line of JSON"),
        ("\udcff", None, "not a line of JSON"),
        ("[]", None, "JSON object"),
        ('{"do":"step"}', None, "integer"),
        ('{"id":true,"do":"step"}', None, "integer"),
        ('{"id":4,"do":"fly"}', 4, "unknown command 'fly'"),
        ('{"id":4}', 4, "unknown command"),
        ('{"id":4,"do":"start"}', 4, "'config' must be dict"),
        ('{"id":4,"do":"start","config":{"a":1,"a":2}}', 4, "twice"),
        ('{"id":4,"do":"start","config":{"a":NaN}}', 4, "NaN"),
        ('{"id":4,"do":"step"}', 4, "before a successful start"),
        ("[" * 100_000, None, "not a line of JSON"),
    ],
)
def test_what_is_no_command_is_answered_and_ends_with_3(fake, line, number, part):
    fake.process.stdin.reconfigure(errors="surrogateescape")
    reply = fake.line(line)
    assert (reply["id"], reply["event"], reply["origin"]) == (number, "engine_error", "protocol")
    assert part in reply["message"]
    code, out, err = fake.end()
    assert (code, out) == (3, "")
    assert "Traceback" not in err


def test_the_engines_side_needs_nothing_but_the_standard_library():
    script = "import sys; sys.path.insert(0, sys.argv[1]); import child; print(*sorted(sys.modules))"
    command = [sys.executable, "-I", "-S", "-c", script, str(Path(child.__file__).parent)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert {name.partition(".")[0] for name in loaded} <= {*sys.stdlib_module_names, "child", "__main__"}


def test_require_names_what_is_missing():
    child.require(Path, ["open", "exists"])
    with pytest.raises(child.Unsupported, match=r"Path has no fly, swim"):
        child.require(Path, ["open", "fly", "swim"])


def test_fixed_knobs_are_completed_or_refused():
    assert child.fixed({"blocks": 1}, caching=False) == {"blocks": 1, "caching": False}
    with pytest.raises(child.Refused, match="caching=True"):
        child.fixed({"caching": True}, caching=False)


@pytest.mark.parametrize("value", [0, "8", 1.0, True, None])
def test_whole_wants_an_integer_of_some_size(value):
    with pytest.raises(child.Refused, match="blocks="):
        child.whole({"blocks": value}, "blocks", 1)


def test_a_header_is_json_and_counts_reserved_blocks_on_top():
    config = {"policy": "p", "blocks": 8, "page_size": 4, "max_running": 2, "options": {}}
    header = child.header("e", "1", config, {"free", "counts"}, ["abort"], reserved=1)
    assert header["pools"] == [{"tier": "device", "group": 0, "total": 9, "reserved": 1}]
    assert header["limits"] == {"max_running": 2}
    assert header["observes"] == ["counts", "free"]
    assert child.header("e", "1", {**config, "frames": 1, "drafts": 2}, (), ())["limits"] == {"max_running": 2}
    ahead = child.header("e", "1", {**config, "frames": 2, "drafts": 2}, (), ())["limits"]
    assert ahead == {"max_running": 2, "frames": 2, "drafts": 2}
    assert json.loads(json.dumps(header)) == header
