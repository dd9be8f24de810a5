"""Plain Produce requests, found in what one receive brought: by the C kernel where there is one.

What a plain request is and what the columns say stands in produce_scan_pure.py.
"""

from array import array
from typing import TYPE_CHECKING

from . import produce_scan_pure
from .kernel import KERNEL_IS_NATIVE
from .produce_scan_pure import Column

if TYPE_CHECKING or KERNEL_IS_NATIVE:
    from ._kernel import ffi, lib

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
            self._data = ffi.from_buffer(ffi.typeof("uint8_t[]"), self.data)
            self._columns = ffi.from_buffer(ffi.typeof("int64_t[]"), self.columns)
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
