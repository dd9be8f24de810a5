"""The clock of an embedded broker."""

import time

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
