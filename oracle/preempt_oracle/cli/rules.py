"""`rules [ID|FAMILY]`: the specification's rules, from its registry."""

from __future__ import annotations

import click

from preempt_oracle.cli.choices import spec_option


@click.command("rules")
@click.argument("wanted", required=False, metavar="[ID|FAMILY]")
@click.option("--markdown", is_flag=True, help="As Markdown, in full.")
@spec_option
def command(wanted: str | None, markdown: bool, spec: str) -> int:
    """List the rules, those of a family, or explain the one of an id."""
    from preempt_oracle.report import rulebook
    from preempt_oracle.report.words import console, safe
    from preempt_spec.rules import RULES
    from preempt_spec.rules.rule import advisory, edition

    there, advice = edition(spec), advisory(spec)
    rules = [r for r in rulebook.select(wanted) if r in there]
    if not rules and rulebook.select(wanted):
        raise click.UsageError(f"{safe(repr(wanted), 80)} came in after specification {spec}")
    if not rules:
        raise click.UsageError(nearest(wanted or "", [*RULES, *rulebook.families()], "rule or family"))
    out = console()
    if markdown:
        out.print(rulebook.markdown(rules), soft_wrap=True)
    elif wanted in RULES:
        _show(rules[0].id, rules[0].id in advice)
    else:
        wide = max(len(r.id) for r in rules)
        for r in rules:
            said = " (advisory)" * (r.id in advice)
            out.print(f"{r.id:<{wide}}  {r.kind.value:<6}  {r.sentence}{said}", soft_wrap=True)
    return 0


def nearest(wanted: str, known: list[str], what: str) -> str:
    """That there is no such thing, and what is near it."""
    from difflib import get_close_matches

    from preempt_oracle.report.words import safe

    near = get_close_matches(wanted, known, n=3, cutoff=0.4)
    near += [k for k in known if wanted and wanted in k and k not in near][:3]
    hint = f"; near it: {', '.join(near)}" if near else ""
    return f"there is no {what} {safe(repr(wanted), 80)}{hint}"


def _show(id: str, advised: bool) -> None:
    from preempt_oracle.report import rulebook
    from preempt_oracle.report.words import console
    from preempt_spec import HISTORY
    from preempt_spec.events import OBSERVABLE
    from preempt_spec.policies.profiles import PROFILES
    from preempt_spec.rules import RULES

    out, rule = console(), RULES[id]
    out.print(f"{rule.id} ({rule.kind.value}): {rule.sentence}", soft_wrap=True)
    out.print(f"  since specification {rule.since}{', advisory' * advised}", soft_wrap=True)
    for release in HISTORY:
        if id in release.reworded:
            out.print(f"  reworded in {release.version}: {release.reworded[id]}", soft_wrap=True)
    core = [p.name for p in PROFILES.values() if id in p.core]
    if core:
        out.print(f"  needed for a verdict under {', '.join(core)}", soft_wrap=True)
    needed: dict[str, None] = {}
    out.print("\nClauses")
    for c in rulebook.clauses(rule):
        needs = f" (needs {', '.join(c.needs)})" if c.needs else ""
        out.print(f"  at {c.at}: {c.says}{needs}", soft_wrap=True)
        needed.update(dict.fromkeys(c.needs))
    if needed:
        out.print("\nObservations")
        for name in needed:
            out.print(f"  {name}: {OBSERVABLE[name]}", soft_wrap=True)
    bad = rulebook.known_bad(id)
    if bad:
        out.print("\nKnown-bad schedulers that break it")
        for b in bad:
            out.print(f"  {b.name}: {b.says}{f' (as in {b.bug})' if b.bug else ''}", soft_wrap=True)
