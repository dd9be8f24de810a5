"""An answer as a flat table of its fields, and the difference between two of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from uuid import UUID

from segbroker.protocol.fields import ZERO_UUID, Field
from segbroker.protocol.record_batch import decode_batch, iter_batches, read_header
from segbroker.protocol.schema import Message, records_view

Fields = dict[str, object]

CLOSED: Fields = {"": "connection closed"}
NO_TOPICS: Final[Mapping[UUID, str]] = MappingProxyType({})
ABSENT = "(absent)"
ROW = "(a row)"
# The fields that identify a row of a list, in the order in which they are tried.
NAMES: Final = (
    *("name", "topic", "topic_name", "resource_name", "group_id", "key", "transactional_id"),
    "user",
    *("index", "partition_index", "partition", "node_id", "broker_id", "api_key"),
)
# Members have ids that are drawn at random.
IDENTITIES: Final[dict[str, tuple[str, ...]]] = {
    "members": ("group_instance_id",),
    "synonyms": (),
    "entity": ("entity_type",),
}
# What tells apart the rules of an answer, and the resources that one may name twice.
_RULE: Final = (
    *("resource_type", "resource_name", "pattern_type"),
    *("principal", "host", "operation", "permission_type"),
)


@dataclass(frozen=True)
class Difference:
    """One field on which the brokers disagree.

    Attributes:
        path: the field, with positions in lists: `responses[0].error_code`.
        theirs: what Apache Kafka has there; ABSENT for nothing.
        ours: what segbroker has there.
    """

    path: str
    theirs: object
    ours: object


def flatten(
    message: Message, version: int, name: str, topics: Mapping[UUID, str] = NO_TOPICS
) -> Fields:
    """Every field that the version has, under its path.

    A row of a list is found by what identifies it (its name, its number), not by where it stands:
    both brokers may order their rows as they like.  `name`, which is part of the names of topics
    and groups of a case, is written as ~.  `topics`: the names behind the ids, which are drawn at
    random.
    """
    return {
        path.replace(name, "~"): value.replace(name, "~") if isinstance(value, str) else value
        for path, value in _walk(message, version, "", topics)
    }


def differences(theirs: Fields, ours: Fields) -> Iterator[Difference]:
    """Where two answers disagree, in the order of the fields; a row too many is one difference."""
    lone: list[str] = []
    for path in dict.fromkeys([*theirs, *ours]):
        if path.startswith(tuple(lone)):
            continue
        their, our = theirs.get(path, ABSENT), ours.get(path, ABSENT)
        if their != our:
            if path.endswith("]") and ROW in (their, our):
                lone.append(f"{path}.")
            yield Difference(path, their, our)


def _walk(
    message: Message, version: int, prefix: str, topics: Mapping[UUID, str]
) -> Iterator[tuple[str, object]]:
    for field in type(message).fields():
        if not field.is_in(version):
            continue
        value = getattr(message, field.name)
        path = f"{prefix}{field.name}"
        if value is None or not field.is_array:
            yield from _one(field, value, version, path, topics)
        elif field.struct is None:
            yield path, list(value)
        else:
            yield path, "(rows)"
            for item, key in zip(value, _keys(field.name, value, topics), strict=True):
                yield f"{path}[{key}]", ROW
                yield from _walk(item, version, f"{path}[{key}].", topics)


def _keys(name: str, rows: Sequence[Message], topics: Mapping[UUID, str]) -> list[str]:
    """What tells the rows of a list apart, or their numbers."""
    for field in IDENTITIES.get(name, NAMES):
        keys = [str(getattr(row, field, None)) for row in rows]
        if len(set(keys)) == len(rows) and "None" not in keys:
            return keys
    for keys in (
        [_topic(row, topics) for row in rows],
        [_entity(row) for row in rows],
        [_rule(row) for row in rows],
    ):
        if len(set(keys)) == len(rows) and "" not in keys:
            return keys
    return [str(number) for number in range(len(rows))]


def _topic(row: Message, topics: Mapping[UUID, str]) -> str:
    """The name behind a topic id; empty for none."""
    return topics.get(getattr(row, "topic_id", ZERO_UUID), "")


def _rule(row: Message) -> str:
    """Of which resource, and which access rule, a row is; empty for none."""
    return " ".join(str(getattr(row, name)) for name in _RULE if hasattr(row, name))


def _entity(row: Message) -> str:
    """Whose quotas a row has; empty for none."""
    parts = getattr(row, "entity", ())
    return "+".join(sorted(f"{part.entity_type}={part.entity_name}" for part in parts))


def _one(
    field: Field, value: object, version: int, path: str, topics: Mapping[UUID, str]
) -> Iterator[tuple[str, object]]:
    if isinstance(value, Message):
        yield from _walk(value, version, f"{path}.", topics)
    elif field.kind.name == "records" and value is not None:
        yield from _records(records_view(value), path)  # type: ignore[arg-type]  # by its kind
    elif isinstance(value, memoryview):
        yield path, bytes(value)
    else:
        yield path, value


def _records(data: memoryview, path: str) -> Iterator[tuple[str, object]]:
    """Batches, not bytes: what a consumer sees, and each header field by itself."""
    batches = list(iter_batches(data))
    yield f"{path}.batches", len(batches)
    for number, raw in enumerate(batches):
        header = read_header(raw)
        for name in header._fields:
            if header.is_control and name.endswith("_timestamp"):
                continue  # when it was written
            yield f"{path}.batch[{number}].{name}", getattr(header, name)
        if not header.is_control:
            yield f"{path}.batch[{number}].records", decode_batch(raw).records()
