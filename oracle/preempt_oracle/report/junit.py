"""JUnit XML: one suite per input, one test case per rule, as continuous integration reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from preempt_oracle.known import Ledger
from preempt_oracle.report.events import line
from preempt_oracle.report.judged import Judged
from preempt_oracle.verdict import Failure, Standing, Verdict
from preempt_spec.rules import RULES

#: Characters XML 1.0 cannot hold, not even as references.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(inputs: Sequence[Judged], known: Ledger | None = None) -> bytes:
    """The report as an XML document. What is known or advisory is skipped with its reason; what is stale, an error."""
    root = ET.Element("testsuites", name="preempt-oracle")
    for judged in inputs:
        root.append(_suite(judged))
    if known is not None:
        root.append(_entries(known))
    ET.indent(root)
    text: str = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def clean(text: str) -> str:
    """`text` with what XML cannot hold written out as an escape."""
    return _FORBIDDEN.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


def _suite(judged: Judged) -> ET.Element:
    tally = judged.tally
    suite = ET.Element("testsuite", name=clean(judged.source))
    tests = failures = skipped = errors = 0
    properties = ET.SubElement(suite, "properties")
    told: dict[str, object] = {"verdict": judged.verdict.value, "seed": judged.seed, "workloads": judged.workloads}
    if tally is not None:
        told |= {"engine": tally.engine, "version": tally.version, "policy": tally.policy}
        told |= {"missing": "; ".join(tally.missing)}
    for what, value in told.items():
        if value not in (None, ""):
            ET.SubElement(properties, "property", name=what, value=clean(str(value)))
    if judged.error:
        name = "trace" if judged.fault is Verdict.UNREADABLE else "harness"
        case = ET.SubElement(suite, "testcase", classname="preempt-oracle", name=name)
        tests, errors = tests + 1, errors + 1
        error = ET.SubElement(case, "error", message=clean(judged.error.splitlines()[0]), type=judged.fault.value)
        error.text = clean(judged.error)
    for id, standing in (tally.standings if tally is not None else {}).items():
        case = ET.SubElement(suite, "testcase", classname=f"preempt-oracle.{RULES[id].family}", name=id)
        tests += 1
        ours = [f for f in tally.failures if f.violation.rule == id] if tally is not None else []
        if standing is Standing.VIOLATED:
            failures += 1
            _failure(case, id, [f for f in ours if not f.known])
        elif standing is not Standing.HELD:
            skipped += 1
            ET.SubElement(case, "skipped", _skipped(standing, ours))
    for name, number in (("tests", tests), ("failures", failures), ("errors", errors), ("skipped", skipped)):
        suite.set(name, str(number))
    return suite


def _skipped(standing: Standing, failures: Sequence[Failure]) -> dict[str, str]:
    """Why a case is not a plain pass; the type `xfail` is what pytest writes of an expected failure."""
    if standing not in (Standing.KNOWN, Standing.ADVISED) or not failures:
        return {"message": standing.value}
    why = failures[0].known if standing is Standing.KNOWN else failures[0].violation.message
    return {"type": "xfail", "message": clean(f"{standing.value}: {why}")}


def _entries(known: Ledger) -> ET.Element:
    """A suite of its own: a case per rule of an entry, in error if it is stale."""
    lines, stale = known.lines, known.stale
    sizes = {"tests": str(len(lines)), "failures": "0", "errors": str(len(stale)), "skipped": "0"}
    suite = ET.Element("testsuite", {"name": "known failures", **sizes})
    for line_ in lines:
        name = clean(f"{line_.rule}: {line_.entry.family}")
        case = ET.SubElement(suite, "testcase", classname="preempt-oracle.known-failures", name=name)
        if line_.stale:
            error = ET.SubElement(case, "error", message=clean(str(line_)), type="stale")
            error.text = clean(line_.entry.reason)
    return suite


def _failure(case: ET.Element, rule: str, failures: Sequence[Failure]) -> None:
    message = failures[0].violation.message if failures else "broken"
    element = ET.SubElement(case, "failure", message=clean(message), type=rule)
    lines = [RULES[rule].sentence]
    for f in failures:
        lines += [f"{f.where}, step {f.frame}: {f.violation.message}"]
        books = f.divergence.books if f.divergence else ()
        lines += [f"  {'!=' if c.differs else '  '} {c.what}: {c.engine} / {c.shadow}" for c in books]
        lines += [f"  {line(event)}" for event in f.tail]
        lines += [f"replay: {f.replay}"] if f.replay else []
    element.text = clean("\n".join(lines))
