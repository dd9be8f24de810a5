"""Where a share group begins in a partition that it has nothing of: share.auto.offset.reset.

| text | begins at |
|---|---|
| latest | the end |
| earliest | the beginning |
| by_duration:PT1H30M | the first record that is not older than this |

The duration is ISO 8601 with days as the largest unit, as Java's Duration reads it: parts may have
signs, the sum may not be below zero.
"""

import re
from typing import Final, Literal, TypeAlias

Reset: TypeAlias = Literal["earliest", "latest"] | int
"""An end of the partition, or an age, ms."""

_ENDS: Final[dict[str, Literal["earliest", "latest"]]] = {
    "earliest": "earliest",
    "latest": "latest",
}
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?"
    r"(T(?=[-+\d])(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?)(\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_SIZE_MAX: Final = 100
# What Java's Duration can hold, in seconds.
_SECONDS_MAX: Final = 2**63 - 1


def parse_reset(text: str) -> Reset:
    """What `text` says.

    Raises:
        ValueError: it is none of the three.
    """
    if text in _ENDS:
        return _ENDS[text]
    if text.startswith(_BY_DURATION):
        age_ms = _duration_ms(text.removeprefix(_BY_DURATION))
        if age_ms is not None:
            return age_ms
    raise ValueError("neither earliest, latest nor by_duration:PnDTnHnMn.nS")


def _duration_ms(text: str) -> int | None:
    """A duration in whole ms; None: it is none, or below zero."""
    found = _DURATION.fullmatch(text) if len(text) <= _SIZE_MAX else None
    if found is None or (found[2] is None and found[3] is None):
        return None
    days, hours, minutes = (int(part or 0) for part in found.group(2, 4, 5))
    seconds, rest_ns = int(found[7] or 0), int((found[8] or "").ljust(9, "0"))
    of_seconds_ns = seconds * 10**9 + rest_ns
    if found[6] == "-":
        of_seconds_ns = -of_seconds_ns
    total_ns = ((days * 24 + hours) * 60 + minutes) * 60 * 10**9 + of_seconds_ns
    if found[1] == "-":
        total_ns = -total_ns
    if not 0 <= total_ns <= _SECONDS_MAX * 10**9:
        return None
    return total_ns // 10**6
