"""The JSON Schema of what `--json` writes: the reports of check, conform, fuzz and matrix.

`report-v1.schema.json` beside this file is its output, kept so that other languages need no Python; a test compares.
`python -m preempt_oracle.report.schema > report-v1.schema.json` renews it. Fields may be added: a reader ignores those
that it does not know.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from preempt_oracle.report.document import FORMAT_VERSION, Report
from preempt_oracle.report.engine_matrix import Documents
from preempt_oracle.report.matrix import MatrixReport
from preempt_oracle.report.rulebook import cell
from preempt_oracle.report.version_matrix import Document

SCHEMA_FILE: Final = Path(__file__).with_name(f"report-v{FORMAT_VERSION}.schema.json")
#: `format` of a document -> its struct.
DOCUMENTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "preempt-oracle-report": Report,
    "preempt-oracle-matrix": MatrixReport,
    "preempt-oracle-version-matrix": Document,
    "preempt-oracle-engine-matrix": Documents,
}


def report_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of any of the documents; `format` says which it is."""
    refs, components = msgspec.json.schema_components(tuple(DOCUMENTS.values()), ref_template="#/$defs/{name}")
    for name, struct in DOCUMENTS.items():
        # A document is only valid as what it says it is.
        properties = components[struct.__name__]["properties"]
        properties["format"] = {"const": name}
        properties["format_version"] = {"const": FORMAT_VERSION}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:preempt-oracle:report:v{FORMAT_VERSION}",
        "title": f"preempt-oracle report v{FORMAT_VERSION}",
        "description": "What check, conform, fuzz and matrix write with --json.",
        "anyOf": list(refs),
        "$defs": {name: components[name] for name in sorted(components)},
    }


def schema_text() -> str:
    """The content of SCHEMA_FILE."""
    return json.dumps(report_schema(), indent=1, ensure_ascii=True) + "\n"


def fields() -> str:
    """The structs of the documents, for docs/reports.md: a row each, the documents first."""
    rows = ["| object | fields | what it is |", "|---|---|---|"]
    defs = report_schema()["$defs"]
    documents = {s.__name__ for s in DOCUMENTS.values()}
    # Events of a trace have a page of their own.
    ours = [
        n for n in defs if n in documents or n.endswith("Row") or n in ("Footer", "Result", "Replay", "RowDocument")
    ]
    for name in sorted(ours, key=lambda n: n not in documents):
        names = ", ".join(f"`{field}`" for field in defs[name]["properties"])
        what = inspect.cleandoc(defs[name].get("description", ""))
        rows.append(f"| {name} | {names} | {cell(what)} |")
    return "\n".join(rows)


#: What may stand between marks.
BLOCKS: Final[Mapping[str, Callable[[], str]]] = {"report-fields": fields}

if __name__ == "__main__":
    print(schema_text(), end="")
