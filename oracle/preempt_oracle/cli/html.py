"""`--html`: what is asked before anything runs, and the page of a campaign.

That page shows the shortened run of each rule that broke, driven once more and filmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preempt_oracle.cli.target import Target
    from preempt_oracle.drive import Run
    from preempt_oracle.film import Film
    from preempt_oracle.report.judged import Judged
    from preempt_properties.scenario import Scenario


def possible(html_file: str | None) -> None:
    """Nobody should wait for a run to hear that its page cannot be written. Raises ClickException, ImportError."""
    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.cli.files import writable

    writable(html_file)
    if html_file == "-":
        raise unusable("--html wants a file: standard output has the report")
    if html_file is not None:
        import preempt_oracle.report.timeline.page  # noqa: F401  # needs an extra


def campaign_page(judged: Judged, engine: Target, scenarios: Mapping[str, Scenario], spec: str) -> bytes:
    """The page. `scenarios`: of each rule that broke; `spec`: the version of the specification to judge by.

    A run that cannot be had again is left out: the page says so.
    """
    from click import ClickException

    from preempt_oracle.adapters.protocol import HarnessError
    from preempt_oracle.report.timeline.page import Shown, page

    films: list[tuple[str, Film | None]] = []
    for rule, scenario in scenarios.items():
        try:
            films.append((f"The shortened run that breaks {rule}", filmed(engine.run(scenario, spec), spec)))
        except (HarnessError, ClickException):
            films.append((f"The run that breaks {rule} could not be driven again", None))
    return page([Shown(judged, tuple(films))]).encode()


def filmed(run: Run, spec: str) -> Film:
    """A run, fed to a monitor once more."""
    from preempt_oracle.film import Film
    from preempt_oracle.monitor import Monitor
    from preempt_oracle.trace.convert import to_spec

    film = Film(Monitor(to_spec(run.header), run.policy, spec))
    for event in run.events:
        film.monitor.feed(event)
        film.see(event)
    return film
