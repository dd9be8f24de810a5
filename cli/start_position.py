"""Where `consume -o` starts reading, the same rule for every partition; as the client takes it.

start          the first record that is kept               "start"    (also: beginning, earliest)
end            only what comes from now on                 "end"      (also: latest, -0)
1234           offset 1234                                 1234
-5             the last 5 of each partition                -5
@1700000000000 the first record of that time or later      datetime
@2024-05-01T12:00:00+02:00   the same, ISO 8601; without a zone it is local time
"""

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

Place: TypeAlias = str | int | datetime

NAMES = {
    "start": "start",
    "beginning": "start",
    "earliest": "start",
    "end": "end",
    "latest": "end",
    "-0": "end",
}
OFFSET_MAX = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_start(text: str) -> Place:
    """The position meant by the argument of -o.

    Raises:
        ValueError: it is none of those in the module's table.
    """
    if text in NAMES:
        return NAMES[text]
    if text.startswith("@"):
        return _time(text[1:])
    digits = text.removeprefix("-")
    if is_number(digits):
        return int(text)
    raise ValueError(f"{text!r} is not start, end, OFFSET, -N or @TIME")


def is_number(text: str) -> bool:
    """Whether it is an offset in digits."""
    is_short = len(text) <= len(str(OFFSET_MAX))  # Python refuses very long ones
    return is_short and text.isascii() and text.isdigit() and int(text) <= OFFSET_MAX


def _time(text: str) -> datetime:
    try:
        if is_number(text):
            return _EPOCH + timedelta(milliseconds=int(text))
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise ValueError(
            f"@{text} is neither @ and milliseconds since 1970 nor @ and a time such as"
            " @2024-05-01T12:00:00+02:00"
        ) from None
