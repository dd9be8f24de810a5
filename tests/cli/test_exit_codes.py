"""The exit codes are a promise to scripts."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from segbroker.cli.command import Command, Group
from segbroker.cli.exit_codes import MEANINGS, ExitCode
from segbroker.segments.errors import PartitionReadOnly

from ..support.daemon import Daemon
from .conftest import COMMAND, TIMEOUT_S, environment

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_has_the_table_of_the_code() -> None:
    rows = [f"| {int(code)} | {text} |" for code, text in MEANINGS.items()]
    page = PAGE.read_text()
    assert "\n".join(rows) in page


def test_a_released_code_keeps_its_number() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "OK": 0,
        "BUG": 1,
        "USAGE": 2,
        "CONFIG": 3,
        "UNREACHABLE": 4,
        "NOT_FOUND": 5,
        "REFUSED": 6,
        "UNDELIVERED": 7,
        "DAMAGED": 8,
        "SYSTEM": 9,
        "LOST": 10,
        "ATTENTION": 11,
        "INTERRUPTED": 130,
        "TERMINATED": 143,
    }


def test_ctrl_c_before_a_subcommand_has_begun_is_no_bug() -> None:
    @click.command()  # not our Command, which sees to its own
    def early() -> None:
        raise KeyboardInterrupt

    run = CliRunner().invoke(Group(commands={"early": early}), ["early"])
    assert run.exit_code == ExitCode.INTERRUPTED


INTERRUPTED_EARLY = """
import sys
from importlib.metadata import entry_points

class CtrlC:
    def find_spec(self, name, path, target=None):
        if name == "segbroker.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
(script,) = entry_points(group="console_scripts", name="segbroker")
script.load()()
"""


def test_ctrl_c_while_the_command_is_imported_is_no_bug() -> None:
    program = [sys.executable, "-c", INTERRUPTED_EARLY]
    run = subprocess.run(program, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert (run.returncode, run.stderr) == (ExitCode.INTERRUPTED, b"")


def _ending_with(error: Exception) -> click.Command:
    def end() -> None:
        raise error

    return Command("end", callback=end)


@pytest.mark.parametrize(
    ("words", "code"), [(["topic", "describe", "no-such"], 5), (["produce", "no good"], 7)]
)
def test_the_exit_code_is_the_same_where_nobody_reads_the_errors(
    daemon: Daemon, words: list[str], code: int
) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `2>&1 | head -0` does
    with os.fdopen(writing, "wb") as errors:
        run = subprocess.run(
            [*COMMAND, *words, "-b", daemon.address],
            input=b"line\n",
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(),
            timeout=TIMEOUT_S,
            check=False,
        )
    assert (run.returncode, run.stdout) == (code, b"")


def test_several_partitions_that_could_not_be_closed_are_one_sentence() -> None:
    reads_only: list[Exception] = [PartitionReadOnly("t", number, "EIO") for number in range(7)]
    group = ExceptionGroup("partitions that could not be closed", reads_only)
    run = CliRunner().invoke(_ending_with(ExceptionGroup("of a nursery", [group])), [])
    assert run.exit_code == ExitCode.SYSTEM
    assert run.stderr.startswith(
        "Error: partitions that could not be closed: partition 0 of topic 't' is read-only: EIO; "
    )
    assert run.stderr.endswith("partition 4 of topic 't' is read-only: EIO; and 2 more\n")


def test_a_bug_among_errors_keeps_its_traceback() -> None:
    group = ExceptionGroup("two", [PartitionReadOnly("t", 0, "EIO"), ValueError("a bug")])
    run = CliRunner().invoke(_ending_with(group), [])
    assert run.exception is group
