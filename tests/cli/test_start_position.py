"""What -o means."""

from datetime import UTC, datetime

import pytest

from segbroker.cli.start_position import parse_start

THEN = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", "start"),
        ("beginning", "start"),
        ("earliest", "start"),
        ("end", "end"),
        ("latest", "end"),
        ("0", 0),
        ("9223372036854775807", 2**63 - 1),
        ("-5", -5),
        ("-0", "end"),
        ("@1700000000000", THEN),
        ("@1700000000007", THEN.replace(microsecond=7000)),
        ("@2023-11-14T22:13:20Z", THEN),
        ("@2023-11-14T23:13:20.250+01:00", THEN.replace(microsecond=250_000)),
    ],
)
def test_a_start_position_is_understood(text: str, expected: str | int | datetime) -> None:
    assert parse_start(text) == expected


def test_a_time_without_a_zone_is_local() -> None:
    local = datetime(2023, 11, 14, 12).astimezone()
    assert parse_start("@2023-11-14T12:00") == local


@pytest.mark.parametrize(
    "text",
    ["", "-", "--5", "1e3", "0x1", "first", "@", "@yesterday", "9223372036854775808", "\u0661"],
)
def test_what_is_no_start_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not start|is neither"):
        parse_start(text)


def test_a_time_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(ValueError, match="is neither"):
        parse_start("@9223372036854775807")
