"""The exit codes are a promise to scripts."""

from pathlib import Path

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
