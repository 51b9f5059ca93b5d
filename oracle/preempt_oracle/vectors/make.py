"""Make the shipped traces: `python -m preempt_oracle.vectors.make [--check] [--edits]`.

Every scenario of a vLLM is recorded from each version that every run of the tests drives, and those of the reference
scheduler from the specification; then the edits are applied to what was recorded. A trace that does not come out as
its scenario or edit says is not written. With `--check` nothing is written: what is there must be what would be made,
byte for byte (packed traces: what is in them). With `--edits` no engine is needed: the reference's scenarios are
played, and the broken copies made from them and from the vLLM traces that are there.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from attrs import evolve

from preempt_oracle.adapters.protocol import HarnessError, Refused, Session
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.check import check
from preempt_oracle.drive import drive
from preempt_oracle.engines.environments import ENGINES, ready
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_wire
from preempt_oracle.trace.errors import Fault, TraceError
from preempt_oracle.trace.reader import parse
from preempt_oracle.trace.streams import opened, unpacked
from preempt_oracle.trace.writer import Writer, create
from preempt_oracle.vectors.catalogue import CATALOGUE, FOLDER, Vector, dumps
from preempt_oracle.vectors.editing import Edit
from preempt_oracle.vectors.edits import EDITS
from preempt_oracle.verdict import Tally, Verdict
from preempt_properties.play import header, play
from preempt_properties.scenario import Scenario, loads
from preempt_spec import SPEC_VERSION
from preempt_spec.offload import reference
from preempt_spec.policies.profiles import PROFILES

ENGINE = "vllm"
REFERENCE = "reference"
#: Traces that ship packed, so that readers of packed traces have some. Of a scenario, and of a broken copy.
PACKED = {"fcfs-aborts": ".gz", "priority-aborts": ".zst", "abort-still-granted": ".gz", "hit-beyond-written": ".zst"}


class Wrong(Exception):
    """A trace that cannot be made, or does not come out as it must."""


Made = dict[str, tuple[Vector, bytes]]  # file -> what is said of it, the trace unpacked


def record(folder: Path = FOLDER) -> Made:
    """Every scenario, on every version. Raises Wrong, HarnessError."""
    made = played(folder)
    scenarios = dict(_scenarios(folder, f"{ENGINE}=="))
    for version in ENGINES[ENGINE].driven:
        environment = ready(ENGINE, version)
        if environment is None:
            raise Wrong(f"{ENGINE}=={version} is not installed: preempt-oracle engines install {ENGINE}=={version}")
        session = Session(Stdio(environment.command, f"{ENGINE}=={version}", env=environment.env))
        try:
            for name, (scenario, shows) in scenarios.items():
                vector, raw = _recorded(session, version, name, scenario, shows)
                made[vector.file] = vector, raw
        finally:
            session.close()
    return made


def played(folder: Path = FOLDER) -> Made:
    """The scenarios of the reference scheduler, played: what no engine that is driven shows, or not in so few lines.

    A profile that was only read from source gives no verdict, so neither does its trace. Raises Wrong.
    """
    made: Made = {}
    for name, (scenario, shows) in _scenarios(folder, REFERENCE):
        contract, told = PROFILES[scenario.config.policy].contract, header(scenario.config)
        told = evolve(told, version=SPEC_VERSION)
        first = to_wire(told)
        stream = io.BytesIO()
        with create(stream, first) as trace:
            for event in play(scenario, reference(told, contract)):
                trace.write(to_wire(event))
        raw = stream.getvalue()
        file = f"traces/{name}-{SPEC_VERSION}.jsonl"
        tally = _judged(file, raw)
        want = Verdict.CONFORMS if PROFILES[contract.name].run else Verdict.INCONCLUSIVE
        if tally.times or tally.verdict is not want:
            what = [f"{f.violation.rule}: {f.violation.message}" for f in tally.failures] or tally.missing
            raise Wrong(f"{file}: {tally.verdict.value}, must be {want.value}: {'; '.join(what)}")
        scenario_file = f"scenarios/{name}.toml"
        made[file] = Vector(file, shows, scenario_file, "", REFERENCE, SPEC_VERSION, contract.name, want.value), raw
    return made


def _scenarios(folder: Path, engine: str) -> Iterator[tuple[str, tuple[Scenario, str]]]:
    """Those of the engines whose name starts so: name, scenario, the sentence its comment says."""
    for path in sorted((folder / "scenarios").glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        scenario = loads(text)
        if scenario.engine.startswith(engine):
            comment = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
            yield path.stem, (scenario, " ".join(comment))


def _recorded(session: Session, version: str, name: str, scenario: Scenario, shows: str) -> tuple[Vector, bytes]:
    session.options = dict(scenario.options)
    run = drive(session, scenario)
    if isinstance(run, Refused):
        raise Wrong(f"{name}: {ENGINE} {version} refuses it: {run.reason}")
    stream = io.BytesIO()
    with create(stream, run.header) as trace:
        for event in run.events:
            trace.write(event)
    raw = stream.getvalue()
    file = f"traces/{name}.{ENGINE}-{version}.jsonl{PACKED.get(name, '')}"
    tally = _judged(file, raw)
    rules = (scenario.rule,) if scenario.rule else ()
    outside = "outside_contract" in scenario.options
    want = Verdict.INCONCLUSIVE if outside else Verdict.VIOLATES if rules else Verdict.CONFORMS
    if (tally.verdict, tuple(tally.times)) != (want, rules):
        what = [f"{f.violation.rule}: {f.violation.message}" for f in tally.failures] or tally.missing
        raise Wrong(f"{file}: {tally.verdict.value}, must be {want.value} {', '.join(rules)}: {'; '.join(what)}")
    scenario_file = f"scenarios/{name}.toml"
    policy = run.header.policy
    return Vector(file, shows, scenario_file, "", ENGINE, version, policy, want.value, rules), raw


def break_all(recorded: Mapping[str, bytes]) -> Made:
    """The hand-broken copies of the recorded traces, given unpacked by file. Raises Wrong."""
    bases = {Path(file).name.split(".jsonl")[0]: file for file in recorded}
    made: Made = {}
    for edit in EDITS.values():
        if edit.base not in bases:
            raise Wrong(f"{edit.name}: there is no trace {edit.base}")
        base = bases[edit.base]
        file = f"broken/{edit.name}.jsonl{PACKED.get(edit.name, '')}"
        if file in made:
            raise Wrong(f"{edit.name}: a second edit of that name")
        try:
            raw = broken(edit, recorded[base])
        except (Fault, TraceError) as e:
            raise Wrong(f"{edit.name}: not a trace any more: {e}") from None
        tally = _judged(file, raw)
        if tuple(tally.times) != (edit.rule,):
            what = [f"{f.violation.rule}: {f.violation.message}" for f in tally.failures] or ["nothing"]
            raise Wrong(f"{edit.name}: must break {edit.rule}, breaks {'; '.join(what)}")
        verdict = tally.verdict.value  # not "violates" under a profile that gives no verdict
        vector = Vector(file, edit.says, "", base, tally.engine, tally.version, tally.policy, verdict, (edit.rule,))
        made[file] = vector, raw
    return made


def broken(edit: Edit, base: bytes) -> bytes:
    """One edit applied to a trace, with the footer that it then has. Raises Fault, TraceError."""
    lines = [json.loads(line) for line in base.splitlines()][:-1]
    edit.change(lines)
    header, *events = (parse(json.dumps(line).encode()) for line in lines)
    if not isinstance(header, wire.Header):
        raise Fault("event", "the first line must be the header")
    stream = io.BytesIO()
    writer = Writer(stream, header)
    for event in events:
        if isinstance(event, wire.Header | wire.Footer):
            raise Fault("event", "header and footer are not events")
        writer.write(event)
    writer.finish()
    return stream.getvalue()


def _judged(file: str, raw: bytes) -> Tally:
    stream = io.BytesIO(raw)
    stream.name = file
    return check(stream)


def content(path: Path) -> bytes:
    """A trace file, unpacked. Raises OSError, Fault."""
    with opened(path) as stream:
        return b"".join(unpacked(stream))


def shipped(folder: Path = FOLDER) -> dict[str, Path]:
    """The trace files there are, by their path relative to the folder."""
    files = sorted(p for sub in ("traces", "broken") for p in (folder / sub).iterdir() if ".jsonl" in p.name)
    return {p.relative_to(folder).as_posix(): p for p in files}


def differences(made: Made, folder: Path = FOLDER, under: str = "") -> Iterator[str]:
    """What is there and would be made otherwise, of the files whose path starts with `under`."""
    there = {file: path for file, path in shipped(folder).items() if file.startswith(under)}
    for file in sorted(there.keys() - made.keys()):
        yield f"{file}: no scenario or edit makes this"
    for file, (_, raw) in made.items():
        if file not in there:
            yield f"{file}: is missing"
        elif content(there[file]) != raw:
            yield f"{file}: would be made otherwise"


def catalogue_differs(made: Made, folder: Path = FOLDER) -> bool:
    """Whether `vectors.toml` would be made otherwise."""
    file = folder / CATALOGUE
    return not file.is_file() or file.read_text(encoding="utf-8") != dumps(v for v, _ in made.values())


def write(made: Made, folder: Path = FOLDER) -> None:
    """Write what differs, and remove what nothing makes."""
    there = shipped(folder)
    for file in there.keys() - made.keys():
        there[file].unlink()
    for file, (_, raw) in made.items():
        if file in there and content(there[file]) == raw:
            continue  # packed by another version of the same library, a file would change for nothing
        first, *events = raw.splitlines()
        header = parse(first)
        assert isinstance(header, wire.Header)
        with create(folder / file, header) as trace:
            for line in events[:-1]:
                event = parse(line)
                assert not isinstance(event, wire.Header | wire.Footer)
                trace.write(event)
    (folder / CATALOGUE).write_text(dumps(v for v, _ in made.values()), encoding="utf-8")


def again(folder: Path = FOLDER) -> Made:
    """What an engine recorded, from the files, and the reference's played anew. Raises Wrong, OSError, ValueError."""
    from preempt_oracle.vectors.catalogue import load

    there = {v.file: (v, content(folder / v.file)) for v in load(folder) if not v.base and v.engine != REFERENCE}
    return there | played(folder)


@click.command()
@click.option("--check", "only", is_flag=True, help="Compare and write nothing.")
@click.option("--edits", is_flag=True, help="Without an engine: its traces stay as they are.")
def main(only: bool, edits: bool) -> None:
    """Record the shipped traces from live engines, and break copies of them. Exit code 1 if --check finds changes."""
    try:
        made = again() if edits else record()
        made |= break_all({file: raw for file, (_, raw) in made.items()})
    except (Wrong, HarnessError, OSError) as e:
        raise click.ClickException(str(e)) from None
    if not only:
        write(made)
        size = sum(path.stat().st_size for path in shipped().values())
        click.echo(f"{len(made)} traces, {size:,} bytes")
        return
    found = [*differences(made), *[f"{CATALOGUE}: would be made otherwise"] * catalogue_differs(made)]
    for line in found:
        click.echo(line)
    if found:
        raise click.exceptions.Exit(1)
    click.echo(f"{len(made)} traces are what would be made")


if __name__ == "__main__":
    main()
