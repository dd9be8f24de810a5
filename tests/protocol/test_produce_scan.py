"""The scan for plain Produce requests: C and its twin say the same, and what they find is plain."""

import random
from uuid import NAMESPACE_DNS, UUID, uuid5

import pytest

from segbroker.protocol.api_keys import SERVED, ApiKey
from segbroker.protocol.checksums import crc32c
from segbroker.protocol.compression import Codec
from segbroker.protocol.errors import RemoteProtocolError
from segbroker.protocol.headers import encode_request, parse_request_header
from segbroker.protocol.hot import decode_single_produce
from segbroker.protocol.kernel import KERNEL_IS_NATIVE
from segbroker.protocol.messages_core import (
    MetadataRequest,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from segbroker.protocol.produce_scan import Column, ProduceScan
from segbroker.protocol.record_batch import check_batch, encode_batch

ROWS = 40
BY_ID = 13
SIZE = 1 << 16
NATIVE = pytest.param(
    True, marks=pytest.mark.skipif(not KERNEL_IS_NATIVE, reason="no C kernel here")
)


def id_of(name: str) -> UUID:
    return uuid5(NAMESPACE_DNS, name)


def produce(
    version: int,
    *,
    name: str = "t",
    client: str | None = "c",
    acks: int = -1,
    transactional_id: str | None = None,
    partitions: int = 1,
    records: bytes | None = None,
    timeout_ms: int = 1_000,
    correlation_id: int = 7,
) -> bytes:
    if records is None:
        records = encode_batch([b"v"], timestamps_ms=5)
    parts = [ProduceRequestPartition(index=n, records=records) for n in range(partitions)]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[ProduceRequestTopic(name=name, topic_id=id_of(name), partition_data=parts)],
    )
    return b"".join(encode_request(request, version, correlation_id, client))


def rows_of(scan: ProduceScan, data: bytes, begin: int = 0) -> tuple[list[dict[Column, int]], int]:
    scan.data[begin : begin + len(data)] = data
    count, stop = scan.scan(begin, begin + len(data), 0)
    rows = [
        {column: scan.columns[column * scan.rows_max + n] for column in Column}
        for n in range(count)
    ]
    return rows, stop


@pytest.mark.parametrize("native", [False, NATIVE])
@pytest.mark.parametrize("version", range(3, 14))
def test_a_row_says_what_the_decoder_says(version: int, native: bool) -> None:
    scan = ProduceScan(SIZE, ROWS, native=native)
    records = encode_batch([b"a", b"b", b"c"], timestamps_ms=[5, 9, 7], producer_id=3,
                           producer_epoch=0, base_sequence=0)  # fmt: skip
    frames = produce(version, client=None) + produce(version, name="täglich", records=records)
    rows, stop = rows_of(scan, frames + b"\0\0", begin=100)
    assert (len(rows), stop) == (2, 100 + len(frames))
    for row, (name, client, count, latest) in zip(
        rows, [("t", None, 1, 5), ("täglich", "c", 3, 9)], strict=True
    ):
        frame = memoryview(bytes(scan.data[row[Column.FRAME_BEGIN] + 4 : row[Column.FRAME_END]]))
        header = parse_request_header(frame)
        single = decode_single_produce(frame, header)
        assert single is not None
        begin = row[Column.RECORDS_BEGIN]
        found = scan.data[begin : begin + row[Column.RECORDS_SIZE]]
        assert found == single.records
        assert (row[Column.VERSION], row[Column.CORRELATION]) == (version, header.correlation_id)
        assert (row[Column.TIMEOUT], row[Column.PARTITION]) == (1_000, single.partition)
        told = scan.data[row[Column.NAME_BEGIN] : row[Column.NAME_END]]
        assert told == (name.encode() if version < BY_ID else id_of(name).bytes)
        if client is None:
            assert row[Column.CLIENT_BEGIN] == row[Column.CLIENT_END] == -1
        else:
            assert scan.data[row[Column.CLIENT_BEGIN] : row[Column.CLIENT_END]] == b"c"
        assert (row[Column.OFFSETS_COUNT], row[Column.MAX_TIMESTAMP]) == (count, latest)
        assert row[Column.IS_TRACKED] == (count == 3)


def _bad_crc() -> bytes:
    records = bytearray(encode_batch([b"v"], timestamps_ms=5))
    records[-1] ^= 1
    return bytes(records)


def _with(position: int, value: int) -> bytes:
    """A batch with another byte in its attributes, and the CRC that goes with it."""
    records = bytearray(encode_batch([b"v"], timestamps_ms=5))
    records[position] = value
    records[17:21] = crc32c(bytes(records[21:])).to_bytes(4, "big")
    return bytes(records)


def _unstamped() -> bytes:
    records = bytearray(encode_batch([b"v"], timestamps_ms=5, codec=Codec.GZIP))
    records[35:43] = (4).to_bytes(8, "big")
    records[17:21] = crc32c(bytes(records[21:])).to_bytes(4, "big")
    return bytes(records)


UNUSUAL = {
    "another api": b"".join(encode_request(MetadataRequest(topics=[]), 1, 1, "c")),
    "no answer wanted": produce(7, acks=0),
    "absurd acks": produce(7, acks=5),
    "a transaction": produce(7, transactional_id="x"),
    "two partitions": produce(7, partitions=2),
    "no record": produce(9, records=b""),
    "a wrong CRC": produce(9, records=_bad_crc()),
    "log append time": produce(9, records=_with(22, 8)),
    "a wrong greatest timestamp": produce(9, records=_with(42, 9)),
    "compressed, without its greatest timestamp": produce(9, records=_unstamped()),
    "zstd too early": produce(6, records=_with(22, 4)),
    "a size below zero": b"\xff\xff\xff\xff" + bytes(20),
    "a tiny frame": b"\0\0\0\x09" + bytes(9),
}


@pytest.mark.parametrize("native", [False, NATIVE])
@pytest.mark.parametrize("what", UNUSUAL)
def test_it_stops_at_the_first_that_is_unusual(what: str, native: bool) -> None:
    plain = produce(9)
    rows, stop = rows_of(ProduceScan(SIZE, ROWS, native=native), plain + UNUSUAL[what] + plain)
    assert (len(rows), stop) == (1, len(plain))


@pytest.mark.parametrize("native", [False, NATIVE])
def test_rows_that_go_the_same_way_are_a_stretch(native: bool) -> None:
    tracked = encode_batch(
        [b"v"], timestamps_ms=5, producer_id=3, producer_epoch=0, base_sequence=0
    )
    frames = [
        *[produce(9, correlation_id=n) for n in range(3)],
        produce(9, timeout_ms=5),
        produce(9, timeout_ms=5, client=None),
        produce(9, timeout_ms=5, client=None, name="other"),
        produce(8, timeout_ms=5, client=None, name="other"),
        produce(13, timeout_ms=5, client=None, name="other"),
        produce(13, timeout_ms=5, client=None, name="other"),
        produce(13, timeout_ms=5, client=None, name="another"),
        produce(8, records=tracked),
        produce(8, records=tracked),
        *[produce(8)] * 2,
    ]
    rows, _ = rows_of(ProduceScan(SIZE, ROWS, native=native), b"".join(frames))
    assert [row[Column.STRETCH] for row in rows] == [3, 0, 0, 1, 1, 1, 1, 2, 0, 1, 1, 1, 2, 0]


@pytest.mark.parametrize("native", [False, NATIVE])
def test_there_are_no_more_rows_than_there_is_room_for(native: bool) -> None:
    frame = produce(9)
    scan = ProduceScan(SIZE, 4, native=native)
    rows, stop = rows_of(scan, frame * 6)
    assert (len(rows), stop) == (4, 4 * len(frame))
    assert scan.scan(stop, 6 * len(frame), 3) == (1, 5 * len(frame))


@pytest.mark.skipif(not KERNEL_IS_NATIVE, reason="no C kernel here")
@pytest.mark.parametrize("seed", range(8))
def test_c_and_its_twin_say_the_same_of_any_bytes(seed: int) -> None:
    rng = random.Random(seed)
    scans = [ProduceScan(SIZE, ROWS, native=native) for native in (True, False)]
    good = [produce(version, name="täglich", client=client)
            for version in range(SERVED[ApiKey.PRODUCE].min, SERVED[ApiKey.PRODUCE].max + 1)
            for client in (None, "", "client")]  # fmt: skip
    found = 0
    for _ in range(400):
        frames = [bytearray(rng.choice(good)) for _ in range(rng.randint(1, 4))]
        for frame in frames:
            for _ in range(rng.choice((0, 0, 1, 3))):
                frame[rng.randrange(len(frame))] = rng.choice((0, 1, 2, 127, 128, 255))
            if rng.random() < 0.1:
                del frame[rng.randrange(len(frame)) :]
        data = b"".join(frames) + rng.randbytes(rng.choice((0, 0, 40)))
        begin = rng.randrange(100)
        one, other = (rows_of(scan, data, begin) for scan in scans)
        assert one == other
        found += len(one[0])
    assert found > 200


@pytest.mark.parametrize("version", range(3, 14))
def test_what_is_plain_is_taken_by_the_general_way_too(version: int) -> None:
    rng = random.Random(version)
    scan = ProduceScan(SIZE, ROWS)
    frame = produce(version)
    for _ in range(300):
        mutated = bytearray(frame)
        mutated[rng.randrange(4, len(frame))] = rng.randrange(256)
        rows, _ = rows_of(scan, bytes(mutated))
        for row in rows:
            inner = memoryview(mutated)[4:]
            try:
                header = parse_request_header(inner)
            except RemoteProtocolError:
                client = scan.data[row[Column.CLIENT_BEGIN] : row[Column.CLIENT_END]]
                with pytest.raises(UnicodeDecodeError):
                    client.decode()  # whoever compares it with what it knows finds another
                continue
            single = decode_single_produce(inner, header)
            name = scan.data[row[Column.NAME_BEGIN] : row[Column.NAME_END]]
            if single is None:
                with pytest.raises(UnicodeDecodeError):
                    name.decode()
                continue
            is_by_id = row[Column.VERSION] >= BY_ID
            assert (single.topic_id.bytes if is_by_id else single.topic.encode()) == name
            assert single.acks in (-1, 1)
            assert check_batch(bytes(single.records)).records_count == row[Column.OFFSETS_COUNT]
