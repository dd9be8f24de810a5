from cffi import FFI

from .checksums import Buffer

_Data = FFI.CData | bytes

class _Lib:
    def sb_crc32c(self, value: int, data: _Data, size: int) -> int: ...
    def sb_crc32c_table(self, value: int, data: _Data, size: int) -> int: ...
    def sb_check(self, batch: _Data, size: int, mode: int) -> int: ...
    def sb_index(
        self,
        data: _Data,
        position: int,
        size: int,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        use_append_time: int,
        append_time: int,
        ints: FFI.CData,
        longs: FFI.CData,
        totals: FFI.CData,
    ) -> int: ...
    def sb_index_headers(
        self,
        data: _Data,
        size: int,
        ints: FFI.CData,
        count: int,
        headers_count: int,
        header_ints: FFI.CData,
        sizes: FFI.CData,
    ) -> None: ...
    def sb_gather(
        self,
        data: _Data,
        starts: FFI.CData,
        ends: FFI.CData,
        row: int,
        count: int,
        out: FFI.CData,
        out_size: int,
        offsets: FFI.CData,
        validity: FFI.CData,
    ) -> int: ...
    def sb_header_starts(self, counts: FFI.CData, count: int, starts: FFI.CData) -> None: ...
    def sb_select(
        self,
        data: _Data,
        position: int,
        size: int,
        count: int,
        keep: _Data,
        out: FFI.CData,
        latest_delta: FFI.CData,
    ) -> int: ...
    def sb_until_gap(
        self,
        data: _Data,
        size: int,
        offsets: FFI.CData,
        count: int,
        end_offset: FFI.CData,
    ) -> int: ...
    def sb_encode(
        self,
        out: int,
        values: int,
        keys: int,
        headers: int,
        timestamps: FFI.CData,
        timestamp: int,
        attributes: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
    ) -> int: ...
    def sb_slices(
        self, out: int, data: _Data, starts: FFI.CData, ends: FFI.CData, count: int
    ) -> int: ...
    def sb_header_tuples(
        self,
        out: int,
        data: _Data,
        counts: FFI.CData,
        first: int,
        count: int,
        header_ints: FFI.CData,
        headers_count: int,
    ) -> int: ...
    def sb_records(
        self,
        out: int,
        record_type: int,
        prefix: int,
        data: _Data,
        flags: int,
        ints: FFI.CData,
        longs: FFI.CData,
        total: int,
        first: int,
        count: int,
        headers: int,
    ) -> int: ...
    def sb_handout_type(self, out: int) -> int: ...
    def sb_record_type(self, out: int) -> int: ...
    def sb_pending_types(self, out: int) -> int: ...
    def sb_send_method(self, out: int, cls: int, doc: object, /) -> int: ...
    def sb_partitions(
        self, keys: int, count: int, partitions_count: int, out: FFI.CData
    ) -> int: ...
    def sb_scatter(self, out: int, items: int, partitions: FFI.CData, count: int) -> int: ...
    def sb_scan_produce(
        self,
        data: FFI.CData,
        begin: int,
        end: int,
        columns: FFI.CData,
        stride: int,
        most: int,
        stop: FFI.CData,
    ) -> int: ...
    def sb_receive_produce(
        self,
        fds: FFI.CData,
        count: int,
        data: FFI.CData,
        begin: int,
        end: int,
        least: int,
        most: int,
        columns: FFI.CData,
        stride: int,
        first: int,
        results: FFI.CData,
    ) -> int: ...
    def sb_hold_produce(
        self,
        epoll: int,
        fd: int,
        nanoseconds: int,
        data: FFI.CData,
        end: int,
        most: int,
        columns: FFI.CData,
        stride: int,
        results: FFI.CData,
    ) -> int: ...
    def sb_gather_rows(
        self,
        data: FFI.CData,
        columns: FFI.CData,
        stride: int,
        rows: FFI.CData,
        count: int,
        out: FFI.CData,
        room: int,
        fields: FFI.CData,
    ) -> int: ...
    def sb_reply(
        self,
        fds: FFI.CData,
        firsts: FFI.CData,
        counts: FFI.CData,
        count: int,
        frame: FFI.CData,
        size: int,
        offset_at: int,
        correlations: FFI.CData,
        offsets: FFI.CData,
        scratch: FFI.CData,
        room: int,
        sent: FFI.CData,
    ) -> int: ...

class _FFI(FFI):
    def unpack(self, cdata: FFI.CData, length: int) -> list[int]: ...
    def from_buffer(  # type: ignore[override]
        self, cdecl: FFI.CType, python_buffer: Buffer | object, require_writable: bool = False
    ) -> FFI.CData: ...

ffi: _FFI
lib: _Lib
