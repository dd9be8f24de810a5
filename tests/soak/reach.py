"""Which plain tests and crash scenarios run which function of segments/, and how long each takes.

Measured once, in a process of its own; a mutant of a function is then shown to those that run it,
the quickest first.  A test counts when it has passed.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest

import segbroker.segments
from tests.segments.planted.planting import SEGMENTS

ROOT = SEGMENTS.parent
IMPORTED = Path(segbroker.segments.__file__).parent
"""Where the code that runs says that it is; an editable install links to SEGMENTS."""
# What takes long for what it is, or looks at no code of segments/ that a mutant changes.
WITHOUT = frozenset(
    {"crash_images", "crash_images_2", "crash_images_3", "crash_images_4", "planted_bugs"}
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


def collect_tests() -> None:
    """Import all of them, for the processes that are forked from here."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        pytest.main([*_ARGUMENTS, "--collect-only", *test_files()])


def measure(others: Sequence[tuple[str, Callable[[], object]]]) -> Reach:
    """Run all plain tests, and `others` by name.  In a process that is used for nothing else."""
    tracer = _Tracer()
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        pytest.main(_ARGUMENTS + test_files(), plugins=[_Watching(tracer)])
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


_ARGUMENTS = ["--assert=plain", "-p", "no:cacheprovider"]


def run_tests(names: Iterable[str]) -> str:
    """Run these plain tests in this order until one fails: its name, or nothing."""
    chosen = list(names)
    files = sorted({name.partition("::")[0] for name in chosen})
    order = {name: place for place, name in enumerate(chosen)}
    choosing = _Choosing(order)
    paths = [str(ROOT / file) for file in files]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        code = pytest.main([*_ARGUMENTS, "-x", *paths], plugins=[choosing])
    if code == 0:
        return ""
    if code != pytest.ExitCode.TESTS_FAILED:
        raise RuntimeError(f"pytest ended with {code}: not a verdict on the mutant")
    return choosing.failed


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
            str(IMPORTED / path.relative_to(SEGMENTS)): ".".join(
                path.relative_to(SEGMENTS).with_suffix("").parts
            )
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


class _Watching:
    """As a plugin of pytest: what each test calls."""

    def __init__(self, tracer: _Tracer) -> None:
        self._tracer = tracer
        self._passed = True

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, None, None]:
        self._passed = True
        self._tracer.begin()
        yield
        self._tracer.end(item.nodeid)
        if not self._passed or self._tracer.told[-1][0].seconds > TEST_SECONDS_MAX:
            self._tracer.told.pop()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed &= report.passed


class _Choosing:
    """As a plugin of pytest: only some tests, in an order, and which one failed."""

    def __init__(self, order: dict[str, int]) -> None:
        self._order = order
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order),
            key=lambda item: self._order[item.nodeid],
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid
