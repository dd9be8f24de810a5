"""Random messages of any class and version, for the tests that compare codecs."""

from collections.abc import Iterator
from random import Random
from typing import cast
from uuid import UUID

from segbroker.protocol import (
    messages_admin,
    messages_consumer_groups,
    messages_core,
    messages_groups,
    messages_placement,
    messages_quotas,
    messages_security,
    messages_share_groups,
    messages_streams_groups,
    messages_transactions,
)
from segbroker.protocol.fields import Field
from segbroker.protocol.schema import Message

MODULES = (
    messages_core,
    messages_admin,
    messages_groups,
    messages_consumer_groups,
    messages_placement,
    messages_transactions,
    messages_security,
    messages_quotas,
    messages_share_groups,
    messages_streams_groups,
)
BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
TEXTS = ("", "t", "topic-1", "größe", "a" * 126, "b" * 127, "c" * 128, "日本", "d" * 20_000)


def _travels(cls: type[Message]) -> bool:
    return cls.message_versions[1] < 0x7FFF


def message_classes() -> Iterator[type[Message]]:
    """Every message that travels by itself, structs inside others not included."""
    for module in MODULES:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and _travels(value):
                yield value


def classes_and_versions() -> list[tuple[type[Message], int]]:
    return [
        (cls, version)
        for cls in message_classes()
        for version in range(cls.message_versions[0], cls.message_versions[1] + 1)
    ]


def random_message(cls: type[Message], version: int, random: Random) -> Message:
    """Fields that the version has not keep their defaults."""
    return cls(
        **{
            field.name: _value(field, version, random)
            for field in cls.fields()
            if field.is_in(version)
        }
    )


def _value(field: Field, version: int, random: Random) -> object:
    if field.is_nullable(version) and random.random() < 0.2:
        return None
    if field.tag is not None and random.random() < 0.3:
        return [] if field.is_array else field.default
    if field.is_array:
        return [_item(field, version, random) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    return _item(field, version, random)


def _item(field: Field, version: int, random: Random) -> object:
    if field.struct is not None:
        return random_message(cast(type[Message], field.struct), version, random)
    match field.kind.name:
        case "string":
            return random.choice(TEXTS)
        case "bytes" | "records":
            return random.randbytes(random.choice((0, 1, 61, 200)))
        case "uuid":
            return UUID(bytes=random.randbytes(16))
        case "bool":
            return random.random() < 0.5
        case "float64":
            return random.choice((0.0, -1.5, 1e300, random.random()))
        case "uint16":
            return random.randrange(1 << 16)
        case _:
            top = 1 << BITS[field.kind.format] - 1
            return random.choice((0, 1, -1, top - 1, -top, random.randrange(-top, top)))
