"""What fails once among all tests is run again alone and named; what is wrong stays a failure."""

from pathlib import Path

import pytest

from .again import main

# `attempts` counts how often the test ran, over the processes of all runs.
COUNTED = """
from pathlib import Path

def attempt():
    log = Path(__file__).with_name("attempts")
    with log.open("a") as file:
        file.write(".")
    return log.stat().st_size

def test_right():
    pass
"""
FAILS_FIRST = COUNTED + "\ndef test_first():\n    assert attempt() > 1\n"
FAILS_TWICE = COUNTED + "\ndef test_first():\n    assert attempt() not in (1, 3)\n"
FAILS = COUNTED + "\ndef test_first():\n    assert not attempt()\n"
BROKEN = "import no_such_module_anywhere\n"


@pytest.fixture(autouse=True)
def _without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the dozen runs none needs one, and to import them takes longer than the run."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def attempts(root: Path) -> int:
    return (root / "attempts").stat().st_size


def run(root: Path, text: str, *arguments: str) -> int:
    (root / "pytest.ini").write_text("[pytest]\n")
    (root / "test_it.py").write_text(text)
    return main([*arguments, "-q"], root)


def test_what_fails_once_is_named_and_is_no_failure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, FAILS_FIRST, "--tests", "1") == 0
    assert attempts(tmp_path) == 3
    out, err = capfd.readouterr()
    assert "FLAKY test_it.py::test_first" in err
    assert "1 failed, 1 passed" in out  # and what it said then


def test_what_fails_in_one_of_the_later_runs_is_a_failure(tmp_path: Path) -> None:
    assert run(tmp_path, FAILS_TWICE, "--tests", "1") == 1


def test_what_fails_each_time_is_a_failure(tmp_path: Path) -> None:
    assert run(tmp_path, FAILS, "--tests", "1") == 1
    assert attempts(tmp_path) == 2


@pytest.mark.parametrize("arguments", [(), ("--tests", "0")], ids=["default", "none"])
def test_nothing_is_run_again_unasked(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert run(tmp_path, FAILS_FIRST, *arguments) == 1
    assert attempts(tmp_path) == 1


def test_where_more_fail_than_may_be_run_again_nothing_is(tmp_path: Path) -> None:
    more = FAILS_FIRST + "\ndef test_second():\n    assert attempt() > 2\n"
    assert run(tmp_path, more, "--tests", "1") == 1
    assert attempts(tmp_path) == 2


def test_a_run_that_comes_to_no_end_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(FAILS_FIRST)
    assert run(tmp_path, BROKEN, "--tests", "9") == pytest.ExitCode.INTERRUPTED


def test_failures_of_an_earlier_run_are_not_this_ones(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text("def test_of_before():\n    assert False\n")
    assert run(tmp_path, FAILS_FIRST) == 1
    (tmp_path / "test_other.py").unlink()
    (tmp_path / "attempts").unlink()
    assert run(tmp_path, FAILS_FIRST, "--tests", "1") == 0
