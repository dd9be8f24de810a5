"""Receiving from many connections, and answering them: the specification, and the twin.

    receive   fds --> | bytes of 1 | bytes of 2 | ...   one result per connection, rows as of a scan
    hold      the same for one connection, as soon as it, and no other, has sent something
    reply     one frame, filled in for each request --> fds; what each socket took

Only `hold` waits: it looks again and again, for as long as its caller allows.  The result for one
connection is six numbers:

| number | meaning |
|---|---|
| begin, size | where its bytes begin, how many; 0: its peer has closed; below 0: the errno |
| first, rows | its first row, and how many it has |
| stop | where its plain requests end |
| way | the first row in this call that goes the same way as its first one; -1 without rows |

A call tells HEADS_MAX ways apart; a row of a further one, or of an idempotent producer, is a way of
its own.

Invariant: for all bytes, the C kernel returns and sends the same (tested on pairs of sockets).
"""

import os
import socket
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Final

from segbroker.protocol.produce_scan_pure import Column, scan_produce, way_of

__all__ = ["RESULTS", "hold", "receive", "reply"]

RESULTS: Final = 6
HEADS_MAX: Final = 16


def receive(
    fds: Sequence[int],
    data: bytearray,
    begin: int,
    least: int,
    most: int,
    columns: "array[int]",
    stride: int,
    first: int,
    results: "array[int]",
) -> int:
    """Receive up to `most` bytes of each, as long as there is room for `least` and for a row; of
    how many there is a result."""
    heads: list[tuple[int, tuple[object, ...]]] = []
    for n, fd in enumerate(fds):
        if first >= stride or len(data) - begin < least:
            return n
        view = memoryview(data)[begin : min(begin + most, len(data))]
        try:
            size = os.readv(fd, [view])
        except OSError as exc:
            size = -(exc.errno or 0)
        count, stop, way = 0, begin, -1
        if size > 0:
            count, stop = scan_produce(data, begin, begin + size, columns, stride, first)
        if count:
            row = tuple(columns[column * stride + first] for column in Column)
            own = way_of(data, row)
            way = next((head for head, other in heads if other == own), first)
            if row[Column.IS_TRACKED]:
                way = first
            if way == first and len(heads) < HEADS_MAX:
                heads.append((first, () if row[Column.IS_TRACKED] else own))
        results[n * RESULTS : n * RESULTS + RESULTS] = array(
            "q", (begin, size, first, count, stop, way)
        )
        begin += max(size, 0)
        first += count
    return len(fds)


def hold(
    poll: Callable[[float, int], Sequence[tuple[int, int]]],
    fd: int,
    nanoseconds: int,
    data: bytearray,
    most: int,
    columns: "array[int]",
    stride: int,
    results: "array[int]",
) -> int:
    """1: `receive` has filled in a result for this one; -1: another one of the epoll is ready, and
    nothing was received; 0: nobody was, all the time."""
    until = time.monotonic_ns() + nanoseconds
    while True:
        if ready := poll(0, 2):
            if any(other != fd for other, _ in ready):
                return -1
            receive([fd], data, 0, 0, most, columns, stride, 0, results)
            return 1
        if time.monotonic_ns() >= until:
            return 0


def reply(
    fds: Sequence[int],
    firsts: Sequence[int],
    counts: Sequence[int],
    frame: bytes,
    offset_at: int,
    correlations: Sequence[int],
    offsets: Sequence[int],
    room: int,
) -> "array[int]":
    """Send the replies of rows [first, first + count) to each: the bytes that it took, or below 0
    the errno.  0 also where they are more than `room`: nothing was sent then."""
    sent = array("q")
    for fd, first, count in zip(fds, firsts, counts, strict=True):
        if count > room // len(frame):
            sent.append(0)
            continue
        out = bytearray(frame) * count
        for n in range(count):
            at = n * len(frame)
            out[at + 4 : at + 8] = (correlations[first + n] & 0xFFFF_FFFF).to_bytes(4, "big")
            out[at + offset_at : at + offset_at + 8] = offsets[first + n].to_bytes(8, "big")
        try:
            sock = socket.socket(fileno=fd)
            try:
                sent.append(sock.send(out, socket.MSG_DONTWAIT))
            finally:
                sock.detach()  # it is not ours to close
        except OSError as exc:
            sent.append(-(exc.errno or 0))
    return sent
