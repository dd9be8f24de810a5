"""What a suite's run means against its allow list.

A list has one test per line; text behind a # with a space before it is a remark.  Nothing is ever
taken off it: a test that passed once and fails now is a regression of ours, or of the suite's
pinned version.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

HERE = Path(__file__).parent


class Outcome(Enum):
    """How one test of a suite ended."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"
    LATE = "took too long"


@dataclass
class Verdict:
    """A run against its allow list.

    Attributes:
        fell: listed, but not passed.
        rose: passed, but not listed.
        other: neither passed nor listed, with how they ended.
        passed_count: how many passed.
    """

    fell: dict[str, Outcome] = field(default_factory=dict)
    rose: list[str] = field(default_factory=list)
    other: dict[str, Outcome] = field(default_factory=dict)
    passed_count: int = 0

    @property
    def is_good(self) -> bool:
        """Whether every listed test that ran passed."""
        return not self.fell


def judge(outcomes: Mapping[str, Outcome], listed: Iterable[str]) -> Verdict:
    """Compare what happened with what is listed; tests that did not run are not looked at."""
    allowed = frozenset(listed)
    verdict = Verdict()
    for test, outcome in outcomes.items():
        if outcome is Outcome.PASSED:
            verdict.passed_count += 1
            if test not in allowed:
                verdict.rose.append(test)
        elif test in allowed:
            verdict.fell[test] = outcome
        else:
            verdict.other[test] = outcome
    return verdict


def allow_list(suite: str) -> list[str]:
    """The tests listed for a suite, in the file's order."""
    lines = (HERE / f"{suite}.allowed").read_text().splitlines()
    return [name for line in lines if (name := f" {line}".partition(" #")[0].strip())]


def describe(suite: str, verdict: Verdict) -> str:
    """The lines for a person."""
    lines = [f"{suite}: {verdict.passed_count} passed"]
    lines += [f"  FELL {test}: {how.value}" for test, how in verdict.fell.items()]
    lines += [f"  new  {test}: passes, add it to {suite}.allowed" for test in verdict.rose]
    lines += [f"  -    {test}: {how.value}, not listed" for test, how in verdict.other.items()]
    return "\n".join(lines)
