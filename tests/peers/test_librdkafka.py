"""How a test of librdkafka ended, by the summary of its run."""

import pytest

from .librdkafka import ended
from .verdicts import Outcome

NAME = "0045_subscribe_update"


def summary(state: str, time: str) -> str:
    """As librdkafka prints it, with its colours; the names of others begin as this one."""
    return (
        f"|\x1b[32m <MAIN>                         |     PASSED |   0.424s \x1b[0m|\n"
        f"|\x1b[32m {NAME}_mock     |     PASSED |   3.000s \x1b[0m|\n"
        f"|\x1b[32m {NAME}          | {state:>10} | {time:>8} \x1b[0m|\n"
    )


@pytest.mark.parametrize(
    ("state", "time", "code", "outcome"),
    [
        ("PASSED", "4.519s", 0, Outcome.PASSED),
        ("PASSED", "4.519s", 1, Outcome.FAILED),
        ("SKIPPED", "0.000s", 0, Outcome.SKIPPED),
        ("FAILED", "0.000s", 1, Outcome.FAILED),
    ],
)
def test_the_row_of_a_test_says_how_it_ended(
    state: str, time: str, code: int, outcome: Outcome
) -> None:
    assert ended(NAME, summary(state, time), code) is outcome


def test_a_test_that_did_nothing_has_not_passed() -> None:
    """The quick mode leaves out its parts, and it passes."""
    assert ended(NAME, summary("PASSED", "0.000s"), 0) is Outcome.SKIPPED


def test_a_run_without_a_summary_has_failed() -> None:
    assert ended(NAME, "Segmentation fault", 139) is Outcome.FAILED
