"""Steps of a scenario, and the lines by which it reports them.

A scenario is started as `python -m tests.support.clients.<name> BOOTSTRAP PREFIX OURS`
and prints one JSON object per line on stdout, whatever language it is written in:

    {"step": "seeks_to_an_offset", "outcome": "begun"}
    {"step": "seeks_to_an_offset", "outcome": "ok", "seconds": 0.2}
    {"step": "finds_an_offset_by_time", "outcome": "failed", "detail": "Traceback ..."}

A step fails by an exception.  A step that printed only `begun` hung: the test then says so.
Topics are named PREFIX-<something>, so that runs against one broker do not meet; two names are
agreed with the test: `OURS-<codec>` was filled by segbroker's client beforehand, and
`PREFIX-theirs-<codec>` is read by it afterwards.
"""

import json
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

STEP_TIMEOUT_S = 240
"""Less than the 300 s of the test around it, so that it is said which step hung.  Some steps start
a program for each request: on a busy machine these starts alone took two minutes."""


@dataclass(frozen=True)
class Scene:
    """Where a step plays.

    Attributes:
        bootstrap: `host:port` of the broker.
        prefix: first part of the names of its own topics.
        ours: first part of the names of the topics that segbroker's client filled.
    """

    bootstrap: str
    prefix: str
    ours: str

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"


@dataclass(frozen=True)
class Step:
    """One named step, and the releases of the client that can do it.

    Attributes:
        run: does it; raises when the broker or the client does not do as it should.
        since: first release that has the feature.
        but_not: releases in which the feature is broken whatever the broker answers.
    """

    run: Callable[[Scene], None]
    since: tuple[int, ...]
    but_not: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        return self.run.__name__


class Steps:
    """The steps of one client, in order."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def step(
        self, *, since: tuple[int, ...] = (0,), but_not: tuple[tuple[int, ...], ...] = ()
    ) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
        def add(run: Callable[[Scene], None]) -> Callable[[Scene], None]:
            self.steps.append(Step(run, since, but_not))
            return run

        return add

    def of_release(self, version: str) -> list[Step]:
        """The steps that this release of the client has."""
        release = numbers(version)
        return [s for s in self.steps if release >= s.since and release not in s.but_not]

    def main(self, version: str) -> None:
        """Run all steps of the installed release; to be called by the scenario's module."""
        scene = Scene(*sys.argv[1:4])
        wanted = sys.argv[4:]
        signal.signal(signal.SIGALRM, _too_late)
        for step in self.of_release(version):
            if wanted and step.name not in wanted:
                continue
            _report(step.name, "begun")
            begun_s = time.monotonic()
            signal.alarm(STEP_TIMEOUT_S)
            try:
                step.run(scene)
            except Exception:
                _report(step.name, "failed", detail=traceback.format_exc())
            else:
                _report(step.name, "ok", seconds=round(time.monotonic() - begun_s, 2))
            finally:
                signal.alarm(0)


def numbers(version: str) -> tuple[int, ...]:
    """(2, 0, 2) of "2.0.2"; what follows the numbers is not looked at."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _report(step: str, outcome: str, **more: object) -> None:
    print(json.dumps({"step": step, "outcome": outcome, **more}), flush=True)


def _too_late(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"the step took more than {STEP_TIMEOUT_S} s")
