"""The hand-made paths against the compiled codecs, which are proven elsewhere."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.headers import (
    decode_request,
    encode_request,
    encode_response,
    parse_request_header,
)
from segbroker.protocol.hot import (
    decode_single_produce,
    encode_single_fetch_response,
    encode_single_produce_response,
)
from segbroker.protocol.messages_core import (
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)

PRODUCE = range(3, 14)
FETCH = range(4, 13)
int16s = st.integers(-(1 << 15), (1 << 15) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
ID = UUID(int=0x0123456789ABCDEF << 60)
BY_ID = 13
topics = st.text(max_size=60).filter(lambda name: len(name.encode()) < 127)


def frame_of(message: ProduceRequest, version: int) -> memoryview:
    return memoryview(bytearray(b"".join(encode_request(message, version, 7, "me"))))[4:]


@settings(max_examples=60, deadline=None, database=None)
@given(st.sampled_from(PRODUCE), int16s, int32s, topics, int32s, st.binary(max_size=300))
def test_a_produce_request_is_decoded_the_same(
    version: int, acks: int, timeout_ms: int, topic: str, index: int, records: bytes
) -> None:
    partition = ProduceRequestPartition(index=index, records=records)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[ProduceRequestTopic(name=topic, topic_id=ID, partition_data=[partition])],
    )
    frame = frame_of(request, version)
    single = decode_single_produce(frame, parse_request_header(frame))
    assert single is not None
    assert single[:4] == (acks, timeout_ms, topic if version < BY_ID else "", index)
    assert single.topic_id == (ZERO_UUID if version < BY_ID else ID)
    assert bytes(single.records) == records


def single_produce(**changes: object) -> ProduceRequest:
    partition = ProduceRequestPartition(index=1, records=b"abc")
    topic = ProduceRequestTopic(name="t", topic_id=ID, partition_data=[partition])
    request = ProduceRequest(acks=1, timeout_ms=5, topic_data=[topic])
    for name, value in changes.items():
        setattr(request, name, value)
    return request


@pytest.mark.parametrize("version", PRODUCE)
def test_records_are_a_writable_view_of_the_frame(version: int) -> None:
    frame = frame_of(single_produce(), version)
    single = decode_single_produce(frame, parse_request_header(frame))
    assert single is not None
    single.records[0] = ord("x")
    assert b"xbc" in bytes(frame)


def topic_of(*partitions: ProduceRequestPartition, name: str = "t") -> ProduceRequestTopic:
    return ProduceRequestTopic(name=name, partition_data=list(partitions))


ONE = ProduceRequestPartition(index=0, records=b"abc")


@pytest.mark.parametrize("version", PRODUCE)
@pytest.mark.parametrize(
    "request_",
    [
        single_produce(transactional_id="x"),
        single_produce(transactional_id=""),
        single_produce(topic_data=[]),
        single_produce(topic_data=[topic_of()]),
        single_produce(topic_data=[topic_of(ONE), topic_of(ONE)]),
        single_produce(topic_data=[topic_of(ONE, ONE)]),
        single_produce(topic_data=[topic_of(ProduceRequestPartition(index=0, records=None))]),
    ],
    ids=str,
)
def test_any_other_produce_request_is_left_to_the_compiled_codec(
    version: int, request_: ProduceRequest
) -> None:
    frame = frame_of(request_, version)
    assert decode_single_produce(frame, parse_request_header(frame)) is None


@settings(max_examples=300, deadline=None, database=None)
@given(st.sampled_from(PRODUCE), st.data())
def test_a_damaged_produce_request_is_decoded_the_same_or_left(
    version: int, data: st.DataObject
) -> None:
    frame = frame_of(single_produce(), version)
    header = parse_request_header(frame)
    frame = frame[: data.draw(st.integers(header.body_position, len(frame)))]
    if len(frame) > header.body_position:
        at = data.draw(st.integers(header.body_position, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
    single = decode_single_produce(frame, header)
    if single is None:
        return
    request = decode_request(frame, header)
    assert isinstance(request, ProduceRequest)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert request.transactional_id is None
    assert single == (
        request.acks,
        request.timeout_ms,
        topic.name,
        partition.index,
        partition.records,
        topic.topic_id,
    )


@settings(max_examples=100, deadline=None, database=None)
@given(st.sampled_from(PRODUCE), int32s, st.text(max_size=200), int32s, int64s, int64s, int64s)
def test_a_produce_response_has_the_same_bytes(
    version: int,
    correlation_id: int,
    topic: str,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> None:
    partition = ProduceResponsePartition(
        index=index,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    response = ProduceResponse(
        responses=[ProduceResponseTopic(name=topic, topic_id=ID, partition_responses=[partition])],
        throttle_time_ms=9,
    )
    frame = encode_single_produce_response(
        version,
        correlation_id,
        topic,
        index,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
        throttle_time_ms=9,
        topic_id=ID,
    )
    assert frame == b"".join(encode_response(response, 0, version, correlation_id))


@settings(max_examples=100, deadline=None, database=None)
@given(
    st.sampled_from(FETCH),
    int32s,
    st.text(max_size=200),
    int32s,
    st.tuples(int64s, int64s, int64s),
    st.lists(st.binary(max_size=200), max_size=3),
)
def test_a_fetch_response_has_the_same_bytes(
    version: int,
    correlation_id: int,
    topic: str,
    index: int,
    offsets: tuple[int, int, int],
    records: list[bytes],
) -> None:
    partition = FetchResponsePartition(
        partition_index=index,
        high_watermark=offsets[0],
        last_stable_offset=offsets[1],
        log_start_offset=offsets[2],
        aborted_transactions=None,
        records=records,
    )
    response = FetchResponse(
        responses=[FetchResponseTopic(topic=topic, topic_id=ID, partitions=[partition])],
        throttle_time_ms=9,
        session_id=index if version >= 7 else 0,
    )
    parts = encode_single_fetch_response(
        version,
        correlation_id,
        topic,
        index,
        high_watermark=offsets[0],
        last_stable_offset=offsets[1],
        log_start_offset=offsets[2],
        records=records,
        throttle_time_ms=9,
        topic_id=ID,
        session_id=index,
    )
    assert b"".join(parts) == b"".join(encode_response(response, 1, version, correlation_id))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_produce_request_of_the_old_record_formats_is_left_to_the_compiled_codec(
    version: int,
) -> None:
    frame = frame_of(single_produce(), version)
    assert decode_single_produce(frame, parse_request_header(frame)) is None
