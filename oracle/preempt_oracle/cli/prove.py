"""`prove [ID|NUMBER|FAMILY…]`: the theorems of the cost model, proved on the functions that are shipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from preempt_oracle.cli.choices import json_option


@click.command("prove")
@click.argument("wanted", nargs=-1, metavar="[ID|NUMBER|FAMILY]...")
@click.option("--list", "only_list", is_flag=True, help="List the theorems, prove nothing.")
@click.option("--second", is_flag=True, help="Have a second solver, cvc5, check every theorem again.")
@click.option("--smt2", "folder", metavar="DIR", help="Write each theorem as an SMT-LIB file into DIR.")
@json_option
def command(wanted: tuple[str, ...], only_list: bool, second: bool, folder: str | None, json_file: str | None) -> int:
    """Prove the theorems of the cost model, all of them or those named: break-even/t04-is-one, t04, break-even.

    A theorem is proved, or false with a counterexample, or a witness. Exit 0 if every one comes out as it is stated, 1
    if one does not, or is unknown, or the second solver contradicts one.
    """
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.prove import UnknownTheorem, document, fails, needed, prove, select

    try:
        theorems = select(wanted)
    except UnknownTheorem as e:
        from preempt_oracle.report.words import safe

        raise click.UsageError(safe(str(e), 400)) from None
    if only_list:
        if second or folder or json_file:
            raise click.UsageError("--list proves nothing: it goes with no other option")
        _list(theorems)
        return 0
    writable(json_file)
    if second:
        try:
            needed("cvc5")
        except ModuleNotFoundError:
            raise click.UsageError("--second needs an extra: pip install 'preempt-oracle[dev]'") from None
    with _folder(folder, second) as place:
        verdicts = prove(theorems)
        files = _export(theorems, verdicts, place) if place else {}
        answers = {}
        if second:
            from preempt_oracle.second_solver import recheck

            expected = {t.id: "unsat" if t.kind.value == "proved" else "sat" for t in theorems}
            answers = recheck(files, expected)
    if json_file:
        write(json_file, document(theorems, verdicts, answers))
    if json_file != "-":
        _show(theorems, verdicts, answers, full=bool(wanted))
    return 1 if fails(verdicts, answers) else 0


def _folder(folder: str | None, second: bool) -> Any:
    """The folder for the files, made if need be; a temporary one if only the second solver reads them."""
    from contextlib import nullcontext
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from preempt_oracle.cli.errors import unusable

    if folder is None:
        return TemporaryDirectory() if second else nullcontext()
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise unusable(f"--smt2 {folder}: {e.strerror or e}") from None
    return nullcontext(place)


def _export(theorems: Sequence[Any], verdicts: Sequence[Any], place: Any) -> dict[str, Any]:
    from pathlib import Path

    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.prove import export

    try:
        return export(theorems, verdicts, Path(place))
    except OSError as e:
        raise unusable(f"--smt2: cannot write {e.filename}: {e.strerror or e}") from None


def _list(theorems: Sequence[Any]) -> None:
    from preempt_oracle.report.words import console

    wide = max((len(t.id) for t in theorems), default=0)
    for t in theorems:
        console().print(f"{t.id:<{wide}}  {t.kind.value:<7}  {t.sentence}", soft_wrap=True)


def _show(theorems: Sequence[Any], verdicts: Sequence[Any], answers: Mapping[str, Any], *, full: bool) -> None:
    from preempt_oracle.report.theorems import show_details, show_second, show_summary, show_table
    from preempt_oracle.report.words import console

    out = console()
    show_table(out, theorems, verdicts, answers)
    for theorem, verdict in zip(theorems, verdicts, strict=True):
        show_details(out, theorem, verdict, full=full)
    if answers:
        show_second(out, answers)
    show_summary(out, verdicts)
