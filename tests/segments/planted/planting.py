"""A bug in a process of its own: the source of one module is changed before it is compiled.

Nothing of segments/ or broker/ may be imported in the process that forks, so that every child
compiles what it imports.  The exit code of the child says what came of it (`Outcome`).
A bug may also be of a module of broker/, which is named from there: `broker.partitions.isolation`.
"""

import ast
import importlib
import importlib.abc
import importlib.util
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[3]
SEGMENTS = PACKAGE / "segments"
SAID_BYTES_MAX = 300
STUCK = 40
"""Who has not ended after so many times its processor time, by the clock, waits for ever."""
IDLE_S = 20.0
"""... and so does who has used nothing of it for so long."""
_PLANTED = ("segbroker.segments", "segbroker.broker")


class Bug(NamedTuple):
    """A planted bug: `old` becomes `new` in `module`; the scenario that finds it, or the test as
    `module:function`, with its parameter as `module:function[memory]`."""

    name: str
    module: str
    old: str
    new: str
    found_by: str


class Outcome(IntEnum):
    """What the child says."""

    FOUND = 10
    MISSED = 11
    BROKEN = 12
    LATE = 13


def applies(bug: Bug) -> bool:
    """Whether its text occurs exactly once, and what it makes of that can be read as Python."""
    source = source_of(bug)
    try:
        ast.parse(source.replace(bug.old, bug.new))
    except SyntaxError:
        return False
    return source.count(bug.old) == 1


def source_of(bug: Bug) -> str:
    return path_of(bug.module).read_text()


@cache
def path_of(module: str) -> Path:
    """Of a module of segments/ by its name, or as `wal.files` where there are two of it."""
    if module.startswith("broker."):
        return PACKAGE / (module.replace(".", "/") + ".py")
    (path,) = SEGMENTS.rglob(module.replace(".", "/") + ".py")
    return path


def name_of(path: Path) -> str:
    """What `path_of` finds it by."""
    return f"wal.{path.stem}" if path.parent.name == "wal" else path.stem


class _Loader(SourceFileLoader):
    """Compiles a changed source."""

    bug: Bug

    def get_code(self, fullname: str) -> CodeType:
        text = source_of(self.bug)
        assert text.count(self.bug.old) == 1, f"{self.bug.name} does not apply"
        return compile(text.replace(self.bug.old, self.bug.new), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, bug: Bug) -> None:
        self._bug = bug
        parts = path_of(bug.module).relative_to(PACKAGE).with_suffix("").parts
        self._name = ".".join(("segbroker", *parts))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        file = str(path_of(self._bug.module))
        loader = _Loader(fullname, file)
        loader.bug = self._bug
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)


def plant(bug: Bug) -> None:
    """Have this process import the changed module."""
    assert not any(name.startswith(_PLANTED) for name in sys.modules), "too late"
    sys.meta_path.insert(0, _Finder(bug))


def called(bug: Bug) -> tuple[Callable[..., None], tuple[object, ...]]:
    """The test that has to find it, and what it is called with.  Raises LookupError."""
    module, _, function = bug.found_by.partition(":")
    function, _, wanted = function.removesuffix("]").partition("[")
    found_by = getattr(importlib.import_module(module), function)
    if not wanted:
        return found_by, ()
    for mark in getattr(found_by, "pytestmark", ()):
        if mark.name == "parametrize":
            is_one = isinstance(mark.args[0], str) and "," not in mark.args[0]
            for row in mark.args[1]:
                values = (row,) if is_one else tuple(row)
                ids = (getattr(value, "__name__", str(value)) for value in values)
                if wanted == "-".join(ids):  # as pytest forms it
                    return found_by, values
    raise LookupError(f"{bug.found_by} has no such parameter")


def _look(bug: Bug, told: int, plan: Mapping[str, int]) -> Outcome:
    """In the child: run the scenario, or call the test, that has to find it."""
    plant(bug)
    explorer = importlib.import_module("tests.segments.crash.explorer")
    scenarios = importlib.import_module("tests.segments.crash.scenarios").SCENARIOS
    with explorer.silence():
        try:
            if ":" in bug.found_by:
                found_by, parameters = called(bug)
                found_by(*parameters)
            else:
                scenarios[bug.found_by](explorer.Plan(**plan))
        except (AssertionError, explorer.Found, pytest.fail.Exception) as exc:
            os.write(told, str(exc).encode()[:SAID_BYTES_MAX])
            return Outcome.FOUND
        except ExceptionGroup as exc:  # Hypothesis, of several examples
            if exc.subgroup(AssertionError) is None:
                raise
            os.write(told, str(exc).encode()[:SAID_BYTES_MAX])
            return Outcome.FOUND
    return Outcome.MISSED


def run(
    bug: Bug, seconds_max: float, plan: Mapping[str, int] = MappingProxyType({})
) -> tuple[Outcome, str, float]:
    """What becomes of it, what the harness said, and how long it took.

    seconds_max: of processor time, so that a busy machine makes nobody LATE.
    plan: how far the explorer goes (explorer.Plan); by default every disk is recovered.
    """

    def look(told: int) -> Outcome:
        limit_s = max(1, round(seconds_max))
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
        return _look(bug, told, plan)

    return in_child(look, STUCK * seconds_max)


def in_child(look: Callable[[int], Outcome], seconds_max: float) -> tuple[Outcome, str, float]:
    """Fork a process that calls `look` and ends: its outcome, what it said, how long it took.

    look: gets a descriptor to say something on; what it raises is BROKEN.
    seconds_max: by the clock.  Who has used no processor for `IDLE_S` waits for ever: LATE as well.
    """
    begun_s = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        outcome = Outcome.BROKEN
        try:
            os.close(reading)
            outcome = look(writing)
        except BaseException as exc:
            os.write(writing, f"{type(exc).__name__}: {exc}".encode()[:SAID_BYTES_MAX])
        finally:
            os._exit(outcome)
    os.close(writing)
    outcome = Outcome.LATE
    used, used_s = 0, begun_s
    while time.monotonic() - begun_s < seconds_max:
        if (ticks := _ticks_of(child)) != used:
            used, used_s = ticks, time.monotonic()
        if time.monotonic() - used_s > IDLE_S:
            _end(child)
            break
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            outcome = Outcome(code) if code >= 0 else Outcome.LATE  # a limit of its own
            break
        time.sleep(0.01)
    else:
        _end(child)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    return outcome, said, time.monotonic() - begun_s


def _ticks_of(child: int) -> int:
    """What a process has used of the processor, in ticks of the system."""
    stat = Path(f"/proc/{child}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
