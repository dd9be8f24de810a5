"""Numbers as people write them: "64 MiB", "7 d"; settings are stored and told without a unit.

A size is in bytes, a time in milliseconds.  Units are binary ones (KiB, MiB, GiB), for "MB" means
two things.
"""

from collections.abc import Mapping
from typing import Final

SIZES: Final[Mapping[str, int]] = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "B": 1}
TIMES: Final[Mapping[str, int]] = {
    # "ms" before "s", which it ends with.
    "ms": 1,
    "min": 60_000,
    "s": 1_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def units_of(name: str) -> Mapping[str, int]:
    """The units of a setting, by its name: of retention.ms times, of frame_bytes_max sizes."""
    words = name.replace("_", ".").split(".")
    if "bytes" in words:
        return SIZES
    return TIMES if words[-1] == "ms" else {}


def split_unit(text: str, units: Mapping[str, int]) -> tuple[str, int]:
    """The number, as text, and its unit of "64 MiB" or "64MiB"; 1 where there is none."""
    text = text.strip()
    for unit, size in units.items():
        if text.endswith(unit):
            return text.removesuffix(unit).strip(), size
    return text, 1


def whole_with_unit(text: str, units: Mapping[str, int]) -> int:
    """A whole number of some unit.  Raises ValueError."""
    number, size = split_unit(text, units)
    return int(number) * size


def expected(units: Mapping[str, int]) -> str:
    """What may be written, for an error; "" where there are no units."""
    if not units:
        return ""
    what = "bytes" if units is SIZES else "milliseconds"
    return f" (of {what}, or with a unit: {', '.join(units)})"
