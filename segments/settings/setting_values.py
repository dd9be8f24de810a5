"""Text of a topic setting, as a value: what topic_config.py and inert_settings.py parse with.

Each is a function of the name and the text, or makes one; what cannot be is InvalidConfig.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from ..errors import InvalidConfig

INT32_MAX: Final = 0x7FFF_FFFF
INT64_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF


def whole(low: int, high: int = INT64_MAX) -> Callable[[str, str], int]:
    """A whole number from `low` to `high`."""

    def parse(key: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            what = {"bytes": " of bytes", "ms": " of milliseconds"}.get(key.rpartition(".")[2], "")
            raise InvalidConfig(key, text, f"is not a whole number{what}") from None
        if not low <= value <= high:
            raise InvalidConfig(key, text, f"is outside [{low}, {high}]")
        return value

    return parse


def share(key: str, text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        raise InvalidConfig(key, text, "is not a number") from None
    if not 0 <= value <= 1:
        raise InvalidConfig(key, text, "is outside [0, 1]")
    return value


def one_of(choices: type[Enum]) -> Callable[[str, str], Enum]:
    """The value of one of the choices."""

    def parse(key: str, text: str) -> Enum:
        try:
            return choices(text)
        except ValueError:
            allowed = ", ".join(choice.value for choice in choices)
            raise InvalidConfig(key, text, f"is none of {allowed}") from None

    return parse
