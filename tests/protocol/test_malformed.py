"""Whatever bytes come, a decoder answers or raises RemoteProtocolError, and takes no more memory
than the bytes justify."""

import tracemalloc
from contextlib import suppress
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from segbroker.protocol import limits
from segbroker.protocol.api_keys import ApiKey, request_class
from segbroker.protocol.errors import ProtocolError, RemoteProtocolError, UnsupportedVersion
from segbroker.protocol.headers import (
    decode_request,
    decode_response,
    parse_request_header,
)
from segbroker.protocol.messages_admin import DescribeConfigsRequest
from segbroker.protocol.messages_consumer_groups import ConsumerGroupHeartbeatResponse
from segbroker.protocol.messages_core import FetchRequest, MetadataRequest, ProduceRequest
from segbroker.protocol.primitives import read_uvarint, uvarint
from segbroker.protocol.schema import Message
from segbroker.protocol.vendor import pack, unpack

from .random_messages import classes_and_versions, random_message

QUICK = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
CASES = classes_and_versions()


@QUICK
@given(st.sampled_from(CASES), st.binary(max_size=200))
def test_random_bytes_decode_or_are_refused(case: tuple[type[Message], int], data: bytes) -> None:
    cls, version = case
    with suppress(RemoteProtocolError):
        cls.decode(data, version)


@QUICK
@given(st.sampled_from(CASES), st.randoms(use_true_random=False), st.data())
def test_damaged_messages_decode_or_are_refused(
    case: tuple[type[Message], int], random: Random, data: st.DataObject
) -> None:
    cls, version = case
    encoded = bytearray(b"".join(random_message(cls, version, random).encode(version)))
    for _ in range(data.draw(st.integers(1, 4))):
        if encoded:
            at = data.draw(st.integers(0, len(encoded) - 1))
            encoded[at] = data.draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)))
    with suppress(RemoteProtocolError):
        cls.decode(encoded, version)


@pytest.mark.parametrize(
    ("cls", "version"), CASES[:: max(1, len(CASES) // 60)], ids=lambda x: getattr(x, "__name__", x)
)
def test_a_message_cut_anywhere_is_refused(cls: type[Message], version: int) -> None:
    message = random_message(cls, version, Random(7))
    encoded = b"".join(message.encode(version))
    for cut in range(min(len(encoded), 400)):
        with pytest.raises(RemoteProtocolError):
            cls.decode(encoded[:cut], version)


@QUICK
@example(b"")
@given(st.binary(max_size=64))
def test_any_frame_is_a_request_or_refused(frame: bytes) -> None:
    with suppress(RemoteProtocolError, UnsupportedVersion):
        decode_request(frame, parse_request_header(frame))


@QUICK
@given(st.sampled_from(list(ApiKey)), st.integers(0, 12), st.binary(max_size=64))
def test_any_frame_is_a_response_or_refused(key: ApiKey, version: int, frame: bytes) -> None:
    with suppress(RemoteProtocolError, UnsupportedVersion):
        decode_response(frame, key, version)


@QUICK
@given(st.binary(max_size=100))
def test_any_bytes_are_a_vendor_map_or_refused(data: bytes) -> None:
    try:
        body = unpack(data)
    except RemoteProtocolError:
        return
    assert unpack(pack(body)) == body or body != body


@pytest.mark.parametrize("version", [1, 9])
def test_a_count_that_the_bytes_cannot_hold_is_refused_before_memory_is_taken(version: int) -> None:
    count = bytes.fromhex("7fffffff") if version == 1 else uvarint(0x7FFFFFFF)
    frame = count + bytes(10_000)
    MetadataRequest.decode(bytes.fromhex("00000000") if version == 1 else b"\1\0\0\0\0", version)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="topics"):
            MetadataRequest.decode(frame, version)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_more_items_than_the_limit_are_refused_even_if_the_bytes_are_there() -> None:
    #        count                          each: size 1 "", no tags
    count = limits.REQUEST_ITEMS_COUNT_MAX + 1
    frame = uvarint(count + 1) + b"\1\0" * count + b"\0\0\0"
    with pytest.raises(RemoteProtocolError, match="items"):
        MetadataRequest.decode(frame, 9)


def test_nested_items_count_together() -> None:
    # Neither the resources nor the keys of any of them pass the limit, all keys together do.
    keys = (limits.REQUEST_ITEMS_COUNT_MAX // 4).to_bytes(4, "big") + b"\0\0" * (
        limits.REQUEST_ITEMS_COUNT_MAX // 4
    )
    resource = bytes.fromhex("02 0000") + keys
    for count, allowed in ((3, True), (4, False)):
        frame = count.to_bytes(4, "big") + resource * count + b"\0"
        if allowed:
            assert len(DescribeConfigsRequest.decode(frame, 1)[0].resources) == count
        else:
            with pytest.raises(RemoteProtocolError, match="configuration_keys"):
                DescribeConfigsRequest.decode(frame, 1)


def test_a_string_beyond_the_limit_is_refused_in_flexible_versions_too() -> None:
    name = b"a" * (limits.STRING_SIZE_MAX + 1)
    frame = b"\2" + uvarint(len(name) + 1) + name + b"\0" * 10
    with pytest.raises(RemoteProtocolError, match="name"):
        MetadataRequest.decode(frame, 9)


def test_null_where_null_may_not_be_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="topics"):
        MetadataRequest.decode(bytes.fromhex("ffffffff"), 0)
    assert MetadataRequest.decode(bytes.fromhex("ffffffff"), 1)[0].topics is None


def test_a_length_below_null_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="transactional_id"):
        ProduceRequest.decode(bytes.fromhex("fffe ffff 00000000 00000000"), 3)


def test_what_is_not_utf8_in_a_string_is_read_as_kafka_reads_it() -> None:
    # "caf", an e with an accent in Latin-1: Java puts U+FFFD in its place.
    classic, _ = MetadataRequest.decode(bytes.fromhex("00000001 0004 636166e9"), 1)
    flexible, _ = MetadataRequest.decode(bytes.fromhex("02 05 636166e9 00 01 00 00 00"), 9)
    for request in (classic, flexible):
        assert request.topics is not None
        assert [topic.name for topic in request.topics] == ["caf\ufffd"]


def test_a_string_that_is_not_utf8_and_too_long_to_be_sent_back_is_refused() -> None:
    # Each byte becomes three.
    most = limits.STRING_SIZE_MAX // 3
    for size in (most, most + 1):
        frame = bytes.fromhex("00000001") + size.to_bytes(2, "big") + b"\xff" * size
        if size == most:
            request, _ = MetadataRequest.decode(frame, 1)
            assert request.topics is not None
            assert request.topics[0].name == "\ufffd" * size
        else:
            with pytest.raises(RemoteProtocolError, match="not UTF-8"):
                MetadataRequest.decode(frame, 1)


def test_a_varint_of_more_than_five_bytes_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="5 bytes"):
        MetadataRequest.decode(b"\x80" * 20, 9)


def test_a_varint_over_32_bits_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="32 bits"):
        read_uvarint(bytes.fromhex("ffffffff7f"), 0)


def test_a_tagged_field_that_reads_past_its_size_is_refused() -> None:
    # FetchRequest 12 ends with its tag section: 1 tag, number 0, size 1, but the string says 5.
    body = b"".join(
        FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[], rack_id="", cluster_id="x"
        ).encode(12)
    )
    assert body.endswith(bytes.fromhex("01 00 02 02 78"))
    with pytest.raises(RemoteProtocolError):
        FetchRequest.decode(body[:-5] + bytes.fromhex("01 00 01 06 78 78 78 78 78"), 12)


def test_a_tag_section_with_too_many_fields_is_refused() -> None:
    section = uvarint(limits.TAGS_COUNT_MAX + 1) + b"\x50\0" * (limits.TAGS_COUNT_MAX + 1)
    with pytest.raises(RemoteProtocolError, match="tagged fields"):
        MetadataRequest.decode(b"\1\0\0\0" + section, 9)


def test_a_null_struct_is_none() -> None:
    body = ConsumerGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=5)
    decoded, _ = ConsumerGroupHeartbeatResponse.decode(b"".join(body.encode(0)), 0)
    assert decoded.assignment is None


def test_an_unknown_version_is_said_so() -> None:
    for key in ApiKey:
        cls = request_class(key)
        with pytest.raises(UnsupportedVersion, match=cls.__name__):
            cls.decode(b"", cls.message_versions[1] + 1)
        assert issubclass(UnsupportedVersion, ProtocolError)
