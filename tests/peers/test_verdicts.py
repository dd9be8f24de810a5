"""What an allow list means for one run."""

import pytest

from .__main__ import SUITES
from .verdicts import Outcome, allow_list, describe, judge

PASSED, FAILED, SKIPPED, LATE = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED, Outcome.LATE


@pytest.mark.parametrize("how", [FAILED, SKIPPED, LATE])
def test_a_listed_test_that_does_not_pass_fails_the_run(how: Outcome) -> None:
    verdict = judge({"a": PASSED, "b": how}, ["a", "b"])
    assert not verdict.is_good
    assert verdict.fell == {"b": how}
    assert f"FELL b: {how.value}" in describe("suite", verdict)


def test_a_newly_passing_test_is_told_and_does_not_fail_the_run() -> None:
    verdict = judge({"a": PASSED, "b": PASSED}, ["a"])
    assert verdict.is_good
    assert verdict.rose == ["b"]
    assert "add it to suite.allowed" in describe("suite", verdict)


def test_a_test_of_which_the_harness_meets_an_assertion_is_not_counted_as_passed() -> None:
    verdict = judge({"a": PASSED, "b": PASSED}, ["a", "b"], ["b"])
    assert (verdict.passed_count, verdict.in_part_count, verdict.rose) == (1, 1, [])
    assert "suite: 1 passed, 1 in part" in describe("suite", verdict)
    assert not judge({"a": PASSED, "b": FAILED}, ["a", "b"], ["b"]).is_good


def test_a_test_that_is_not_listed_may_fail() -> None:
    verdict = judge({"a": PASSED, "b": FAILED, "c": SKIPPED}, ["a"])
    assert verdict.is_good
    assert verdict.other == {"b": FAILED, "c": SKIPPED}


def test_a_listed_test_that_was_not_asked_for_is_not_missed() -> None:
    assert judge({"a": PASSED}, ["a", "b"]).is_good


@pytest.mark.parametrize("suite", SUITES)
def test_the_lists_name_each_test_once(suite: str) -> None:
    listed = allow_list(suite)
    assert listed
    assert len(set(listed)) == len(listed)
