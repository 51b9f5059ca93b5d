"""Documents generated from the code: `python -m preempt_oracle.docs` renews them, `--check` says which are stale.

`docs/rules.md`, `docs/profiles.md`, `docs/traceability.md`, `docs/zoo.md`, `docs/mutants.md`, `docs/inference.md`,
`docs/cli.md`, the figures of `docs/cost.md`; and, in README.md and the pages of `BY_HAND`, whatever stands between
`<!-- generated: NAME -->` and `<!-- /generated -->`, where NAME is one of `BLOCKS`. A rule that nothing shows at work,
and no reason excuses, is told as a hole, and is exit 1 as well.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path

from attrs import fields

from preempt_oracle import inferred
from preempt_oracle import traceability as tracing
from preempt_oracle.lockstep import campaigns
from preempt_oracle.report import cli_page, cost_page, protocol_page, rulebook, schema
from preempt_oracle.report.mutants import page as mutants_page
from preempt_oracle.report.rulebook import cell, first_line
from preempt_oracle.report.traceability import page
from preempt_oracle.report.zoo import page as zoo_page
from preempt_oracle.rule_mutants.kept import argued, score
from preempt_properties.evidence import load as evidence
from preempt_properties.known_bad import kept
from preempt_properties.known_bad.kinds import load as kinds
from preempt_spec import HISTORY, SPEC_VERSION
from preempt_spec import events as ev
from preempt_spec.policies.profiles import PROFILES, Profile
from preempt_spec.rules import RULES

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"(<!-- generated: ([a-z-]+) -->\n)(.*?)(<!-- /generated -->)", re.DOTALL)
NOTE = "<!-- Written by `python -m preempt_oracle.docs`; edit the code instead. -->"


def rules() -> str:
    """docs/rules.md."""
    families = rulebook.families()
    parts = [
        "# Rules",
        NOTE,
        f"Specification {SPEC_VERSION}: {len(RULES)} rules. MUST holds of every engine; POLICY reads the profile. A "
        "clause runs at a micro-event of a step (`spec/preempt_spec/micro.py`) and needs certain observations; a rule "
        "of which no clause can be evaluated is *not observable*, one that was never put to the test *not exercised*, "
        "and neither counts as a pass. Each rule is shown to be breakable by a scheduler that breaks it.",
        rulebook.table(rulebook.select(None)),
        "## Versions",
        "A version is judged by with `--spec`, in today's wording: rules that came in later are left out, and those "
        "that came in with it, if it is a minor version and not the first, are advisory: their violations are shown "
        "and change no verdict. What an older version said otherwise stands here.",
        "\n".join(["| version | came in | reworded |", "|---|---|---|", *versions()]),
        "## Observations",
        "\n".join(["| name | what an adapter lets us see |", "|---|---|", *observations()]),
    ]
    for family in families:
        inside = rulebook.select(family)
        module = inspect.getdoc(sys.modules[f"preempt_spec.rules.{family}"]) or family
        parts += [f"## {module}", rulebook.markdown(inside).rstrip()]
    return "\n\n".join(parts) + "\n"


def versions() -> Iterator[str]:
    """A row per version of the specification, the first as a count."""
    for release in HISTORY:
        new = [f"`{r.id}`" for r in rulebook.select(None) if r.since == release.version]
        came = f"{len(new)} rules" if release is HISTORY[0] else ", ".join(new)
        reworded = "; ".join(f"`{rule}`: {cell(what)}" for rule, what in release.reworded.items())
        yield f"| {release.version} | {came} | {reworded} |"


def observations() -> Iterator[str]:
    """A row per observation."""
    for name, what in ev.OBSERVABLE.items():
        yield f"| `{name}` | {cell(what)} |"


def traceability() -> str:
    """docs/traceability.md."""
    return "\n\n".join(["# Traceability", NOTE, *page(tracing.traces(), evidence())]) + "\n"


def zoo() -> str:
    """docs/zoo.md."""
    return "\n\n".join(["# The zoo", NOTE, *zoo_page(kinds(), evidence(), kept.kills(), kept.scenes())]) + "\n"


def mutants() -> str:
    """docs/mutants.md."""
    return "\n\n".join(["# Mutants", NOTE, *mutants_page(*score(), argued())]) + "\n"


def inference() -> str:
    """docs/inference.md."""
    return "\n\n".join(["# What runs tell of a policy", NOTE, *inferred.page(inferred.kept())]) + "\n"


def command_line() -> str:
    """docs/cli.md."""
    return "\n\n".join(["# Command line", NOTE, *cli_page.page()]) + "\n"


def holes() -> list[str]:
    """What nothing shows at work."""
    faults = tracing.injected()
    return [*tracing.stale(evidence()), *tracing.holes(tracing.traces(faults=faults), faults)]


def profiles() -> str:
    """docs/profiles.md."""
    parts = [
        "# Profiles",
        NOTE,
        "A profile is a policy by name. Its *contract* is what the engine documents or upstream has fixed; a "
        "*deviation* is what runs of certain versions show instead, and is reported with every verdict. The rules of "
        "`core` must have been exercised before anything conforms.",
    ]
    for profile in PROFILES.values():
        parts += list(_profile(profile))
    return "\n\n".join(parts) + "\n"


def _profile(profile: Profile) -> Iterator[str]:
    yield f"## {profile.name}"
    if not profile.run:
        yield "Read from source, never run: gives no verdict."
    rows = ["| knob | value | meaning | source |", "|---|---|---|---|"]
    for a in fields(type(profile.contract)):
        if a.name != "name":
            value, meaning = _knob(getattr(profile.contract, a.name))
            rows.append(f"| {a.name} | {value} | {cell(meaning)} | {cell(profile.sources.get(a.name, ''))} |")
    yield "\n".join(rows)
    yield "Core: " + ", ".join(f"`{r}`" for r in profile.core) + "."
    for d in profile.deviations:
        value, meaning = _knob(d.value)
        yield (
            f"**Deviation of {d.engine} {', '.join(d.versions)}**, {d.knob} = {value} ({meaning}): {d.why}. "
            f"To see it: {d.scenario}."
        )


def _knob(value: object) -> tuple[str, str]:
    if isinstance(value, Enum):
        return f"`{value.name}`", str(value.value)
    if isinstance(value, frozenset):
        return ", ".join(f"`{v}`" for v in sorted(value)), "the declared causes of a preemption"
    return f"`{value}`", ""


def trace_table() -> str:
    """The events and acts of trace v1, with their fields."""
    parts = []
    for title, union in (("Lines", (ev.Header, *ev.Event.__args__, ev.Footer)), ("Acts", ev.Act.__args__)):
        rows = [f"| {title.lower()[:-1]} | fields | what it is |", "|---|---|---|"]
        rows += [f"| `{_snake(c)}` | {_fields(c)} | {cell(first_line(c))} |" for c in union]
        parts.append("\n".join(rows))
    small = (ev.Limits, ev.Group, ev.Pool, ev.Observed, ev.Delta, ev.Sent, ev.Resumed, ev.Hit, ev.Held, ev.Refs)
    rows = ["| record | fields | what it is |", "|---|---|---|"]
    rows += [f"| {c.__name__} | {_fields(c)} | {cell(first_line(c))} |" for c in small]
    return "\n\n".join([*parts, "\n".join(rows)])


def _fields(cls: type) -> str:
    return ", ".join(f"`{a.name}`" + ("?" if a.default is not _NOTHING else "") for a in fields(cls))


_NOTHING = fields(ev.Delta).request.default


def _snake(cls: type) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", cls.__name__).lower()


def rules_table() -> str:
    """A line per rule."""
    return rulebook.table(rulebook.select(None))


def profiles_table() -> str:
    """A line per profile."""
    rows = ["| profile | victim | a victim goes back to | a step holds |", "|---|---|---|---|"]
    for p in PROFILES.values():
        c = p.contract
        rows.append(f"| `{p.name}` | {cell(c.victim.value)} | {c.requeue.value} | {cell(c.phase.value)} |")
    return "\n".join(rows)


def exit_codes() -> str:
    """What a command's exit code says."""
    from preempt_oracle.verdict import Verdict

    return "\n".join(["| code | verdict |", "|---|---|", *(f"| {v.exit_code} | {v.value} |" for v in Verdict)])


#: Pages that people write, with blocks that are generated.
BY_HAND = ("trace.md", "lockstep.md", "cost.md", "protocol.md", "reports.md")
#: What may stand between marks, in README.md and in docs/*.md.
BLOCKS: Mapping[str, Callable[[], str]] = {
    "rules": rules_table,
    "profiles": profiles_table,
    "trace": trace_table,
    "exit-codes": exit_codes,
    **cost_page.BLOCKS,
    **protocol_page.BLOCKS,
    **schema.BLOCKS,
    **campaigns.BLOCKS,
}


def filled(text: str, name: str) -> str:
    """`text` with its generated blocks renewed. Raises SystemExit for a block nobody knows."""

    def renew(match: re.Match[str]) -> str:
        if match[2] not in BLOCKS:
            raise SystemExit(f"{name}: no generated block is called {match[2]}; there are {', '.join(BLOCKS)}")
        return f"{match[1]}{BLOCKS[match[2]]()}\n{match[4]}"

    return MARK.sub(renew, text)


def documents(root: Path) -> Iterator[tuple[Path, str]]:
    """Each file and what it should hold."""
    yield root / "docs" / "rules.md", rules()
    yield root / "docs" / "profiles.md", profiles()
    yield root / "docs" / "traceability.md", traceability()
    yield root / "docs" / "zoo.md", zoo()
    yield root / "docs" / "mutants.md", mutants()
    yield root / "docs" / "inference.md", inference()
    yield root / "docs" / "cli.md", command_line()
    cost = root / "docs" / "cost.md"
    for by_hand in (*(root / "docs" / name for name in BY_HAND), root / "README.md"):
        if by_hand.is_file():
            yield by_hand, filled(by_hand.read_text(encoding="utf-8"), by_hand.name)
    if cost.is_file():
        from preempt_oracle.report.cost_figures import drawn

        for name, text in drawn():
            yield cost.parent / "figures" / name, text


def current(file: Path, text: str, root: Path) -> bool:
    """Whether a file holds what it should.

    Figures: byte for byte only by the matplotlib that constraints.txt names, which CI has. Another may place a tick
    otherwise; with that one, whether they show the same data.
    """
    held = file.read_text(encoding="utf-8") if file.is_file() else None
    if held == text or held is None or file.suffix != ".svg":
        return held == text
    from preempt_oracle.report import figure

    pins = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return f"matplotlib=={figure.VERSION}" not in pins and figure.data(held) == figure.data(text)


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Renew the documents, or with --check say which are stale (exit 1). A hole is told either way, and is exit 1."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m preempt_oracle.docs [--check]", file=sys.stderr)
        return 2
    if not (root / "pyproject.toml").is_file():
        print("documents are renewed in a checkout of the project, and this is none", file=sys.stderr)
        return 2
    stale = [(file, text) for file, text in documents(root) if not current(file, text, root)]
    for file, text in stale:
        name = file.relative_to(root).as_posix()
        if arguments:
            print(f"{name} is stale: renew it with `python -m preempt_oracle.docs`")
        else:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
            print(f"{name} renewed")
    found = holes()
    for hole in found:
        print(f"hole: {hole}")
    return 1 if found or (stale and arguments) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
