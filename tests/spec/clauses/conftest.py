"""What clauses are shown, for tests that write it down by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.micro import Close


@pytest.fixture
def close() -> Callable[..., Close]:
    """The end of a step: `close(step, **observed)`."""

    def build(step: ev.Step | None = None, **observed: Any) -> Close:
        step = step or ev.Step(0, (), ())
        return Close(evolve(step, observed=ev.Observed(**observed)), ())

    return build
