"""The clock of an embedded broker."""

import time
from typing import cast

import pytest

from segbroker.testing.clock import Clock


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_clock_that_nobody_touched_shows_the_real_time() -> None:
    clock = Clock()
    before_ms = wall_ms()
    shown_ms = clock.now_ms()
    assert before_ms <= shown_ms <= wall_ms()


def test_a_frozen_clock_moves_only_by_what_it_is_advanced() -> None:
    clock = Clock()
    assert clock.freeze(1_700_000_000_000) == 1_700_000_000_000
    assert clock.now_ms() == 1_700_000_000_000
    assert clock.advance(250) == 1_700_000_000_250
    assert clock.now_ms() == 1_700_000_000_250


def test_freezing_again_forgets_what_was_advanced() -> None:
    clock = Clock()
    clock.freeze(1000)
    clock.advance(5)
    assert clock.freeze() == 1005
    assert clock.now_ms() == 1005
    assert clock.freeze(7) == 7


def test_a_running_clock_can_be_ahead_and_brought_back() -> None:
    clock = Clock()
    hour_ms = 3_600_000
    clock.advance(hour_ms)
    assert clock.now_ms() >= wall_ms() + hour_ms - 1000
    clock.resume()
    assert clock.now_ms() <= wall_ms()


def test_time_does_not_go_back_by_a_negative_advance() -> None:
    with pytest.raises(ValueError, match="-1 ms"):
        Clock().advance(-1)


@pytest.mark.parametrize("at", [1_700_000_000_000.5, "now", 1_700_000_000 * 1000.0])
def test_a_time_that_is_no_whole_number_is_refused_where_it_is_set(
    at: object,
) -> None:
    clock = Clock()
    for setting in (clock.freeze, clock.advance):
        with pytest.raises(TypeError, match="not a whole number of milliseconds"):
            setting(cast("int", at))
    assert isinstance(clock.now_ms(), int)


def test_no_time_is_set_that_no_record_can_have() -> None:
    clock = Clock()
    for at_ms in (-1, 1 << 63, 10**30):
        with pytest.raises(ValueError, match="cannot freeze at"):
            clock.freeze(at_ms)
    with pytest.raises(ValueError, match="cannot advance by"):
        clock.advance(1 << 63)
