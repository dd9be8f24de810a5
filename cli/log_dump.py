"""A segment's log file, batch by batch, with what is wrong in it.

    good batch, good batch, ...  [bad bytes, good batch, ...]  [torn tail]

Behind a bad stretch the next good batch is searched: what is told is what recovery would find.

| what                                            | is           |
|-------------------------------------------------|--------------|
| bytes behind the last good batch that cannot be | a torn tail: |
| a whole batch: too short, or zeros only         | not damage   |
| the same, and a later segment exists            | damage       |
| a batch whose checksum or structure is wrong    | damage       |
| an offset that steps back                       | damage       |

A torn tail is what a crash leaves of a write that was never acknowledged; the broker cuts it off
when it starts.
"""

from segbroker.protocol.batch_layout import MAGIC, MAGIC_POSITION
from segbroker.protocol.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    InvalidBatch,
    check_batch,
    decode_batch,
    gap_reason,
    read_header,
)

from .dump_report import Report, Row


def dump_log(content: bytes, *, later_segment: bool, with_records: bool) -> Report:
    """What a log file holds.

    Args:
        content: all of the file.
        later_segment: whether the partition goes on in another segment.
        with_records: also each record.
    """
    report = Report("segment log", {"size": len(content)})
    view = memoryview(content)
    position = 0
    next_offset: int | None = None
    records = 0
    while position < len(view):
        header = _batch_at(view, position)
        if isinstance(header, str):
            after = _next_good(view, position + 1, next_offset or 0)
            _tell_bad(report, view, position, after, header, later_segment)
            position = after
            continue
        if next_offset is not None and header.base_offset < next_offset:
            report.damage.append(
                f"batch at byte {position}: offset {header.base_offset} steps back,"
                f" {next_offset} or more expected"
            )
        batch = view[position : position + header.size]
        report.rows.append(_row(position, header))
        if with_records:
            try:
                report.rows.extend(_record_rows(batch))
            except InvalidBatch as exc:  # a checksum says nothing of what a producer compressed
                report.damage.append(f"batch at byte {position}: {exc}")
        records += header.records_count
        next_offset = header.next_offset
        position += header.size
    batches = [row for row in report.rows if "position" in row]
    report.facts["batches"] = len(batches)
    report.facts["records"] = records
    if batches:
        report.facts["base_offset"] = batches[0]["offset"]
        report.facts["next_offset"] = next_offset
    return report


def _batch_at(view: memoryview, position: int) -> BatchHeader | str:
    """The good batch at `position`, or why there is none."""
    left = len(view) - position
    if left < HEADER_SIZE:
        return f"{left} bytes, a batch header has {HEADER_SIZE}"
    header = read_header(view, position)
    if header.size < HEADER_SIZE:
        return f"batch of {header.size} bytes, a batch header has {HEADER_SIZE}"
    if header.base_offset < 0:  # the checksum does not cover it
        return f"base offset {header.base_offset}"
    if header.size > left:
        return f"batch of {header.size} bytes, {left} left in the file"
    try:
        return check_batch(view[position : position + header.size], stored=True)
    except InvalidBatch as exc:
        return str(exc)


def _next_good(view: memoryview, position: int, offset_min: int) -> int:
    """Where the next good batch begins; the end of the file when none follows."""
    content = bytes(view)
    while True:
        magic = content.find(MAGIC, position + MAGIC_POSITION)
        if magic < 0:
            return len(view)
        position = magic - MAGIC_POSITION
        header = _batch_at(view, position)
        if not isinstance(header, str) and header.base_offset >= offset_min:
            return position
        position += 1


def _tell_bad(
    report: Report, view: memoryview, position: int, after: int, why: str, later_segment: bool
) -> None:
    size = after - position
    at_end = after == len(view)
    cannot_be_whole = " left in the file" in why or size < HEADER_SIZE
    if at_end and (cannot_be_whole or not any(view[position:])):
        what = f"torn tail at byte {position}, {size} bytes: "
        what += why if any(view[position:]) else "zeros"
        if later_segment:
            report.damage.append(f"{what}; a later segment exists")
        else:
            report.torn.append(what)
    else:
        report.damage.append(f"bad batch at byte {position}, {size} bytes: {why}")


def _row(position: int, header: BatchHeader) -> Row:
    reason = gap_reason(header)
    flags = [
        name
        for name, is_set in (
            ("transactional", header.is_transactional),
            ("control", header.is_control and reason is None),
            ("log-append-time", header.is_log_append_time),
            (f"gap: {reason.name.lower()}" if reason else "", reason is not None),
        )
        if is_set
    ]
    return {
        "position": position,
        "size": header.size,
        "offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.records_count,
        "codec": header.codec.name.lower(),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "flags": flags,
    }


def _record_rows(batch: memoryview) -> list[Row]:
    """One row per record.  Raises InvalidBatch."""
    return [
        {
            "record": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": record.key,
            "value": record.value,
            "headers": list(record.headers),
        }
        for record in decode_batch(batch).records()
    ]
