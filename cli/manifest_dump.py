"""A partition's manifest, row by row: sealed segments, log starts, checkpoints, leader epochs.

Rows are hints written after the fact: a lost or torn one only means that its segment is read again
at the next start.  A row whose checksum is wrong is damage.
"""

from segbroker.segments.files.manifest import ROW_SIZE, Row, RowKind, decode_manifest

from . import dump_report
from .dump_report import Report

# What of a row says something, by its kind.
FIELDS: dict[int, tuple[str, ...]] = {
    RowKind.SEGMENT: Row._fields[1:],
    # The floor lies in end_offset, its reason in records, where the segment begins in the last.
    RowKind.START: ("number", "base_offset", "end_offset", "records", "max_timestamp"),
    RowKind.CHECKPOINT: ("number", "end_offset", "size"),
    RowKind.EPOCH: ("base_offset", "leader_epoch"),
    # It was cleaned first at this time.
    RowKind.CLEANED: ("end_offset", "max_timestamp"),
}


def dump_manifest(content: bytes) -> Report:
    """What a manifest file holds."""
    report = Report("manifest", {"size": len(content)})
    found = decode_manifest(content)
    if found is None:
        report.damage.append("the header is not one of ours; the broker reads every segment")
        return report
    sealed = [row for row in found.rows if row.kind == RowKind.SEGMENT]
    report.facts |= {"rows_count": len(found.rows), "sealed_segments": len(sealed)}
    report.rows.extend(map(_row, found.rows))
    left = len(content) - found.size
    if 0 < left < ROW_SIZE:
        report.torn.append(f"torn tail: {left} bytes, a row has {ROW_SIZE}")
    elif left:
        report.damage.append(
            f"row {len(found.rows)} at byte {found.size} has a wrong checksum;"
            f" {left} bytes from there on are not used"
        )
    return report


def _row(row: Row) -> dump_report.Row:
    known = row.kind in FIELDS
    kind = RowKind(row.kind).name.lower() if known else f"kind {row.kind}"
    fields = FIELDS.get(row.kind, Row._fields[1:])
    return {"kind": kind, **{name: getattr(row, name) for name in fields}}
