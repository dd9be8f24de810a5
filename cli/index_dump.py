"""A segment's index, entry by entry, checked against its log where that lies beside it.

A wrong index is damage of the index only: the broker rebuilds it from the log.  The last blocks of
an active segment are not in its index yet; that is said, and is as it should be.
"""

from segbroker.segments.index import (
    COVERED,
    ENTRY,
    HEADER,
    MAGIC,
    VERSION,
    BadIndex,
    Block,
    BlockIndex,
    block_checksum,
)

from .dump_report import Report


def dump_index(content: bytes, log: bytes | None) -> Report:
    """What an index file holds.

    Args:
        content: all of the index file.
        log: all of the log file, or None when it is not there; checksums are then not checked.
    """
    report = Report("segment index", {"size": len(content)})
    if len(content) < HEADER.size:
        report.torn.append(f"{len(content)} bytes, an index header has {HEADER.size}")
        return report
    magic, version, _, base_offset, created_ms, _ = HEADER.unpack_from(content)
    if magic != MAGIC or version != VERSION:
        report.damage.append(f"magic {magic!r} version {version}, not {MAGIC!r} {VERSION}")
        return report
    report.facts |= {"base_offset": base_offset, "created_ms": created_ms}
    entries = content[HEADER.size :]
    left = len(entries) % ENTRY.size
    if left:
        report.torn.append(f"torn tail: {left} bytes, an entry has {ENTRY.size}")
        entries = entries[: len(entries) - left]
    blocks = [Block._make(fields) for fields in ENTRY.iter_unpack(entries)]
    covered = blocks[-1].end if blocks else 0
    report.facts |= {"blocks": len(blocks), "log_bytes": covered}
    try:
        BlockIndex.from_bytes(
            content[: HEADER.size] + entries, base_offset=base_offset, log_size=covered
        )
    except BadIndex as exc:
        report.damage.append(str(exc))
    for number, block in enumerate(blocks):
        entry = entries[number * ENTRY.size : (number + 1) * ENTRY.size]
        report.rows.append(
            {
                "block": number,
                "offset": base_offset + block.relative_offset,
                "position": block.position,
                "size": block.length,
                "records": block.records,
                "max_timestamp": block.max_timestamp,
                "xxh3": f"{block.checksum:016x}",
            }
        )
        if log is not None:
            _check(report, number, block, entry, log)
    if log is None:
        report.facts["checksums"] = "not checked, the log is not beside it"
    elif len(log) > covered:
        report.facts["not_in_the_index"] = f"{len(log) - covered} bytes of the log"
    return report


def _check(report: Report, number: int, block: Block, entry: bytes, log: bytes) -> None:
    if block.end > len(log):
        report.damage.append(f"block {number} ends at {block.end}, the log has {len(log)} bytes")
        return
    found = block_checksum(log[block.position : block.end], entry[: COVERED.size])
    if found != block.checksum:
        report.damage.append(
            f"block {number} at byte {block.position} of the log:"
            f" XXH3 {block.checksum:016x} in the index, {found:016x} over the bytes"
        )
