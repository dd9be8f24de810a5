"""A segment's index, entry by entry, checked against its log where that lies beside it.

A wrong index is damage of the index only: the broker rebuilds it from the log.
"""

from segbroker.segments.files.index import (
    ENTRY,
    ENTRY_SIZE,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    VERSION,
    Block,
    WrongIndex,
    decode_index,
)

from .dump_report import Report


def dump_index(content: bytes, log: bytes | None) -> Report:
    """What an index file holds.

    Args:
        content: all of the index file.
        log: all of the log file, or None when it is not there; checksums are then not checked.
    """
    report = Report("segment index", {"size": len(content)})
    if len(content) < HEADER_SIZE:
        report.torn.append(f"torn tail: {len(content)} bytes, an index header has {HEADER_SIZE}")
        return report
    magic, version, _, base_offset, created_ms, _ = HEADER.unpack_from(content)
    if magic != MAGIC or version != VERSION:
        report.damage.append(f"magic {magic!r} version {version}, not {MAGIC!r} {VERSION}")
        return report
    left = (len(content) - HEADER_SIZE) % ENTRY_SIZE
    if left:
        report.torn.append(f"torn tail: {left} bytes, an entry has {ENTRY_SIZE}")
        content = content[:-left]
    blocks = list(map(Block._make, ENTRY.iter_unpack(content[HEADER_SIZE:])))
    covered = sum(block.length for block in blocks)
    report.facts |= {
        "base_offset": base_offset,
        "created_ms": created_ms,
        "blocks": len(blocks),
        "log_bytes": covered,
    }
    try:
        decode_index(content, base_offset, covered if log is None else len(log))
    except WrongIndex as exc:
        report.damage.append(str(exc))
    for number, block in enumerate(blocks):
        report.rows.append(
            {
                "block": number,
                "offset": base_offset + block.offset,
                "position": block.position,
                "size": block.length,
                "records": block.records,
                "max_timestamp": block.max_timestamp,
                "xxh3": f"{block.checksum:016x}",
            }
        )
        if log is not None and not block.matches(
            log[block.position : block.position + block.length]
        ):
            report.damage.append(
                f"block {number}: the XXH3 of its entry is not that of the"
                f" {block.length} bytes at byte {block.position} of the log"
            )
    if log is None:
        report.facts["checksums"] = "not checked, the log is not beside it"
    return report
