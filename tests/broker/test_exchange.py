"""Receiving from many connections and answering them: C and its twin do the same, and no call
waits, whatever a socket gives or takes."""

import contextlib
import errno
import random
import select
import socket
import threading
from array import array
from collections.abc import Iterator
from uuid import UUID

import pytest

from segbroker.broker.producing.exchange import RESULTS, Exchange
from segbroker.protocol.headers import encode_request
from segbroker.protocol.hot import ProducedReply, encode_single_produce_response
from segbroker.protocol.kernel import KERNEL_IS_NATIVE
from segbroker.protocol.messages_core import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from segbroker.protocol.produce_scan import Column
from segbroker.protocol.record_batch import encode_batch

SIZE = 1 << 16
ROWS = 40
both_twins = pytest.mark.parametrize(
    "native",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.skipif(not KERNEL_IS_NATIVE, reason="no C kernel here")
        ),
    ],
)
Pair = tuple[socket.socket, socket.socket]


@contextlib.contextmanager
def pairs(count: int) -> Iterator[list[Pair]]:
    """Pairs of connected sockets: (the broker's end, which never waits; the client's)."""
    made = [socket.socketpair() for _ in range(count)]
    try:
        for ours, theirs in made:
            ours.setblocking(False)
            theirs.setblocking(False)
        yield made
    finally:
        for pair in made:
            for sock in pair:
                sock.close()


def produce(rng: random.Random, *, tracked: bool = False) -> bytes:
    producer_id, number = (3, 0) if tracked else (-1, -1)
    records = encode_batch(
        [rng.randbytes(rng.randrange(40)) for _ in range(rng.choice((1, 1, 3)))],
        timestamps_ms=rng.randrange(1 << 40),
        producer_id=producer_id,
        producer_epoch=number,
        base_sequence=number,
    )
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=rng.choice((1_000, 1_000, 1_000, 5)),
        topic_data=[
            ProduceRequestTopic(
                name=rng.choice(("t", "t", "täglich")),
                partition_data=[
                    ProduceRequestPartition(index=rng.choice((0, 0, 0, 1)), records=records)
                ],
            )
        ],
    )
    version, client = rng.choice((7, 9, 9, 9)), rng.choice(("c", "c", "c", None, ""))
    return b"".join(encode_request(request, version, rng.randrange(1 << 31), client))


def brought(rng: random.Random) -> bytes | None:
    """What one connection has sent; None: it has closed."""
    kind = rng.random()
    if kind < 0.1:
        return None
    if kind < 0.2:
        return b""
    frames = [produce(rng, tracked=rng.random() < 0.1) for _ in range(rng.choice((1, 1, 1, 4)))]
    data = bytearray(b"".join(frames))
    if rng.random() < 0.3:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.2:
        del data[rng.randrange(len(data)) :]
    return bytes(data)


def received(
    scan: Exchange, contents: list[bytes | None], begin: int, first: int, least: int, most: int
) -> tuple[list[list[int]], bytes, list[list[int]]]:
    """(the results, the bytes, the rows) of receiving from connections with these contents."""
    scan.data[:] = bytes(SIZE)
    scan.columns[:] = array("q", bytes(8 * len(scan.columns)))
    with pairs(len(contents)) as made:
        for (_, theirs), content in zip(made, contents, strict=True):
            if content is None:
                theirs.close()
            else:
                theirs.send(content)
        fds = array("i", [ours.fileno() for ours, _ in made])
        count = scan.receive(fds, begin, first, least=least, most=most)
    results = [list(scan.results[n * RESULTS : n * RESULTS + RESULTS]) for n in range(count)]
    rows = [
        [scan.columns[column * scan.rows_max + row] for column in Column]
        for row in range(scan.rows_max)
    ]
    return results, bytes(scan.data), rows


@pytest.mark.skipif(not KERNEL_IS_NATIVE, reason="no C kernel here")
@pytest.mark.parametrize("seed", range(6))
def test_c_and_its_twin_receive_the_same(seed: int) -> None:
    rng = random.Random(seed)
    scans = [Exchange(SIZE, ROWS, native=native) for native in (True, False)]
    together = cut = 0
    for _ in range(60):
        contents = [brought(rng) for _ in range(rng.randrange(1, 30))]
        first, begin = rng.randrange(ROWS), rng.randrange(SIZE)
        least, most = rng.choice((1, 4_096, SIZE // 2)), rng.choice((100, 400, 1 << 16))
        one, other = (received(scan, contents, begin, first, least, most) for scan in scans)
        assert one == other
        results, _, rows = one
        cut += len(results) < len(contents)
        for _, _, row, count, _, way in results:
            assert (way < 0) == (count == 0)
            if count and way != row:
                together += 1
                for column in (Column.PARTITION, Column.TIMEOUT, Column.VERSION):
                    assert rows[way][column] == rows[row][column]
    assert together > 20
    assert cut


@both_twins
def test_one_call_tells_of_each_connection_what_it_gave(native: bool) -> None:
    rng = random.Random(1)
    scan = Exchange(SIZE, ROWS, native=native)
    frame = produce(rng)
    contents = [frame, b"", frame * 2 + b"\0\0", None, frame, b"\0\0\0\xff"]
    results, data, _ = received(scan, contents, 10, 3, 1, 1 << 16)
    size = len(frame)
    places = [10, 10 + size, 10 + size, 12 + 3 * size, 12 + 3 * size, 12 + 4 * size]
    assert results == [
        [places[0], size, 3, 1, places[0] + size, 3],
        [places[1], -errno.EAGAIN, 4, 0, places[1], -1],
        [places[2], 2 * size + 2, 4, 2, places[2] + 2 * size, 3],
        [places[3], 0, 6, 0, places[3], -1],
        [places[4], size, 6, 1, places[4] + size, 3],
        [places[5], 4, 7, 0, places[5], -1],
    ]
    assert data[10 : 16 + 4 * size] == b"".join(content or b"" for content in contents)


@both_twins
def test_more_than_sixteen_ways_stand_for_themselves(native: bool) -> None:
    scan = Exchange(SIZE, ROWS, native=native)
    rng = random.Random(2)
    frames: list[bytes] = []
    while len(frames) < 18:
        frame = bytearray(produce(random.Random(3)))
        frame[8:12] = rng.randbytes(4)  # the correlation id is no part of the way
        at = frame.index(b"\0\0\x03\xe8")
        frame[at : at + 4] = len(frames).to_bytes(4, "big")
        frames.append(bytes(frame))
    results, _, _ = received(scan, [*frames, frames[0], frames[17], frames[15]], 0, 0, 1, 1 << 16)
    assert [result[5] for result in results] == [*range(18), 0, 19, 15]


@both_twins
def test_one_alone_is_received_as_of_many(native: bool) -> None:
    scan = Exchange(SIZE, ROWS, native=native)
    frame = produce(random.Random(4))
    with pairs(1) as [(ours, theirs)]:
        assert scan.receive_one(ours.fileno(), 1 << 16) == (-errno.EAGAIN, 0, 0)
        theirs.send(frame + b"\0")
        assert scan.receive_one(ours.fileno(), 1 << 16) == (len(frame) + 1, 1, len(frame))
        theirs.send(frame)
        assert scan.receive_one(ours.fileno(), 50) == (50, 0, 0)
        theirs.close()
        assert scan.receive_one(ours.fileno(), 1 << 16)[0] == len(frame) - 50
        assert scan.receive_one(ours.fileno(), 1 << 16) == (0, 0, 0)


@both_twins
def test_one_alone_is_looked_at_until_it_brings_something_or_another_one_does(native: bool) -> None:
    scan = Exchange(SIZE, ROWS, native=native)
    frame = produce(random.Random(4))
    with pairs(2) as [(ours, theirs), (other, others)], select.epoll() as epoll:
        fd = ours.fileno()
        epoll.register(fd, select.EPOLLIN)
        epoll.register(other.fileno(), select.EPOLLIN)
        assert scan.hold_one(epoll, fd, 1_000_000, 1 << 16) is None
        assert scan.hold_one(epoll, fd, -1, 1 << 16) is None
        theirs.send(frame + b"\0")
        assert scan.hold_one(epoll, fd, -1, 1 << 16) == (len(frame) + 1, 1, len(frame))
        sender = threading.Timer(0.02, theirs.send, (frame,))
        sender.start()
        assert scan.hold_one(epoll, fd, 60 * 10**9, 1 << 16) == (len(frame), 1, len(frame))
        sender.join()
        theirs.send(frame)
        others.send(frame)
        assert scan.hold_one(epoll, fd, 60 * 10**9, 1 << 16) is None
        assert scan.receive_one(fd, 1 << 16)[0] == len(frame), "it was left in the socket"
        assert scan.hold_one(epoll, fd, 60 * 10**9, 1 << 16) is None, "the other one still waits"
        other.recv(1 << 16)
        theirs.close()
        assert scan.hold_one(epoll, fd, 60 * 10**9, 1 << 16) == (0, 0, 0)


@both_twins
def test_batches_are_gathered_with_their_fields(native: bool) -> None:
    scan = Exchange(SIZE, ROWS, native=native)
    rng = random.Random(5)
    received(scan, [produce(rng) for _ in range(9)], 0, 0, 1, 1 << 16)

    def column(which: Column, rows: "array[int]") -> list[int]:
        return [scan.columns[which * ROWS + row] for row in rows]

    for chosen in ([0], [3, 1, 8], list(range(9))):
        rows = array("i", chosen)
        begins, sizes = column(Column.RECORDS_BEGIN, rows), column(Column.RECORDS_SIZE, rows)
        batches, fields = scan.gather(rows, sum(sizes))
        assert batches == b"".join(
            scan.data[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)
        )
        assert list(fields) == [
            *column(Column.CORRELATION, rows),
            *sizes,
            *column(Column.OFFSETS_COUNT, rows),
            *column(Column.MAX_TIMESTAMP, rows),
        ]


@both_twins
@pytest.mark.parametrize("version", range(3, 14))
def test_each_connection_is_sent_its_own_replies(version: int, native: bool) -> None:
    scan = Exchange(SIZE, ROWS, native=native)
    topic_id = UUID(int=5 << 90)
    reply = ProducedReply(
        version, "täglich", 3, log_start_offset=2, throttle_time_ms=7, topic_id=topic_id
    )
    correlations = array("q", [5, -1, 1 << 30, 0, 9, 8])
    offsets = [1 << 40, 0, 7, 8, 9, 1]
    counts = [1, 3, 2]
    with pairs(3) as made:
        sent = scan.reply(
            array("i", [ours.fileno() for ours, _ in made]),
            array("i", [0, 1, 4]),
            array("i", counts),
            frame=reply.encode(0, 0),
            offset_at=reply.offset_at,
            correlations=correlations,
            offsets=offsets,
        )
        row = 0
        for (_, theirs), count, size in zip(made, counts, sent, strict=True):
            got = theirs.recv(1 << 16)
            assert size == len(got)
            assert got == b"".join(
                encode_single_produce_response(
                    version,
                    correlations[n],
                    "täglich",
                    3,
                    base_offset=offsets[n],
                    log_start_offset=2,
                    throttle_time_ms=7,
                    topic_id=topic_id,
                )
                for n in range(row, row + count)
            )
            row += count


@both_twins
def test_what_a_socket_does_not_take_is_told(native: bool) -> None:
    scan = Exchange(SIZE, ROWS, native=native)
    reply = ProducedReply(9, "t" * 100, 0, log_start_offset=0, throttle_time_ms=0)
    frame = reply.encode(0, 0)
    many = 2_000
    assert many * len(frame) > SIZE, "more than one connection may have"
    with pairs(5) as made:
        for ours, _ in made[:2]:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        with contextlib.suppress(BlockingIOError):
            while True:
                made[0][0].send(bytes(1 << 12))
        made[2][1].close()
        sent = scan.reply(
            array("i", [ours.fileno() for ours, _ in made]),
            array("i", [0, 0, 0, 0, 0]),
            array("i", [1, 400, 1, many, 1]),
            frame=frame,
            offset_at=reply.offset_at,
            correlations=array("q", range(many)),
            offsets=range(many),
        )
        assert sent[0] == -errno.EAGAIN
        assert sent[1] == -errno.EAGAIN or 0 < sent[1] <= 400 * len(frame)
        assert sent[2] == -errno.EPIPE
        assert sent[3] == 0
        assert sent[4] == len(frame), "the others are sent theirs"
        for (_, theirs), size in ((made[3], 0), (made[4], len(frame))):
            if size:
                assert theirs.recv(1 << 16) == frame
            else:
                with pytest.raises(BlockingIOError):
                    theirs.recv(1)
