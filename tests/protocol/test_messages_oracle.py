"""Every message in every version against kafka-python's codec, which knows nothing of ours.

kafka-python encodes dicts by the JSON definitions of Apache Kafka.  Its message classes patch some
of them for its own use (bit sets; ApiVersionsResponse falls back to version 0 when decoding an
error), so the tests go one layer below, to the definitions themselves.
"""

import io
from random import Random
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsResponse as TheirApiVersionsResponse
from kafka.protocol.schemas import StructField, load_json

from segbroker.protocol.api_keys import api_versions_response
from segbroker.protocol.messages_core import ApiVersionsResponse
from segbroker.protocol.schema import Message

from .random_messages import classes_and_versions, message_classes, random_message

# KIP-848, KIP-932 and KIP-1071 are not in kafka-python; test_messages.py and
# test_streams_messages.py have bytes written out for these.
WITHOUT_ORACLE = {
    *(
        f"{name}{kind}"
        for name in (
            "ShareGroupHeartbeat",
            "ShareGroupDescribe",
            "ShareFetch",
            "ShareAcknowledge",
            "DescribeShareGroupOffsets",
            "AlterShareGroupOffsets",
            "DeleteShareGroupOffsets",
            "StreamsGroupHeartbeat",
            "StreamsGroupDescribe",
        )
        for kind in ("Request", "Response")
    ),
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
}
CASES = [(c, v) for c, v in classes_and_versions() if c.__name__ not in WITHOUT_ORACLE]
MESSAGES_PER_CASE = 8

_definitions: dict[str, Any] = {}


def definition(name: str) -> Any:  # noqa: ANN401 - kafka-python is not typed
    if name not in _definitions:
        _definitions[name] = StructField(
            load_json(name, package="kafka.protocol.schemas.resources")
        )
    return _definitions[name]


def as_dict(message: Message, version: int) -> dict[str, Any]:
    """What kafka-python takes and gives: the version's fields, absent tagged ones left out."""
    out: dict[str, Any] = {}
    for field in type(message).fields():
        value = getattr(message, field.name)
        if not field.is_in(version):
            continue
        if field.tag is not None and value == ([] if field.is_array else field.default):
            continue
        if isinstance(value, list):
            value = [as_dict(v, version) if isinstance(v, Message) else v for v in value]
        elif isinstance(value, Message):
            value = as_dict(value, version)
        out[field.name] = value
    return out


@pytest.fixture
def random() -> Random:
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")
    return Random(seed)


@pytest.mark.parametrize(("cls", "version"), CASES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_bytes_and_values_are_those_of_kafka_python(
    cls: type[Message], version: int, random: Random
) -> None:
    flexible = cls.is_flexible(version)
    theirs = definition(cls.__name__)
    for _ in range(MESSAGES_PER_CASE):
        message = random_message(cls, version, random)
        values = as_dict(message, version)
        expected = theirs.encode(values, version=version, compact=flexible, tagged=flexible)

        encoded = b"".join(message.encode(version))
        assert encoded == expected

        decoded, position = cls.decode(expected, version)
        assert position == len(expected)
        assert decoded == message

        data = io.BytesIO(encoded)
        assert theirs.decode(data, version=version, compact=flexible, tagged=flexible) == values
        assert data.read() == b""


@pytest.mark.parametrize("cls", list(message_classes()), ids=lambda cls: cls.__name__)
def test_flexible_versions_begin_where_kafka_says(cls: type[Message]) -> None:
    if cls.__name__ in WITHOUT_ORACLE:
        return
    first = load_json(cls.__name__, package="kafka.protocol.schemas.resources")["flexibleVersions"]
    last = cls.message_versions[1]
    expected = int(first.rstrip("+")) if first != "none" else last + 1
    assert min(cls.flexible_from, last + 1) == min(expected, last + 1)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_the_answer_to_api_versions_is_understood(version: int) -> None:
    response, encoded_version = api_versions_response(version, vendor=False)
    theirs = TheirApiVersionsResponse.decode(b"".join(response.encode(version)), version=version)
    assert encoded_version == version
    assert [(k.api_key, k.min_version, k.max_version) for k in theirs.api_keys] == [
        (k.api_key, k.min_version, k.max_version) for k in response.api_keys
    ]


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    # kafka-python's own class falls back to version 0 when it sees the error, as Java does.
    response, version = api_versions_response(99, vendor=False)
    assert version == 0
    theirs = TheirApiVersionsResponse.decode(b"".join(response.encode(version)), version=4)
    assert theirs.error_code == 35
    assert len(theirs.api_keys) == len(response.api_keys)
    assert ApiVersionsResponse.decode(b"".join(response.encode(0)), 0)[0] == response
