"""The table of a fault injection: which fault was put into an engine, and which rule named it."""

from __future__ import annotations

import json
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from preempt_oracle.inject import Injected, Outcome, Row
from preempt_oracle.report.words import count, safe
from preempt_oracle.verdict import Verdict

STYLE = {Verdict.CONFORMS: "green", Verdict.VIOLATES: "bold red", Verdict.BROKEN: "red", Verdict.INCONCLUSIVE: "yellow"}


def show(out: Console, found: Injected) -> None:
    """The table, what is wrong with it, and how it came out."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in ("fault", "acted", "outcome", "rule", "workload", "step"):
        table.add_column(title, no_wrap=title != "rule", justify="right" if title in ("acted", "step") else "left")
    for row in found.rows:
        outcome = Text(row.outcome.value, style=STYLE[row.outcome.verdict])
        step = str(row.frame) if row.named else ""
        table.add_row(
            safe(row.fault.name, 60), f"{row.fired:,}", outcome, ", ".join(_named(row)), f"seed {row.seed}", step
        )
    out.print(table)
    for row in found.rows:
        if row.outcome is not Outcome.CAUGHT:
            _explain(out, row)
    for seed, violations in found.alarms.items():
        out.print(f"\nthe workload of seed {seed} breaks rules without any fault", soft_wrap=True)
        _violations(out, violations)
    out.print()
    if found.elsewhere:
        names = ", ".join(safe(name, 60) for name in found.elsewhere)
        out.print(f"not under {found.policy}: {names}", soft_wrap=True)
    broken = f"{len(found.alarms)} of them break a rule" if found.alarms else "no rule is broken"
    if found.known:
        rules = sorted({v.rule for seen in found.known.values() for v in seen})
        known = f"{len(found.known)} show what was found in this version ({', '.join(rules)})"
        broken = f"{known}; {broken}" if found.alarms else known
    out.print(f"control: {count(found.controls, 'workload')} without a fault, {broken}", soft_wrap=True)
    caught = sum(row.outcome is Outcome.CAUGHT for row in found.rows)
    words = {Verdict.CONFORMS: "OK", Verdict.VIOLATES: "FAILED"}.get(found.verdict, found.verdict.value.upper())
    line = Text.assemble((words, STYLE[found.verdict]), f"  {caught} of {count(len(found.rows), 'fault')} caught")
    unseen = sum(row.outcome is Outcome.UNSEEN for row in found.rows)
    line.append(" by the rule that was meant" + (f", {unseen} out of this adapter's sight" if unseen else ""))
    line.append(f" ({safe(found.engine, 60)} {safe(found.version, 60)}, {found.policy})")
    out.print(line, soft_wrap=True)


def _named(row: Row) -> tuple[str, ...]:
    """The rules that spoke, the intended ones first; for a fault that nobody named, those that should have."""
    rules = sorted({v.rule for v in row.named}, key=lambda rule: (rule not in row.fault.rules, rule))
    return tuple(rules) or tuple(f"({rule})" for rule in row.fault.rules)


def _explain(out: Console, row: Row) -> None:
    fault = row.fault
    out.print(f"\n{safe(fault.name, 60)}: {row.outcome.value}", soft_wrap=True)
    out.print(f"  does      {safe(fault.does, 300)}", soft_wrap=True)
    out.print(f"  meant     {', '.join(fault.rules)}", soft_wrap=True)
    if row.note:
        out.print(f"  note      {safe(row.note, 1000)}", soft_wrap=True)
    _violations(out, row.named)


def _violations(out: Console, violations: Any) -> None:
    for violation in violations:
        out.print(f"  {violation.rule}: {safe(violation.message, 600)}", soft_wrap=True)


def document(found: Injected) -> bytes:
    """The same as JSON."""
    data = {
        "engine": found.engine,
        "version": found.version,
        "policy": found.policy,
        "seed": found.seed,
        "verdict": found.verdict.value,
        "exit_code": found.verdict.exit_code,
        "control": {
            "workloads": found.controls,
            "alarms": [{"seed": seed, "violations": _plain(v)} for seed, v in found.alarms.items()],
            "known": [{"seed": seed, "violations": _plain(v)} for seed, v in found.known.items()],
        },
        "not_under_this_policy": list(found.elsewhere),
        "faults": [_row(row) for row in found.rows],
    }
    return (json.dumps(data, indent=2) + "\n").encode()


def _row(row: Row) -> dict[str, Any]:
    fault = row.fault
    return {
        "fault": fault.name,
        "does": fault.does,
        "rules": list(fault.rules),
        "also": list(fault.also),
        "why": fault.why,
        "outcome": row.outcome.value,
        "acted": row.fired,
        "workloads_acted": row.acted,
        "seed": row.seed,
        "step": row.frame if row.named else None,
        "violations": _plain(row.named),
        "note": row.note,
    }


def _plain(violations: Any) -> list[dict[str, str]]:
    return [{"rule": v.rule, "message": v.message} for v in violations]
