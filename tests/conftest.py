"""For all tests: one reproducible Hypothesis profile, and a closing line that says which tests did not run, and why.

A run without vLLM, without Node or with `-m "not vllm"` ends green like any other; the line makes sure that nobody
takes it for more than it was.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Container, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from preempt_spec.policies.profiles import PROFILES

#: Markers of tests that drive a real engine, or take long: their absence from a run is always told.
LIVE = ("vllm", "transformers", "sglang", "lmdeploy", "light", "long", "browser")

#: Profiles that differ from another in little: what is done for every profile is `long` for them.
NEIGHBOURS = {"vidur-vllm", "sglang-retract", "hf-cb-prefill-first", "hf-cb-offload"}

#: Two that differ much: what takes about a second for each profile (marker `profiles`) is `long` for all others.
CONTRASTS = {"vllm-fcfs", "vllm-v0-swap"}

# The same examples on every machine, so that a red run can be repeated. Two busy cores make generation slow now and
# then, which says nothing about the code. `--hypothesis-profile explore` searches afresh.
settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")

# A shell lets what it runs in the background ignore interrupts, and so would every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Marker → number of tests that -m or -k left out.
_deselected = pytest.StashKey[Counter[str]]()
_WORKER_KEY = "deselected_live"


def _marker(names: Container[str]) -> str:
    """Return the live marker among the keywords or markers of a test, or ''."""
    return next((name for name in LIVE if name in names), "")


def pytest_configure(config: pytest.Config) -> None:
    """Start counting."""
    counts: Counter[str] = Counter()
    config.stash[_deselected] = counts


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark what is repeated for a profile like another, before anything is selected by its markers."""
    for item in items:
        params = getattr(item, "callspec", None)
        values = set() if params is None else {v for v in params.params.values() if isinstance(v, str)}
        weighty = item.get_closest_marker("profiles") is not None
        if weighty and not values & PROFILES.keys():
            raise pytest.UsageError(f"{item.nodeid} has the marker `profiles` and no profile")
        if values & NEIGHBOURS or (weighty and not values & CONTRASTS):
            item.add_marker("long")


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count the live tests that this run leaves out."""
    for item in items:
        if marker := _marker({mark.name for mark in item.iter_markers()}):
            item.config.stash[_deselected][marker] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under xdist, hand this worker's count to the process that reports."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        counts = session.config.stash[_deselected]
        output[_WORKER_KEY] = dict(counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the count of an xdist worker. Each worker collects everything, so they agree: never added up."""
    counts = node.config.stash[_deselected]
    for marker, count in getattr(node, "workeroutput", {}).get(_WORKER_KEY, {}).items():
        counts[marker] = max(counts[marker], count)


def not_run(deselected: Counter[str], skipped: Counter[tuple[str, str]]) -> str:
    """Return the one-line account of tests: left out, by live marker; skipped, by (marker or other, reason)."""
    parts = [f"{count} {marker} (left out by the selection)" for marker, count in sorted(deselected.items()) if count]
    parts += [f"{count} {kind} (skipped: {reason})" for (kind, reason), count in sorted(skipped.items())]
    return "not run: " + ("; ".join(parts) if parts else "nothing, every live test took part")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write that line above pytest's own last one."""
    skipped: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        longrepr = getattr(report, "longrepr", None)
        reason = str(longrepr[2] if isinstance(longrepr, tuple) else longrepr).removeprefix("Skipped: ")
        skipped[_marker(report.keywords) or "other", " ".join(reason.split())] += 1
    terminalreporter.write_line(not_run(config.stash[_deselected], skipped))
