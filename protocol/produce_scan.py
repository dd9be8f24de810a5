"""Plain Produce requests of many connections: received, found, gathered and answered, by the C
kernel where there is one.

What a plain request is and what the columns say stands in produce_scan_pure.py, what the calls for
many connections at once do in exchange_pure.py.
"""

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from . import exchange_pure, produce_scan_pure
from .exchange_pure import FIELDS, RESULTS
from .kernel import KERNEL_IS_NATIVE
from .produce_scan_pure import Column

if TYPE_CHECKING or KERNEL_IS_NATIVE:
    from ._kernel import ffi, lib

    _U8 = ffi.typeof("uint8_t[]")
    _I32 = ffi.typeof("int32_t[]")
    _I64 = ffi.typeof("int64_t[]")

__all__ = ["FIELDS", "RESULTS", "Column", "ProduceScan"]

REPLIES_BYTES_MAX: Final = 64 << 10
"""Who is owed more by one call is sent nothing."""


class ProduceScan:
    """A buffer that receives come into, and the rows of the plain requests in it.

    Column c of row n is `columns[c * rows_max + n]`, valid until a scan writes the row again.
    """

    def __init__(
        self,
        size: int,
        rows_max: int,
        *,
        connections_max: int = 64,
        native: bool = KERNEL_IS_NATIVE,
    ) -> None:
        """size: bytes of the buffer; rows_max: how many rows there is room for; connections_max:
        how many are received from by one call."""
        self.data = bytearray(size)
        self.columns = array("q", bytes(8 * len(Column) * rows_max))
        self.rows_max = rows_max
        self.connections_max = connections_max
        self.results = array("q", bytes(8 * RESULTS * connections_max))
        """Of the last `receive`: RESULTS numbers for each connection."""
        self._one = array("i", [-1])
        self._is_native = native
        if native:
            # Held: what C writes to must neither move nor go away.
            self._data = ffi.from_buffer(_U8, self.data)
            self._columns = ffi.from_buffer(_I64, self.columns)
            self._results = ffi.from_buffer(_I64, self.results)
            self._stop = ffi.new("int64_t[1]")
            self._one_fd = ffi.from_buffer(_I32, self._one)
            self._scratch = ffi.new("uint8_t[]", REPLIES_BYTES_MAX)

    def scan(self, begin: int, end: int, first: int) -> tuple[int, int]:
        """(how many plain frames data[begin:end] begins with, where they end).

        Their rows are written from row `first` on, as far as there is room.
        """
        assert 0 <= begin <= end <= len(self.data), "a part of the buffer"
        stride = self.rows_max
        if not self._is_native:
            return produce_scan_pure.scan_produce(
                self.data, begin, end, self.columns, stride, first
            )
        count = lib.sb_scan_produce(
            self._data, begin, end, self._columns + first, stride, stride - first, self._stop
        )
        return count, self._stop[0]

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
        _, size, _, rows, stop, _ = self.results[:RESULTS]
        return size, rows, stop

    def gather(self, rows: "array[int]", size: int) -> tuple[memoryview, "array[int]"]:
        """(the batches of these rows, `size` bytes in all, one behind the other; the columns FIELDS
        of them, one behind the other).  One alone is not copied: it stands until a receive."""
        if len(rows) == 1:
            columns, stride, row = self.columns, self.rows_max, rows[0]
            begin = columns[Column.RECORDS_BEGIN * stride + row]
            one = array("q", [columns[field * stride + row] for field in FIELDS])
            return memoryview(self.data)[begin : begin + size], one
        if not self._is_native:
            data, found = exchange_pure.gather(self.data, self.columns, self.rows_max, rows)
            return memoryview(data), found
        out, fields = bytearray(size), array("q", bytes(8 * len(FIELDS) * len(rows)))
        total = lib.sb_gather_rows(
            self._data,
            self._columns,
            self.rows_max,
            ffi.from_buffer(_I32, rows),
            len(rows),
            ffi.from_buffer(_U8, out),
            size,
            ffi.from_buffer(_I64, fields),
        )
        assert total == size, "the sizes of the rows"
        return memoryview(out), fields

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
