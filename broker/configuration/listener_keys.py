"""Settings of one listener: what it has of its own, where the others go by the plain setting.

    listener_name_<name>_<key>      in the file; as a flag and a variable like any other key
    listener.name.<name>.<kafka>    to Kafka's tools

    <name> is the listener's in small letters; in our spelling, what is no letter and no figure is _

A key may be had by single listeners when its field says so (`listener` in config_key.py):

| listener | on which listeners            | what holds where it is not set              |
|----------|-------------------------------|---------------------------------------------|
| tls      | SSL, SASL_SSL                 | the plain setting                           |
| login    | SASL_PLAINTEXT, SASL_SSL      | the plain setting                           |
| any      | all                           | the plain setting; of limits `unless`:      |
|          |                               | the plain one is for all listeners together |

A setting that would mean nothing on its listener is refused: whoever gives a certificate to a
listener without TLS believes that it has one.
"""

import re
from collections.abc import Iterable
from dataclasses import Field, field
from typing import Any, Final

from ..address import InvalidConfig
from .listener_spec import ListenerSpec

PREFIX: Final = "listener_name_"
KAFKA_PREFIX: Final = "listener.name."
_MISSING: Final = {"tls": "TLS", "login": "logins"}


def own_name(listener: str, key: str) -> str:
    """What a key is called that one listener has of its own."""
    return f"{PREFIX}{_spelled(listener)}_{key}"


def keys_of_listeners(
    specs: Iterable[ListenerSpec], keys: Iterable[Field[Any]]
) -> dict[str, Field[Any]]:
    """The keys that listeners may have of their own, by their whole names.

    keys: the plain ones.  Those of a listener have `of`, the name of the plain one, and its name.

    Raises:
        InvalidConfig: the names of two listeners are spelled alike in settings.
    """
    bases = [key for key in keys if key.metadata["listener"]]
    spelled: dict[str, str] = {}
    found: dict[str, Field[Any]] = {}
    for spec in specs:
        other = spelled.setdefault(_spelled(spec.name), spec.name)
        if other != spec.name:
            raise InvalidConfig(
                f"listeners: {other!r} and {spec.name!r} would be the same in settings "
                f"({own_name(other, '...')})"
            )
        for base in bases:
            key = _of(spec, base)
            found[key.name] = key
    return found


def begins_as_of_listener(name: str) -> bool:
    """Whether a name is meant to be of one listener, in our spelling or Kafka's."""
    return _spelled(name).startswith(PREFIX)


def check_fits(key: Field[Any], spec: ListenerSpec) -> None:
    """Raise InvalidConfig for a key that means nothing on its listener."""
    wanted = key.metadata["listener"]
    if (wanted == "tls" and not spec.protocol.is_tls) or (
        wanted == "login" and not spec.protocol.is_sasl
    ):
        raise InvalidConfig(
            f"{key.name}: listener {spec.name} is {spec.protocol.value}, "
            f"which is without {_MISSING[wanted]}"
        )


def why_unknown(
    name: str, specs: Iterable[ListenerSpec], keys: Iterable[Field[Any]]
) -> InvalidConfig:
    """What is wrong with a name that begins like that of a listener's key, and is none."""
    names = [spec.name for spec in specs]
    bases = {
        key.name: key.metadata["kafka"]
        for key in keys
        if key.metadata["listener"] and not key.metadata["of"]
    }
    given = _spelled(name)
    for listener in names:
        if given.startswith(own_name(listener, "")):
            rest = given.removeprefix(own_name(listener, ""))
            meant = [key for key, kafka in bases.items() if rest in (key, _spelled(kafka or ""))]
            if meant:
                told = f": it is {own_name(listener, meant[0])} here"
            else:
                told = f": a listener may have of its own {', '.join(bases)}"
            return InvalidConfig(f"unknown key {name!r}{told}")
    return InvalidConfig(f"unknown key {name!r}: no such listener, there is {', '.join(names)}")


def _spelled(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "_", name.lower())


def _of(spec: ListenerSpec, base: Field[Any]) -> Field[Any]:
    """The same key for one listener."""
    kafka, unless = base.metadata["kafka"], base.metadata["unless"]
    told = {
        "kafka": kafka and f"{KAFKA_PREFIX}{spec.name.lower()}.{kafka}",
        "doc": f"{base.name} of listener {spec.name} alone.",
        "of": base.name,
        "of_listener": spec.name,
    }
    default = base.default if unless is None else unless
    made: Any = field(default=default, metadata={**base.metadata, **told})
    made.name = own_name(spec.name, base.name)
    key: Field[Any] = made
    return key
