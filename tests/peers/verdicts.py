"""What a suite's run means against its lists.

    SUITE.allowed    tests that pass
    SUITE.in_part    tests that end well, with an assertion that our harness meets, not the broker

Those of the second list have to end well, too, and are never counted as passed.

A list has one test per line; text behind a # with a space before it is a remark.  A test that ended
well once and fails now is a regression of ours, or of the suite's pinned version: only what a
decision answers otherwise since then is taken off them (docs/peers.md names it).
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
    """A run against its lists.

    Attributes:
        fell: listed, but not passed.
        rose: passed, but not listed.
        other: neither passed nor listed, with how they ended.
        passed_count: how many passed, those in part not counted.
        in_part_count: how many ended well of those one of whose assertions the harness meets.
    """

    fell: dict[str, Outcome] = field(default_factory=dict)
    rose: list[str] = field(default_factory=list)
    other: dict[str, Outcome] = field(default_factory=dict)
    passed_count: int = 0
    in_part_count: int = 0

    @property
    def is_good(self) -> bool:
        """Whether every listed test that ran passed."""
        return not self.fell


def judge(
    outcomes: Mapping[str, Outcome], listed: Iterable[str], parts: Iterable[str] = ()
) -> Verdict:
    """Compare what happened with what is listed; tests that did not run are not looked at.

    Args:
        outcomes: test -> how it ended.
        listed: the tests that have to end well.
        parts: those of them that are not counted as passed.
    """
    allowed, in_part = frozenset(listed), frozenset(parts)
    verdict = Verdict()
    for test, outcome in outcomes.items():
        if outcome is Outcome.PASSED and test in in_part:
            verdict.in_part_count += 1
        elif outcome is Outcome.PASSED:
            verdict.passed_count += 1
            if test not in allowed:
                verdict.rose.append(test)
        elif test in allowed:
            verdict.fell[test] = outcome
        else:
            verdict.other[test] = outcome
    return verdict


def allow_list(suite: str) -> list[str]:
    """The tests of a suite that have to end well: of both lists, in their order."""
    return _names(HERE / f"{suite}.allowed") + part_list(suite)


def part_list(suite: str) -> list[str]:
    """Those of them one of whose assertions the harness meets; docs/peers.md says which."""
    path = HERE / f"{suite}.in_part"
    return _names(path) if path.exists() else []


def _names(path: Path) -> list[str]:
    lines = path.read_text().splitlines()
    return [name for line in lines if (name := f" {line}".partition(" #")[0].strip())]


def describe(suite: str, verdict: Verdict) -> str:
    """The lines for a person."""
    in_part = f", {verdict.in_part_count} in part" if verdict.in_part_count else ""
    lines = [f"{suite}: {verdict.passed_count} passed{in_part}"]
    lines += [f"  FELL {test}: {how.value}" for test, how in verdict.fell.items()]
    lines += [f"  new  {test}: passes, add it to {suite}.allowed" for test in verdict.rose]
    lines += [f"  -    {test}: {how.value}, not listed" for test, how in verdict.other.items()]
    return "\n".join(lines)
