"""The exit codes are a promise to scripts."""

from pathlib import Path

import click
from click.testing import CliRunner

from segbroker.cli.command import Group
from segbroker.cli.exit_codes import MEANINGS, ExitCode

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
        "INTERRUPTED": 130,
        "TERMINATED": 143,
    }


def test_ctrl_c_before_a_subcommand_has_begun_is_no_bug() -> None:
    @click.command()  # not our Command, which sees to its own
    def early() -> None:
        raise KeyboardInterrupt

    run = CliRunner().invoke(Group(commands={"early": early}), ["early"])
    assert run.exit_code == ExitCode.INTERRUPTED
