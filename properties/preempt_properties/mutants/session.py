"""A pytest session around a hunt: its tests are called one by one, on the code as it is and on changed code."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from preempt_properties.mutants.apply import Function
from preempt_properties.mutants.children import time_left

if TYPE_CHECKING:
    import pytest

#: Processor seconds for one test: so many times what it takes on the code as it is, and some more.
TEST_FACTOR, TEST_MORE = 4.0, 2.0


class NotReady(Exception):
    """The code as it is does not pass: what fails anyway kills nothing."""


#: A test, the seconds that it takes, and what it calls of the package.
Timed = tuple["pytest.Item", float, set[Function]]


def timed(items: Iterable[pytest.Item], called: set[Function]) -> list[Timed]:
    """The tests that call anything. `called`: the set of `Package.recorded`. Raises NotReady."""
    tests = []
    for item in items:
        called.clear()
        began = time.process_time()
        if failed(item):
            raise NotReady(f"{item.nodeid} fails on the code as it is")
        if called:
            tests.append((item, time.process_time() - began, set(called)))
    return tests


def by_tests(tests: Iterable[Timed], function: Function) -> str:
    """The first test that fails, of those that call the function, the quickest first; "" if none does."""
    for seconds, item in sorted(((s, item) for item, s, called in tests if function in called), key=lambda x: x[0]):
        time_left(TEST_MORE + TEST_FACTOR * seconds)
        if failed(item):
            return item.nodeid
    return ""


def failed(item: pytest.Item) -> bool:
    """Run one test of the session in this process."""
    from _pytest.runner import runtestprotocol

    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def collected(folders: Sequence[str], then: Callable[[Sequence[pytest.Item]], int]) -> int:
    """Collect the tests of some folders and call `then` with them, in a pytest session. Exit code: its or pytest's."""
    import pytest

    class Plugin:
        code = 0

        @pytest.hookimpl(tryfirst=True)
        def pytest_collection(self) -> None:
            """After conftest.py, before the tests: that a property fails is enough, its simplest failure takes long."""
            from hypothesis import Phase, settings

            phases = (Phase.explicit, Phase.generate)
            settings.register_profile("mutants", parent=settings(), phases=phases)
            settings.load_profile("mutants")

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            try:
                if session.testsfailed:
                    raise NotReady(f"{session.testsfailed} test files could not be collected")
                self.code = then(session.items)
            except NotReady as e:
                print(f"not ready: {e}", file=sys.stderr)
                self.code = 2
            except Exception:  # pytest without a terminal would say nothing of it
                traceback.print_exc()
                self.code = 3
            return True

    plugin = Plugin()
    # Where our own pytest plugin is installed, pytest would have liked to see its package first.
    late = "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"
    quiet = ["-s", "-p", "no:cacheprovider", "-p", "no:terminal", "-W", late]
    status = pytest.main([*quiet, *folders], plugins=[plugin])
    return plugin.code if status in (0, 5) else int(status)
