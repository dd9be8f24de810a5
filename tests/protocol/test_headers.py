import pytest

from segbroker.protocol import limits
from segbroker.protocol.errors import LocalProtocolError, RemoteProtocolError
from segbroker.protocol.fields import Part
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    frame_size,
    parse_correlation_id,
    parse_request_header,
)
from segbroker.protocol.messages_core import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseKey,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    MetadataRequest,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from segbroker.protocol.messages_groups import HeartbeatRequest, HeartbeatResponse


def test_a_classic_request_frame_written_out() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=2, member_id="m")
    frame = b"".join(encode_request(request, 0, 7, "me"))
    assert frame == bytes.fromhex(
        #  size     key  ver  correlation  client id   "g"     generation  "m"
        "00000016 000c 0000 00000007     0002 6d65   0001 67 00000002    0001 6d"
    )
    header = parse_request_header(frame[4:])
    assert header == RequestHeader(12, 0, 7, "me", 12)
    assert decode_request(frame[4:], header) == request


def test_a_flexible_request_frame_written_out() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=2, member_id="m")
    frame = b"".join(encode_request(request, 4, 7, "me"))
    assert frame == bytes.fromhex(
        # the client id stays classic; then the header's tags; "g"; 2; "m"; no instance id; tags
        "00000017 000c 0004 00000007 0002 6d65 00  02 67 00000002 02 6d 00 00"
    )
    header = parse_request_header(frame[4:])
    assert header == RequestHeader(12, 4, 7, "me", 13)
    assert decode_request(frame[4:], header) == request


def test_a_request_without_a_client_id() -> None:
    frame = b"".join(encode_request(MetadataRequest(topics=None), 1, 7, None))[4:]
    assert parse_request_header(frame) == RequestHeader(3, 1, 7, None, 10)


def test_a_classic_response_has_the_correlation_id_alone() -> None:
    frame = b"".join(encode_response(HeartbeatResponse(error_code=27), 12, 0, 7))
    assert frame == bytes.fromhex("00000006 00000007 001b")
    assert decode_response(frame[4:], 12, 0) == (7, HeartbeatResponse(error_code=27))


def test_a_flexible_response_has_a_tag_section_in_its_header() -> None:
    frame = b"".join(encode_response(HeartbeatResponse(error_code=27), 12, 4, 7))
    #                                size  correlation tags throttle error tags
    assert frame == bytes.fromhex("0000000c 00000007 00   00000000 001b 00")


def test_the_response_to_api_versions_never_has_a_tag_section_in_its_header() -> None:
    key = ApiVersionsResponseKey(api_key=18, min_version=0, max_version=4)
    frame = b"".join(encode_response(ApiVersionsResponse(api_keys=[key]), 18, 3, 7))
    assert frame == bytes.fromhex(
        #  size  correlation error count key  min  max tags throttle tags
        "00000013 00000007  0000  02    0012 0000 0004 00  00000000 00"
    )
    assert decode_response(frame[4:], 18, 3)[0] == 7


def test_a_refused_version_of_api_versions_is_read_in_version_0() -> None:
    #                      correlation error count     key  min  max
    frame = bytes.fromhex("00000007    0023  00000001  0012 0000 0003")
    _, response = decode_response(frame, 18, 4)
    assert response == ApiVersionsResponse(
        error_code=35,
        api_keys=[ApiVersionsResponseKey(api_key=18, min_version=0, max_version=3)],
    )


def test_bytes_behind_a_request_are_tolerated() -> None:
    # librdkafka 2.16 sends three with Metadata.
    request = MetadataRequest(topics=None)
    frame = b"".join(encode_request(request, 9, 7, "rdkafka"))[4:] + b"\0\1\2"
    assert decode_request(frame, parse_request_header(frame)) == request


def test_unknown_tags_are_skipped_in_header_and_body() -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    header = bytes.fromhex("0012 0003 00000007 ffff") + bytes.fromhex("01 05 02 abcd")
    body = bytes.fromhex("02 61 02 31") + bytes.fromhex("02 63 00 64 01 ff")
    frame = header + body
    assert decode_request(frame, parse_request_header(frame)) == request


def test_the_version_of_api_versions_that_nobody_knows_still_has_a_header() -> None:
    # Whatever comes behind the client id: the answer needs the correlation id alone.
    frame = bytes.fromhex("0012 0063 00000007 0001 61 ffffff")
    assert parse_request_header(frame)[:4] == (18, 99, 7, "a")


def test_a_client_id_that_is_not_utf8_is_read_as_kafka_reads_it() -> None:
    frame = bytes.fromhex("0012 0000 00000007 0004 636166e9")
    assert parse_request_header(frame).client_id == "caf\ufffd"


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        ("", "0 bytes"),
        ("0012 0000 00000007", "8 bytes"),
        ("0012 0000 00000007 0004 616263", "client id of 4 bytes, 3 left"),
        ("0012 0000 00000007 fffe", "client id of -2 bytes"),
        ("0012 0003 00000007 0001 61", "ends inside its header"),
        ("0012 0003 00000007 0001 61 01 00 05 00", "5 bytes, 1 left"),
    ],
)
def test_a_broken_header_is_refused(frame: str, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        parse_request_header(bytes.fromhex(frame))


def test_a_response_shorter_than_its_header_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        parse_correlation_id(b"\0\0\0")


def test_a_client_id_that_does_not_fit_is_our_fault() -> None:
    with pytest.raises(LocalProtocolError, match="client id"):
        encode_request(MetadataRequest(topics=None), 1, 7, "a" * (limits.CLIENT_ID_SIZE_MAX + 1))


def produce(records: memoryview) -> ProduceRequest:
    partition = ProduceRequestPartition(index=0, records=records)
    topic = ProduceRequestTopic(name="t", partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=5, topic_data=[topic])


@pytest.mark.parametrize("version", [7, 9])
def test_records_are_sent_by_reference(version: int) -> None:
    records = memoryview(bytes(1000))
    parts = encode_request(produce(records), version, 7, "me")
    assert any(part is records for part in parts)
    frame = b"".join(parts)
    assert frame_size(parts) == len(frame)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


@pytest.mark.parametrize("version", [7, 9])
def test_records_are_received_as_a_writable_view_of_the_frame(version: int) -> None:
    reader = FrameReader()
    reader.receive_data(b"".join(encode_request(produce(memoryview(bytes(100))), version, 7, "me")))
    frame = reader.next_frame()
    assert frame is not None
    request = decode_request(frame, parse_request_header(frame))
    assert isinstance(request, ProduceRequest)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert len(records) == 100
    records[:3] = b"abc"
    assert b"abc" in bytes(frame)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_records_in_several_buffers_are_one_field(version: int) -> None:
    pieces: list[Part] = [memoryview(b"abc"), b"", memoryview(b"defg")]
    partition = FetchResponsePartition(
        partition_index=0, high_watermark=9, aborted_transactions=None, records=pieces
    )
    response = FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=[partition])])
    frame = b"".join(encode_response(response, 1, version, 7))
    _, decoded = decode_response(frame[4:], 1, version)
    assert isinstance(decoded, FetchResponse)
    assert decoded.responses[0].partitions[0].records == b"abcdefg"


def test_a_frame_over_the_limit_is_our_fault() -> None:
    mebibyte = bytes(1 << 20)
    partition = FetchResponsePartition(
        partition_index=0,
        high_watermark=9,
        aborted_transactions=None,
        records=[mebibyte] * (limits.FRAME_SIZE_MAX // len(mebibyte)),
    )
    response = FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=[partition])])
    with pytest.raises(LocalProtocolError, match="limit"):
        encode_response(response, 1, 11, 7)
