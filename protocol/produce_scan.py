"""Plain Produce requests in a buffer: found, and gathered, by the C kernel where there is one.

What a plain request is and what the columns say stands in produce_scan_pure.py.
"""

from array import array
from typing import TYPE_CHECKING

from . import produce_scan_pure
from .kernel import KERNEL_IS_NATIVE
from .produce_scan_pure import FIELDS, Column

if TYPE_CHECKING or KERNEL_IS_NATIVE:
    from ._kernel import ffi, lib

    _U8 = ffi.typeof("uint8_t[]")
    _I32 = ffi.typeof("int32_t[]")
    _I64 = ffi.typeof("int64_t[]")

__all__ = ["Column", "ProduceScan"]


class ProduceScan:
    """A buffer that receives come into, and the rows of the plain requests in it.

    Column c of row n is `columns[c * rows_max + n]`, valid until a scan writes the row again.
    """

    def __init__(self, size: int, rows_max: int, *, native: bool = KERNEL_IS_NATIVE) -> None:
        """size: bytes of the buffer; rows_max: how many rows there is room for."""
        self.data = bytearray(size)
        self.columns = array("q", bytes(8 * len(Column) * rows_max))
        self.rows_max = rows_max
        self._is_native = native
        if native:
            # Held: what C writes to must neither move nor go away.
            self._data = ffi.from_buffer(_U8, self.data)
            self._columns = ffi.from_buffer(_I64, self.columns)
            self._stop = ffi.new("int64_t[1]")

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

    def gather(self, rows: "array[int]", size: int) -> tuple[memoryview, "array[int]"]:
        """(the batches of these rows, `size` bytes in all, one behind the other; the columns FIELDS
        of them, one behind the other).  One alone is not copied: it stands until a receive."""
        if len(rows) == 1:
            columns, stride, row = self.columns, self.rows_max, rows[0]
            begin = columns[Column.RECORDS_BEGIN * stride + row]
            one = array("q", [columns[field * stride + row] for field in FIELDS])
            return memoryview(self.data)[begin : begin + size], one
        if not self._is_native:
            data, found = produce_scan_pure.gather(self.data, self.columns, self.rows_max, rows)
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
