"""Which plain tests and crash scenarios run which function of segments/, and how long each takes.

Measured once, in a process of its own; a mutant of a function is then shown to those that run it,
the quickest first.  A test counts when it has passed.

pytest collects the tests once (`with_tests`).  What it would run then waits in its session, and
every process that is forked from inside of it may run some of them, in any order (`run_tests`):
nothing is imported, found or chosen again.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType
from typing import NamedTuple, TextIO

import pytest

import segbroker.segments
from tests.segments.planted.planting import SEGMENTS, name_of

ROOT = SEGMENTS.parent
IMPORTED = Path(segbroker.segments.__file__).parent
"""Where the code that runs says that it is; an editable install links to SEGMENTS."""
# What takes long for what it is, or looks at no code of segments/ that a mutant changes.
WITHOUT = frozenset(
    {"crash_images", "crash_images_2", "planted_bugs"}
    | {"model", "model_crash", "compaction_model", "golden"}
)
BESIDE = ("broker/test_transactions.py", "broker/test_committed_offsets.py")
"""Files elsewhere whose subject is in segments/."""
TEST_SECONDS_MAX = 5.0
"""A test that takes longer is shown to no mutant."""


class Probe(NamedTuple):
    """A test by its pytest name, or a callable by `module:name`, or a crash scenario by its."""

    name: str
    seconds: float
    """Of processor time, when nothing was changed."""

    @property
    def is_test(self) -> bool:
        return "::" in self.name


Reach = dict[str, list[Probe]]
"""By `module function`; the quickest first."""


def test_files() -> list[str]:
    """The plain tests of segments/."""
    found = sorted((ROOT / "tests/segments").glob("test_*.py"))
    plain = [path for path in found if path.stem.removeprefix("test_") not in WITHOUT]
    return [str(path) for path in (*plain, *(ROOT / "tests" / name for name in BESIDE))]


Items = dict[str, pytest.Item]
"""Collected tests, by their names."""


def with_tests(use: Callable[[Items], None]) -> None:
    """Call `use` in a session of pytest that has collected all of them and runs none itself.

    Raises what `use` raises, and RuntimeError for tests that cannot be collected.
    """
    session = _Session(use, sys.stdout)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        code = pytest.main([*_ARGUMENTS, *test_files()], plugins=[session])
    if session.raised is not None:
        raise session.raised
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"pytest ended with {code}: the tests could not be collected")


# Without capture: who is forked has descriptors that lead nowhere.  Nobody reads tracebacks.
_ARGUMENTS = ["--assert=plain", "-p", "no:cacheprovider", "-s", "--tb=native"]


class _Session:
    """As a plugin of pytest: something else in the place of running the tests."""

    def __init__(self, use: Callable[[Items], None], stdout: TextIO) -> None:
        self._use = use
        self._stdout = stdout
        self.raised: BaseException | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not session.testsfailed:
            try:
                with redirect_stdout(self._stdout):
                    self._use({item.nodeid: item for item in session.items})
            except BaseException as exc:
                self.raised = exc
        return True


def run_tests(items: Sequence[pytest.Item], until: Callable[[], bool]) -> str:
    """Run these in this order until one fails, and no more once `until` holds: the name of the one
    that failed, or nothing.  In a process that was forked for it."""
    for number, item in enumerate(items):
        if until():
            break
        following = items[number + 1] if number + 1 < len(items) else None
        if not _passes(item, following):
            return item.nodeid
    return ""


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run one; what the following one needs as well stays set up."""
    seen = _Seen()
    item.config.pluginmanager.register(seen)
    item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    item.config.pluginmanager.unregister(seen)
    return seen.passed


class _Seen:
    """As a plugin of pytest: whether a test passed."""

    def __init__(self) -> None:
        self.passed = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed &= not report.failed


def measure(items: Items, others: Sequence[tuple[str, Callable[[], object]]]) -> Reach:
    """Run all plain tests, and `others` by name.  In a process that is used for nothing else."""
    tracer = _Tracer()
    tests = list(items.values())
    for item, following in zip(tests, [*tests[1:], None], strict=True):
        tracer.begin()
        passed = _passes(item, following)
        tracer.end(item.nodeid)
        if not passed or tracer.told[-1][0].seconds > TEST_SECONDS_MAX:
            tracer.told.pop()
    for name, call in others:
        tracer.begin()
        call()
        tracer.end(name)
    reach: Reach = {}
    for probe, functions in tracer.told:
        for function in functions:
            reach.setdefault(function, []).append(probe)
    for probes in reach.values():
        probes.sort(key=lambda probe: (probe.seconds, probe.name))
    return reach


def save(reach: Reach, path: Path) -> None:
    """Keep it for the next run of the same tree."""
    path.write_text(json.dumps(reach))


def load(path: Path) -> Reach:
    """What `save` has written."""
    found = json.loads(path.read_text())
    return {function: [Probe(*probe) for probe in probes] for function, probes in found.items()}


class _Tracer:
    """Takes down which functions of segments/ are called, in any thread."""

    def __init__(self) -> None:
        self.told: list[tuple[Probe, set[str]]] = []
        self._files = {
            str(IMPORTED / path.relative_to(SEGMENTS)): name_of(path)
            for path in SEGMENTS.rglob("*.py")
        }
        self._seen: set[tuple[str, str]] = set()
        self._begun_s = 0.0

    def begin(self) -> None:
        self._seen = set()
        self._begun_s = time.process_time()
        threading.settrace(self._called)
        sys.settrace(self._called)

    def end(self, name: str) -> None:
        sys.settrace(None)
        threading.settrace(None)
        functions = {
            f"{self._files[file]} {function.partition('.<locals>')[0]}"
            for file, function in self._seen
        }
        self.told.append((Probe(name, time.process_time() - self._begun_s), functions))

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename in self._files:
            self._seen.add((code.co_filename, code.co_qualname))
