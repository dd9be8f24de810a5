"""The test's side of a scenario: start it once, keep what it reported, ask step by step.

The other side is tests/support/clients/steps.py, which also says what the lines mean.
"""

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .clients.steps import Steps
from .releases import Release

ROOT = Path(__file__).parent.parent.parent
# Most need seconds; and a machine may be busy with much else.
SCENARIO_TIMEOUT_S = 600


def cases(steps: Steps, releases: Sequence[Release]) -> list[Any]:
    """(release, step) for every step that the release has."""
    return [
        pytest.param(release, step.name, id=f"{release.version}-{step.name}", marks=marks)
        for release, marks in _marked(releases)
        for step in steps.of_release(release.version)
    ]


def each(releases: Sequence[Release]) -> list[Any]:
    """Every release."""
    return [
        pytest.param(release, id=release.version, marks=marks)
        for release, marks in _marked(releases)
    ]


def _marked(
    releases: Sequence[Release],
) -> Iterator[tuple[Release, Sequence[pytest.MarkDecorator]]]:
    """Of releases, newest first: the first and the last run always, others with the matrix."""
    for release in releases:
        is_between = release not in (releases[0], releases[-1])
        yield release, [pytest.mark.matrix] if is_between else []


@dataclass
class Report:
    """What one scenario did.

    Attributes:
        prefix: first part of the names of its topics.
        outcomes: step -> "begun", "ok" or "failed".
        details: step -> what went wrong.
        errors: the end of its standard error.
    """

    prefix: str
    outcomes: dict[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    errors: str = ""

    def check(self, step: str) -> None:
        """Fail unless the step was done."""
        outcome = self.outcomes.get(step)
        assert outcome is not None, f"{step} was not begun; stderr ends:\n{self.errors}"
        assert outcome != "begun", f"{step} did not end; stderr ends:\n{self.errors}"
        assert outcome == "ok", f"{step} failed:\n{self.details[step]}"


def play(command: Sequence[str], prefix: str) -> Report:
    """Run a scenario to its end, or for SCENARIO_TIMEOUT_S; what it did until then counts."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    too_late = threading.Timer(SCENARIO_TIMEOUT_S, process.kill)
    too_late.start()
    try:
        output, errors = process.communicate()
    finally:
        too_late.cancel()
        too_late.join()
    report = Report(prefix, errors=errors[-3000:])
    for line in output.splitlines():
        if line.startswith("{"):
            row: dict[str, str] = json.loads(line)
            report.outcomes[row["step"]] = row["outcome"]
            report.details[row["step"]] = row.get("detail", "")
    return report
