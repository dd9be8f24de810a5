"""What is tried again with more time, and what is not."""

import pytest
from pytest_timeout import PYTEST_FAILURE_MESSAGE

from .waiting import within_one_of

TIMES_MS = (1, 10, 100)


@pytest.mark.parametrize("why", [ValueError("too late"), pytest.fail.Exception("DID NOT RAISE")])
def test_a_check_that_lacked_time_gets_more(why: BaseException) -> None:
    tried: list[int] = []

    def check(time_ms: int) -> None:
        tried.append(time_ms)
        if time_ms < 100:
            raise why

    within_one_of(TIMES_MS, check)
    assert tried == [*TIMES_MS]


def test_a_check_that_waited_for_ever_is_not_tried_again() -> None:
    def check(time_ms: int) -> None:
        assert time_ms == 1, "it has failed before"
        pytest.fail(PYTEST_FAILURE_MESSAGE % 300)

    with pytest.raises(pytest.fail.Exception, match="pytest-timeout"):
        within_one_of(TIMES_MS, check)
