"""Receiving from many connections, and answering them: by the C kernel where there is one.

The buffer and its rows are those of protocol.produce_scan.  exchange_pure.py says what the calls
do.  This is the only place where C code gets a socket.
"""

import select
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from segbroker.protocol.kernel import KERNEL_IS_NATIVE
from segbroker.protocol.produce_scan import ProduceScan

from . import exchange_pure
from .exchange_pure import RESULTS

if TYPE_CHECKING or KERNEL_IS_NATIVE:
    from segbroker.protocol._kernel import ffi, lib

    _U8 = ffi.typeof("uint8_t[]")
    _I32 = ffi.typeof("int32_t[]")
    _I64 = ffi.typeof("int64_t[]")

__all__ = ["RESULTS", "Exchange"]

REPLIES_BYTES_MAX: Final = 64 << 10
"""Who is owed more by one call is sent nothing."""


class Exchange(ProduceScan):
    """A scan whose buffer is filled from sockets, and whose rows are answered."""

    def __init__(
        self,
        size: int,
        rows_max: int,
        *,
        connections_max: int = 64,
        native: bool = KERNEL_IS_NATIVE,
    ) -> None:
        """size, rows_max: see ProduceScan; connections_max: how many are received from by one
        call."""
        super().__init__(size, rows_max, native=native)
        self.connections_max = connections_max
        self.results = array("q", bytes(8 * RESULTS * connections_max))
        """Of the last `receive`: RESULTS numbers for each connection."""
        self._one = array("i", [-1])
        if native:
            self._results = ffi.from_buffer(_I64, self.results)
            self._one_fd = ffi.from_buffer(_I32, self._one)
            self._scratch = ffi.new("uint8_t[]", REPLIES_BYTES_MAX)

    def receive(self, fds: "array[int]", begin: int, first: int, *, least: int, most: int) -> int:
        """Receive from these sockets, up to `most` bytes each, into data[begin:], and scan it.

        Of how many there is a result: the others found no room for `least`, or no row.
        """
        assert 0 <= begin <= len(self.data), "a place of the buffer"
        assert len(fds) <= self.connections_max, "a result for each"
        stride = self.rows_max
        if not self._is_native:
            return exchange_pure.receive(
                fds, self.data, begin, least, most, self.columns, stride, first, self.results
            )
        return lib.sb_receive_produce(
            ffi.from_buffer(_I32, fds),
            len(fds),
            self._data,
            begin,
            len(self.data),
            least,
            most,
            self._columns,
            stride,
            first,
            self._results,
        )

    def receive_one(self, fd: int, most: int) -> tuple[int, int, int]:
        """`receive` of one socket into the beginning: (how many bytes, or what `receive` says
        instead; how many rows; where they end)."""
        one = self._one
        one[0] = fd
        if self._is_native:
            lib.sb_receive_produce(
                self._one_fd,
                1,
                self._data,
                0,
                len(self.data),
                0,
                most,
                self._columns,
                self.rows_max,
                0,
                self._results,
            )
        else:
            self.receive(one, 0, 0, least=0, most=most)
        return self._received_one()

    def _received_one(self) -> tuple[int, int, int]:
        _, size, _, rows, stop, _ = self.results[:RESULTS]
        return size, rows, stop

    def hold_one(
        self, epoll: select.epoll, fd: int, nanoseconds: int, most: int
    ) -> tuple[int, int, int] | None:
        """`receive_one` as soon as this socket brings anything, looked at for so long; None: it
        did not, or another one of the epoll is ready as well."""
        if self._is_native:
            found = lib.sb_hold_produce(
                epoll.fileno(),
                fd,
                nanoseconds,
                self._data,
                len(self.data),
                most,
                self._columns,
                self.rows_max,
                self._results,
            )
        else:
            found = exchange_pure.hold(
                epoll.poll,
                fd,
                nanoseconds,
                self.data,
                most,
                self.columns,
                self.rows_max,
                self.results,
            )
        return self._received_one() if found > 0 else None

    def reply(
        self,
        fds: "array[int]",
        firsts: "array[int]",
        counts: "array[int]",
        *,
        frame: bytes,
        offset_at: int,
        correlations: "array[int]",
        offsets: Sequence[int],
    ) -> "array[int]":
        """Send `frame`, filled in for each of the rows [first, first + count), to each of these
        sockets: how many bytes it took, or below 0 the errno.  0: or they are too many."""
        assert len(fds) == len(firsts) == len(counts), "of the same connections"
        if not self._is_native:
            return exchange_pure.reply(
                fds, firsts, counts, frame, offset_at, correlations, offsets, REPLIES_BYTES_MAX
            )
        sent = array("q", bytes(8 * len(fds)))
        lib.sb_reply(
            ffi.from_buffer(_I32, fds),
            ffi.from_buffer(_I32, firsts),
            ffi.from_buffer(_I32, counts),
            len(fds),
            ffi.from_buffer(_U8, frame),
            len(frame),
            offset_at,
            ffi.from_buffer(_I64, correlations),
            ffi.from_buffer(_I64, array("q", offsets)),
            self._scratch,
            REPLIES_BYTES_MAX,
            ffi.from_buffer(_I64, sent),
        )
        return sent
