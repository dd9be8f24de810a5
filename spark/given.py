"""Options as a user gave them: found in any case, read as numbers, truth values and JSON.

Spark hands options over as strings, their names in any case.  A wrong value is refused with the
option's name, the value and what it may be; an unknown name is refused too, because a misspelt
option that is silently ignored reads or writes the wrong data.

Invariant: nothing here knows what an option means.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Literal

from segbroker.client.security import SECRET_PROPERTIES

from .errors import OptionError

log = logging.getLogger("segbroker.spark")

PREFIXES = ("kafka.", "segbroker.")
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

# A name as the user wrote it, and its value; None where it was not given.
NamedValue = tuple[str, str | None]


class Given:
    """The options as given, by their lower-case names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.values = {name.lower(): value for name, value in options.items()}

    def own(self, name: str) -> NamedValue:
        return name, self.values.get(name.lower())

    def client(self, name: str) -> NamedValue:
        """A client option under either prefix; both only if they agree."""
        found = {
            prefix + name: self.values[prefix + name]
            for prefix in PREFIXES
            if prefix + name in self.values
        }
        if len(set(found.values())) > 1:
            shown = {k: "…" if name in SECRET_PROPERTIES else repr(v) for k, v in found.items()}
            both = " and ".join(f"{key}={value}" for key, value in shown.items())
            raise OptionError(f"{both} are two names of one option with two values; give one")
        for key, value in found.items():
            return key, value
        return PREFIXES[0] + name, None


def unknown(name: str, known: Iterable[str]) -> OptionError:
    """What to say of an option that does not exist; `known` are the names that do."""
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name, by_lower, n=1)
    hint = f"; did you mean {by_lower[near[0]]}?" if near else ""
    return OptionError(f"there is no option {name!r}{hint}")


def without_effect(name: str) -> None:
    log.warning("the option %s has no effect here", name)


def boolean(given: NamedValue, *, default: bool) -> bool:
    name, value = given
    if value is None:
        return default
    if value.strip().lower() not in ("true", "false"):
        raise OptionError(f"{name}={value!r} is not 'true' or 'false'")
    return value.strip().lower() == "true"


def number(given: NamedValue, *, least: Literal[0, 1], most: int = INT64_MAX) -> int | None:
    """A whole number; None where it was not given.  `most`: INT32_MAX of what Kafka's clients keep
    in 32 bits."""
    name, value = given
    if value is None:
        return None
    text = value.strip()
    if not text.isascii() or not text.isdigit() or not least <= _whole(text):
        raise OptionError(f"{name}={value!r} is not a whole number >= {least}")
    if _whole(text) > most:
        raise OptionError(f"{name}={value!r} is more than {most}")
    return _whole(text)


def _whole(digits: str) -> int:
    """The number; of one with more digits than INT64_MAX has another one above it: Python refuses
    to read more than 4,300."""
    return int(digits.lstrip("0")[: len(str(INT64_MAX)) + 1] or "0")


# What a word after a number of time stands for, in ms; Spark's own way to write a duration.
_UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "seconds": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
}


def duration_ms(given: NamedValue, *, default_ms: int) -> int:
    """A duration as Spark writes it: `15m`, `30 s`, `500ms`; a bare number is milliseconds."""
    name, value = given
    if value is None:
        return default_ms
    text = value.strip().lower()
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    unit = text[len(digits) :].strip() or "ms"
    if not digits or unit not in _UNITS_MS:
        raise OptionError(f"{name}={value!r} is not a duration like 15m, 30s or 500ms")
    return _whole(digits) * _UNITS_MS[unit]


def json_object(name: str, value: str, example: str) -> dict[str, object]:
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise OptionError(f"{name}={value!r} is not {example}")
    return parsed
