"""Which of franz-go's tests are run, and how each ended, from what Go prints."""

from pathlib import Path

import pytest

from . import franz_go, go_suite
from .verdicts import Outcome

SOURCE = """package kgo

func TestOfABroker(t *testing.T) {
\tt.Run("part", func(t *testing.T) {
\t\ttopic, cleanup := tmpTopicPartitions(t, 1)
\t})
}

func TestOfNoBroker(t *testing.T) {
\tnewRing(t)
}

func tmpTopicPartitions(tb testing.TB, partitions int) (string, func()) {
}
"""
OUTPUT = """=== RUN   TestOne
    --- PASS: TestOne/part (0.10s)
    --- SKIP: TestOne/other (0.00s)
--- PASS: TestOne (0.10s)
--- FAIL: TestTwo (3.00s)
panic: consumed too much
"""


def test_only_who_wants_a_broker_is_run(tmp_path: Path) -> None:
    (tmp_path / "some_test.go").write_text(SOURCE)
    assert franz_go.tests(tmp_path) == ["TestOfABroker"]


def test_who_has_not_said_how_it_ended_has_failed() -> None:
    assert go_suite.ends(["TestOne", "TestTwo", "TestThree"], OUTPUT) == {
        "TestOne": Outcome.PASSED,
        "TestOne/part": Outcome.PASSED,
        "TestOne/other": Outcome.SKIPPED,
        "TestTwo": Outcome.FAILED,
        "TestThree": Outcome.FAILED,
    }


def test_users_are_made_without_segbroker_in_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    go_suite.add_users(tmp_path / "data", {"alice": "a secret"})
    assert (tmp_path / "data" / "meta").is_dir()
