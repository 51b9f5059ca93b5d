from __future__ import annotations

import json
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from attrs import evolve

from preempt_oracle.engines import building, environments
from preempt_oracle.engines.environments import ENGINES, EngineSpec, EnvironmentFailure

CHILD = """
import json, sys
import toy
for line in sys.stdin:
    cmd = json.loads(line)
    answer = {"event": "header", "version": toy.VERSION} if cmd["do"] == "start" else {"event": "stopped"}
    print(json.dumps({"id": cmd["id"], **answer}), flush=True)
"""


def put(target, version="1.0", text=None):
    """What pip leaves behind for the toy engine."""
    (target / "toy").mkdir(parents=True)
    (target / "toy" / "__init__.py").write_text(text or f'VERSION = "{version}"\n')
    info = target / f"toy_engine-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: toy-engine\nVersion: {version}\n")


@pytest.fixture
def toy(tmp_path, monkeypatch) -> EngineSpec:
    """A light engine in the table, a cache of its own, and nothing in it."""
    script = tmp_path / "toy_child.py"
    script.write_text(CHILD)
    spec = EngineSpec(
        name="toy",
        distribution="toy-engine",
        kind="target",
        versions=("1.0",),
        child=str(script),
        policies=("p",),
        probe={},
        size="1 KB",
        files=("toy/__init__.py",),
        probe_seconds=30,
    )
    monkeypatch.setenv("PREEMPT_ORACLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "ENGINES", {"toy": spec})
    return spec


@pytest.fixture
def pip(monkeypatch):
    """A pip without a network: it notes its arguments and puts the toy into the folder it is given."""
    calls: list[list[str]] = []

    def fake(python, arguments, log_file):
        calls.append([python, *arguments])
        if "--target" in arguments:
            put(Path(arguments[arguments.index("--target") + 1]))

    monkeypatch.setattr(environments, "pip", fake)
    return calls


def folder() -> Path:
    return environments.listing()[0].path


def test_install_makes_an_environment_that_ready_finds(toy, pip):
    assert environments.ready("toy", "1.0") is None
    made = environments.install("toy", "1.0", ["--quiet"])
    assert environments.ready("toy", "1.0") == made
    assert (made.name, made.version, made.python, made.verified) == ("toy", "1.0", sys.executable, True)
    assert made.command == [sys.executable, toy.child]
    assert made.env["PYTHONPATH"] == str(folder())
    (call,) = pip
    assert call[:3] == [sys.executable, "--no-deps", "--quiet"]
    assert call[-1] == "toy-engine==1.0"


def test_a_second_install_does_nothing(toy, pip):
    lines: list[str] = []
    assert environments.install("toy", "1.0") == environments.install("toy", "1.0", log=lines.append)
    assert len(pip) == 1
    assert lines == ["toy 1.0 is ready"]


def damage_no_stamp(target):
    (target / building.STAMP).unlink()


def damage_cut_stamp(target):
    (target / building.STAMP).write_text("{")


def damage_other_pins(target):
    text = (target / building.STAMP).read_text()
    (target / building.STAMP).write_text(json.dumps({**json.loads(text), "pins": "0"}))


def damage_missing_file(target):
    (target / "toy" / "__init__.py").unlink()


def damage_other_version(target):
    (target / "toy_engine-1.0.dist-info" / "METADATA").write_text("Name: toy-engine\nVersion: 2.0\n")


def damage_broken_import(target):
    (target / "toy" / "__init__.py").write_text("import no_such_module\n")


@pytest.mark.parametrize(
    "damage",
    [
        damage_no_stamp,
        damage_cut_stamp,
        damage_other_pins,
        damage_missing_file,
        damage_other_version,
        damage_broken_import,
    ],
)
def test_a_damaged_environment_is_never_used_and_is_made_again(toy, pip, damage):
    environments.install("toy", "1.0")
    damage(folder())
    assert environments.ready("toy", "1.0") is None
    environments.install("toy", "1.0")
    assert environments.ready("toy", "1.0") is not None
    assert len(pip) == 2


def test_changed_pins_make_an_old_environment_unusable(toy, pip, monkeypatch):
    environments.install("toy", "1.0")
    monkeypatch.setattr(environments, "ENGINES", {"toy": evolve(toy, extra=("numpy==9",))})
    assert environments.ready("toy", "1.0") is None
    assert environments.listing()[0].state == "damaged"


def test_an_interrupted_install_leaves_nothing_that_counts(toy, pip, monkeypatch):
    def dies(python, arguments, log_file):
        put(Path(arguments[arguments.index("--target") + 1]))
        raise KeyboardInterrupt

    monkeypatch.setattr(environments, "pip", dies)
    with pytest.raises(KeyboardInterrupt):
        environments.install("toy", "1.0")
    assert not folder().exists()
    assert environments.ready("toy", "1.0") is None


def test_left_overs_of_a_killed_install_are_cleared_away(toy, pip):
    left = folder().parent / f".{folder().name}.build-killed"
    put(left / "new")
    environments.install("toy", "1.0")
    assert not left.exists()
    assert sorted(path.name for path in left.parent.iterdir()) == [folder().name, folder().name + ".lock"]


def test_a_failed_install_takes_nothing_away(toy, pip, monkeypatch):
    environments.install("toy", "1.0")
    damage_broken_import(folder())

    def fails(python, arguments, log_file):
        raise EnvironmentFailure("no network")

    monkeypatch.setattr(environments, "pip", fails)
    with pytest.raises(EnvironmentFailure, match="no network"):
        environments.install("toy", "1.0")
    assert folder().exists()


def test_an_engine_the_adapter_cannot_drive_is_not_ready(toy, pip, monkeypatch):
    def other(python, arguments, log_file):
        put(Path(arguments[arguments.index("--target") + 1]), text='VERSION = "0.9"\n')

    monkeypatch.setattr(environments, "pip", other)
    with pytest.raises(EnvironmentFailure, match=r"cannot drive it: it is version 0\.9"):
        environments.install("toy", "1.0")
    assert environments.ready("toy", "1.0") is None
    assert environments.listing()[0].state == "damaged"


def test_of_two_installs_at_once_one_works_and_one_waits(toy, pip):
    waiting = threading.Event()
    failures: list[BaseException] = []

    def second():
        try:
            environments.install("toy", "1.0", log=lambda line: waiting.set() if "waiting" in line else None)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=second)
    with building.locked(folder(), lambda _: None):
        thread.start()
        assert waiting.wait(30)
        assert not pip
    thread.join(60)
    assert not failures
    assert len(pip) == 1


def test_a_real_pip_installs_a_local_wheel_and_names_its_log_when_it_cannot(toy, tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    offline = ["--no-index", "--find-links", str(wheels)]
    with pytest.raises(EnvironmentFailure, match=r"pip failed .*toy-engine==1\.0") as caught:
        environments.install("toy", "1.0", offline)
    log_file = Path(str(caught.value).partition("full output in ")[2])
    assert "No matching distribution" in log_file.read_text()
    assert environments.listing()[0].state == "absent"

    with zipfile.ZipFile(wheels / "toy_engine-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("toy/__init__.py", 'VERSION = "1.0"\n')
        info = "toy_engine-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy-engine\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    environments.install("toy", "1.0", offline)
    assert environments.ready("toy", "1.0") is not None


def stub(path: Path, text: str) -> str:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def test_a_python_without_pip_is_named(tmp_path):
    python = stub(tmp_path / "python", 'echo "$0: No module named pip" >&2; exit 1\n')
    with pytest.raises(EnvironmentFailure, match=rf"this Python has no pip.*{python}"):
        building.pip(python, ["x"], tmp_path / "log")


def test_a_python_that_is_not_there_is_no_traceback(tmp_path):
    with pytest.raises(EnvironmentFailure, match=r"pip failed: .*No such file"):
        building.pip(str(tmp_path / "absent"), ["x"], tmp_path / "log")


def test_pip_does_not_see_the_callers_python_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    python = stub(tmp_path / "python", 'echo "path=$PYTHONPATH."\n')
    building.pip(python, ["x"], tmp_path / "log")
    assert "path=." in (tmp_path / "log").read_text()


def test_the_cache_directory_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("PREEMPT_ORACLE_CACHE", str(tmp_path / "a"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert building.root() == tmp_path / "a" / "preempt-oracle" / "engines"
    monkeypatch.setenv("PREEMPT_ORACLE_CACHE", "")
    assert building.root() == tmp_path / "b" / "preempt-oracle" / "engines"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "c"))
    assert building.root() == tmp_path / "c" / ".cache" / "preempt-oracle" / "engines"


def test_a_cache_directory_that_cannot_be_made_is_no_traceback(toy, pip, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PREEMPT_ORACLE_CACHE", str(tmp_path / "file"))
    with pytest.raises(EnvironmentFailure, match="cache directory"):
        environments.install("toy", "1.0")


@pytest.mark.parametrize("version", ["", "../x", "1/2", "-r file", "1.0 --pre", "latest", "1" * 99])
def test_a_version_is_only_a_version(toy, version):
    for function in (environments.ready, environments.install):
        with pytest.raises(EnvironmentFailure, match="not a version"):
            function("toy", version)


def test_requirements_name_an_engine_and_perhaps_a_version(toy):
    assert environments.requirement("toy") == ("toy", "1.0")
    assert environments.requirement("toy==0.9") == ("toy", "0.9")
    with pytest.raises(EnvironmentFailure, match="known: toy"):
        environments.requirement("nope==1")
    with pytest.raises(EnvironmentFailure, match="not a version"):
        environments.requirement("toy==")


def test_another_version_may_be_tried_and_is_unverified(toy, pip, monkeypatch):
    def other(python, arguments, log_file):
        put(Path(arguments[arguments.index("--target") + 1]), "2.0")

    monkeypatch.setattr(environments, "pip", other)
    assert not environments.install("toy", "2.0").verified
    rows = [(row.version, row.state, row.standing) for row in environments.listing()]
    assert rows == [("1.0", "absent", "verified"), ("2.0", "ready", "unverified")]


def test_a_checkout_is_unverified_and_keeps_the_users_path(toy, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "mine")
    found = environments.checkout("toy", sys.executable)
    assert (found.version, found.verified, found.python) == ("unverified", False, sys.executable)
    assert found.env["PYTHONPATH"] == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be run"),
        ("echo 3.9\n", r"is Python 3\.9; adapters need 3\.10"),
        ("echo hello\n", "not a Python"),
        ("exit 1\n", "not a Python"),
    ],
)
def test_a_checkout_needs_a_python_that_runs(toy, tmp_path, text, message):
    python = tmp_path / "python"
    if text is not None:
        stub(python, text)
    with pytest.raises(EnvironmentFailure, match=message):
        environments.checkout("toy", python)


def test_vllm_stands_on_one_base_that_is_made_again_when_damaged(monkeypatch, tmp_path):
    monkeypatch.setenv("PREEMPT_ORACLE_CACHE", str(tmp_path))
    calls: list[list[str]] = []

    def pip(python, arguments, log_file):
        calls.append(list(arguments))
        if "--target" in arguments:
            target = Path(arguments[arguments.index("--target") + 1])
            version = arguments[-1].partition("==")[2]
            (target / "vllm/v1/core/sched").mkdir(parents=True)
            (target / "vllm/v1/core/sched/scheduler.py").touch()
            info = target / f"vllm-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Name: vllm\nVersion: {version}\n")

    def run(command, log_file, failure):
        if "venv" in command:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir()
            python.symlink_to(sys.executable)

    monkeypatch.setattr(environments, "pip", pip)
    monkeypatch.setattr(environments, "run", run)
    monkeypatch.setattr(environments, "probe", lambda _: "")
    first = environments.install("vllm", "0.31.0", ["--quiet"])
    second = environments.install("vllm", "0.33.0", ["--quiet"])
    assert first.python == second.python != sys.executable
    whole, alone, *engines = calls
    assert whole[:2] == ["--quiet", "torch==2.13.0"]
    assert alone == ["--no-deps", "--quiet", "xgrammar==0.2.8", "apache-tvm-ffi==0.1.11"]
    assert [call[-1] for call in engines] == ["vllm==0.31.0", "vllm==0.33.0"]
    assert all(call[0] == "--no-deps" for call in engines)

    (Path(first.python).parents[1] / building.STAMP).unlink()
    assert environments.ready("vllm", "0.33.0") is None
    calls.clear()
    environments.install("vllm", "0.33.0")
    assert len(calls) == 2, "the base only: vLLM itself was whole"


def test_the_table_points_at_adapters_that_are_there():
    for name, spec in ENGINES.items():
        assert spec.name == name
        assert (environments.HERE / spec.child).is_file()
        assert spec.versions
        assert spec.probe["policy"] in spec.policies
        assert all("==" in pin for pin in spec.pins(spec.versions[-1]))
