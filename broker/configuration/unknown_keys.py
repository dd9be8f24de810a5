"""What somebody may have meant who set a key that there is not.

    frame_byte_max         a slip of the finger: the nearest key
    num.partitions = 4     Kafka's name (in TOML a table): ours is told
    retention.ms = 4       a setting of topics, not of the broker
    [broker]               a table: keys stand at the top level
    listener.name.x.ssl... Kafka's way of saying what one listener has: ours is told

Kubernetes gives each container variables about every service of its namespace, as Docker's links
did: beside a service called segbroker (or segbroker-external) there is
SEGBROKER_PORT=tcp://10.0.0.1:9092.  These are not ours.  It sets all of them together, so without
that one, of that form, SEGBROKER_SERVICE_HOST is somebody's mistake.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from segbroker.segments.settings.topic_config import KEYS as TOPIC_KEYS

_TOPIC_SETTINGS: Final = frozenset(key.name for key in TOPIC_KEYS)
_SERVICE_PORT: Final = re.compile(r"(SEGBROKER(?:_[A-Z0-9_]+)?)_PORT")
_SERVICE_ADDRESS: Final = re.compile(r"(tcp|udp|sctp)://")
_SERVICE_LINK: Final = re.compile(
    r"_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?"
)
# What Kafka's file has that is called quite otherwise here; topics' settings are in log.*, too.
_KAFKAS_OTHERS: Final = {
    "log.dirs": "data",
}
# What it has in other units as well: our key, Kafka's name of it, and its milliseconds in one.
_IN_OTHER_UNITS: Final = {
    "log.retention.hours": ("log_retention_ms", "log.retention.ms", 3_600_000),
    "log.retention.minutes": ("log_retention_ms", "log.retention.ms", 60_000),
    "log.roll.hours": ("log_roll_ms", "log.roll.ms", 3_600_000),
}
# How like a key must be to one of ours before that one is advised.
_NEAR: Final = 0.8


def service_links(environment: Mapping[str, str]) -> set[str]:
    """The variables that Kubernetes has set for services whose names begin with segbroker."""
    services = [
        found[1]
        for name, value in environment.items()
        if (found := _SERVICE_PORT.fullmatch(name)) and _SERVICE_ADDRESS.match(value)
    ]
    return {
        name
        for name in environment
        for service in services
        if name.startswith(service) and _SERVICE_LINK.fullmatch(name, len(service))
    }


def what_was_meant(name: str, value: object, keys: Mapping[str, str | None]) -> str:
    """The end of the sentence about an unknown key; may be empty.

    Args:
        name: of the key.
        value: what it was set to; a dict of a TOML table.
        keys: our keys, each with Kafka's name of it or None.
    """
    ours = _KAFKAS_OTHERS | {kafka: key for key, kafka in keys.items() if kafka is not None}
    for given in _dotted(name, value):
        if given.startswith("listener.name."):
            return ": a setting of one listener is listener_name_<name>_<key> here"
        dotted = given.replace("_", ".")  # as in the environment, and in TOML without quotes
        if dotted in _IN_OTHER_UNITS:
            return _in_milliseconds(dotted, _innermost(value))
        if dotted in ours:
            return f": what Kafka calls {dotted} is {ours[dotted]} here"
        setting = dotted.removeprefix("log.")
        if setting in _TOPIC_SETTINGS:
            return f": {setting} is set for each topic: segbroker topic alter NAME -c {setting}=..."
    if isinstance(value, dict):
        return ": keys stand at the top level, not in a table"
    near = get_close_matches(name, keys, n=1, cutoff=_NEAR)
    return f"; did you mean {near[0]}?" if near else ""


def _in_milliseconds(kafkas: str, value: object) -> str:
    """What to write instead of a number of hours or minutes."""
    ours, theirs, unit_ms = _IN_OTHER_UNITS[kafkas]
    text = f": what Kafka calls {kafkas} is {ours} here, Kafka's {theirs}, in milliseconds"
    try:
        count = int(str(value))
    except ValueError:
        return text
    return f"{text}: {count * unit_ms if count > 0 else count}"


def _innermost(value: object) -> object:
    """What `_dotted` names: of a = {b = {c = 1}} the 1."""
    while isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return value


def _dotted(name: str, value: object) -> list[str]:
    """The names as Kafka's file has them: what is a.b = 1 there is a table a in TOML."""
    if not isinstance(value, dict):
        return [name]
    return [f"{name}.{rest}" for key, inner in value.items() for rest in _dotted(key, inner)]
