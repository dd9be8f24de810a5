"""A key of the configuration: its default, its meaning, its bounds, its name in Kafka.

A key is a field of a dataclass whose metadata says all that docs/configuration.md, DescribeConfigs,
`segbroker serve --help` and the errors tell.  Text becomes a value here and nowhere else: sizes and
times may have a unit ("64 MiB", "10 s"), and what is out of bounds is an error that names key and
value.

`dynamic`: the key can be changed while the broker runs (settings.py); the others are read at start.
"""

from dataclasses import MISSING, Field, field
from typing import Any, Final, TypeAlias

from segbroker.segments.settings.units import expected, units_of, whole_with_unit

from ..address import InvalidConfig

Value: TypeAlias = str | int | bool

_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})
DAY_MS: Final = 24 * 60 * 60 * 1000


def key(
    default: Value,
    doc: str,
    *,
    least: int = 0,
    most: int = 2**31 - 1,
    choices: tuple[str, ...] = (),
    kafka: str | None = None,
    secret: bool = False,
    dynamic: bool = False,
    topic: str = "",
    listener: str = "",
    unless: Value | None = None,
) -> Any:  # noqa: ANN401 - dataclasses.field() is typed so as well
    """A field of the configuration. `kafka`: the name under which Kafka's tools know the key.

    secret: its value is told to nobody, neither on the wire nor by --show-config.
    dynamic: it can be changed while the broker runs.
    topic: the topic setting that it stands below, of every topic.
    listener: on which listeners one may have it of its own, see listener_keys.py; "": it may not.
    unless: what holds on a listener that has none of its own; None: the plain setting.
    """
    metadata = {
        "doc": doc,
        "least": least,
        "most": most,
        "choices": choices,
        "kafka": kafka,
        "secret": secret,
        "dynamic": dynamic,
        "topic": topic,
        "listener": listener,
        "unless": unless,
        # Of a key that one listener has of its own: that of which it is one, and the listener.
        "of": "",
        "of_listener": "",
    }
    return field(default=default, repr=not secret, metadata=metadata)


def parse_value(spec: Field[Any], value: object) -> Value:
    """A value as its key's type, checked against its bounds.

    Raises:
        InvalidConfig: naming the key, the value and what is allowed.
    """
    assert spec.default is not MISSING, f"{spec.name} has no default"
    if isinstance(spec.default, bool):
        return _boolean(spec.name, value)
    if isinstance(spec.default, int):
        return whole_number(spec.name, value, spec.metadata["least"], spec.metadata["most"])
    if isinstance(value, int | float) and _is_number(spec.default):
        value = text_of(value)  # as TOML writes a ratio
    if not isinstance(value, str):
        shown = "********" if spec.metadata["secret"] else repr(value)
        raise InvalidConfig(f"{spec.name} = {shown} is not text")
    choices = spec.metadata["choices"]
    if choices and value not in choices:
        raise InvalidConfig(f"{spec.name} = {value!r} is none of {', '.join(choices)}")
    return value


def whole_number(name: str, value: object, least: int, most: int) -> int:
    """A value as a whole number.  Raises InvalidConfig."""
    number = _number(name, value)
    if not least <= number <= most:
        raise InvalidConfig(f"{name} = {number} is outside [{least}, {most}]")
    return number


def text_of(value: object) -> str:
    """A value as it is written: `parse_value` of it is the value again."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_number(text: str) -> bool:
    """Whether the default of a key is one; its values are, too, and have their bounds elsewhere."""
    return text.replace(".", "", 1).isdecimal()


def _boolean(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise InvalidConfig(f"{name} = {value!r} is neither true nor false")


def _number(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    units = units_of(name)
    try:
        return whole_with_unit(str(value), units)
    except ValueError:
        problem = f"is not a whole number{expected(units)}"
        raise InvalidConfig(f"{name} = {value!r} {problem}") from None
