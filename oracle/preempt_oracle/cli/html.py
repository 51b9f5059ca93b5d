"""The HTML page of a campaign: the shortened run of each rule that broke, driven once more and filmed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preempt_oracle.cli.target import Target
    from preempt_oracle.drive import Run
    from preempt_oracle.film import Film
    from preempt_oracle.report.judged import Judged
    from preempt_properties.scenario import Scenario


def campaign_page(judged: Judged, engine: Target, scenarios: Mapping[str, Scenario]) -> bytes:
    """The page. `scenarios`: of each rule that broke. A run that cannot be had again is left out: the page says so."""
    from click import ClickException

    from preempt_oracle.adapters.protocol import HarnessError
    from preempt_oracle.report.timeline.page import Shown, page

    films: list[tuple[str, Film | None]] = []
    for rule, scenario in scenarios.items():
        try:
            films.append((f"The shortened run that breaks {rule}", filmed(engine.run(scenario))))
        except (HarnessError, ClickException):
            films.append((f"The run that breaks {rule} could not be driven again", None))
    return page([Shown(judged, tuple(films))]).encode()


def filmed(run: Run) -> Film:
    """A run, fed to a monitor once more."""
    from preempt_oracle.film import Film
    from preempt_oracle.monitor import Monitor
    from preempt_oracle.trace.convert import to_spec

    film = Film(Monitor(to_spec(run.header), run.policy))
    for event in run.events:
        film.monitor.feed(event)
        film.see(event)
    return film
