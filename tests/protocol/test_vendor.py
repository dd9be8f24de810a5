import tracemalloc
from typing import Any

import msgpack
import pytest

from segbroker.protocol import limits
from segbroker.protocol.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from segbroker.protocol.headers import (
    encode_vendor_request,
    encode_vendor_response,
    parse_correlation_id,
    parse_request_header,
)
from segbroker.protocol.vendor import VendorKey, error_reply, pack, unpack


def test_a_map_comes_back_as_it_was() -> None:
    body = {"a": None, "b": [1, -1, 2**63, 1.5, True], "c": {"d": b"\0\xff", "e": "größe"}}
    assert unpack(pack(body)) == body


def test_the_bytes_are_msgpack() -> None:
    #       1-map  "a"   2-array 1  bin8 of 1 byte
    assert pack({"a": [1, b"x"]}) == bytes.fromhex("81 a161 92 01 c40178")


@pytest.mark.parametrize("value", [object(), 2**64, {1, 2}, "\ud800"])
def test_a_value_that_msgpack_has_not_is_our_fault(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        pack({"a": value})


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a msgpack body"),
        (b"\x81", "not a msgpack body"),  # cut
        (b"\x80\x80", "not a msgpack body"),  # bytes behind it
        (b"\xc1", "not a msgpack body"),  # no such type
        (b"\x01", "is a int"),
        (b"\x90", "is a list"),
        (bytes.fromhex("81 01 01"), "not a msgpack body"),  # key 1
        (bytes.fromhex("81 c40161 01"), "key that is not a string"),  # key b"a"
        (bytes.fromhex("81 a161 81 c40161 01"), "key that is not a string"),  # inside
        (bytes.fromhex("81 a161 a1ff"), "not a msgpack body"),  # not UTF-8
        (bytes.fromhex("81 a161 d40100"), "not a msgpack body"),  # extension
        (bytes.fromhex("81 a161 c70001"), "not a msgpack body"),  # empty extension
        (bytes.fromhex("81 a161 d6ff00000000"), "not a msgpack body"),  # timestamp
        (bytes.fromhex("81 a161 ddffffffff"), "not a msgpack body"),  # 2^32 - 1 items claimed
        (bytes.fromhex("81 a161 dfffffffff"), "not a msgpack body"),
        (bytes.fromhex("81 a161 dbffffffff"), "not a msgpack body"),
    ],
)
def test_anything_else_is_the_peers_fault(data: bytes, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        unpack(data)


def test_a_body_over_the_limit_is_refused() -> None:
    body = pack({"a": bytes(100)})
    assert unpack(body, size_max=len(body))
    with pytest.raises(RemoteProtocolError, match="limit"):
        unpack(body, size_max=len(body) - 1)


def test_nesting_is_bounded() -> None:
    def nested(depth: int) -> dict[str, Any]:
        inner: Any = {}
        for _ in range(depth - 1):
            inner = {"a": inner}
        return {"a": inner} if depth else {}

    assert unpack(pack(nested(limits.VENDOR_DEPTH_MAX - 1)))
    with pytest.raises(RemoteProtocolError, match="nested"):
        unpack(pack(nested(limits.VENDOR_DEPTH_MAX)))
    with pytest.raises(RemoteProtocolError):
        unpack(b"\x81\xa1a" + b"\x91" * 500_000 + b"\x90")


def test_arrays_that_claim_what_is_not_there_take_no_memory() -> None:
    # Each inside the one before, each claims as many items as there are bytes.
    claims = b"\xdd" + (16_000).to_bytes(4, "big")
    body = b"\x81\xa1a" + claims * 1_000 + bytes(11_000)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="not a msgpack body"):
            unpack(body)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("inner", [[], {}])
def test_arrays_and_maps_are_bounded_in_sum_where_that_is_asked(inner: object) -> None:
    """A megabyte of empty lists kept the collector of garbage, and all else, for half a second."""
    rows: list[Any] = [[inner] * 10_000 for _ in range(10)]
    data = pack({"a": rows})
    assert unpack(data) == {"a": rows}
    assert unpack(data, containers_max=100_012) == {"a": rows}
    with pytest.raises(RemoteProtocolError, match="more than 100011 arrays and maps"):
        unpack(data, containers_max=100_011)


def test_a_failed_reply_carries_code_class_retryable_and_detail() -> None:
    reply = error_reply(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic 'a'")
    assert unpack(pack(reply)) == {
        "error": {
            "code": 3,
            "class": "UNKNOWN_TOPIC_OR_PARTITION",
            "retryable": True,
            "detail": "no topic 'a'",
        }
    }


def test_a_vendor_request_has_a_kafka_header_and_a_map() -> None:
    parts = encode_vendor_request(VendorKey.SERVER_INFO, 0, 7, "me", {"a": 1})
    frame = b"".join(parts)
    #  size     key  ver  correlation  client id   {"a": 1}
    assert frame == bytes.fromhex("00000010 2710 0000 00000007 0002 6d65 81a16101")
    header = parse_request_header(frame[4:])
    assert header.api_key == VendorKey.SERVER_INFO
    assert unpack(frame[4:][header.body_position :]) == {"a": 1}


def test_a_vendor_response_has_a_correlation_id_and_a_map() -> None:
    frame = b"".join(encode_vendor_response({"a": 1}, 7))
    assert frame == bytes.fromhex("00000008 00000007 81a16101")
    assert parse_correlation_id(frame[4:]) == 7


def test_msgpack_of_others_is_understood() -> None:
    assert unpack(msgpack.packb({"a": [1, 2]})) == {"a": [1, 2]}
