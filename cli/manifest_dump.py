"""A partition's manifest: the log start and a row per sealed segment.

Rows are hints written after the fact: a lost or torn one only means that its segment is read again
at the next start.  A row whose checksum is wrong is damage.
"""

from segbroker.segments import manifest

from .dump_report import Report


def dump_manifest(content: bytes) -> Report:
    """What a manifest file holds."""
    report = Report("manifest", {"size": len(content)})
    found = manifest.decode(content)
    if found is None:
        report.damage.append("the header is not one of ours; the broker probes every segment")
        return report
    segments = found.segments
    report.facts |= {
        "log_start_offset": found.log_start_offset,
        "leader_epoch": found.leader_epoch,
        "sealed_segments": len(segments),
        "records": segments.total_records,
        "log_bytes": segments.total_size,
    }
    report.rows.extend(segments[number]._asdict() for number in range(len(segments)))
    left = len(content) - found.valid_size
    if 0 < left < manifest.ROW.size:
        report.torn.append(f"torn tail: {left} bytes, a row has {manifest.ROW.size}")
    elif left:
        report.damage.append(f"row {len(segments)} is bad, {left} bytes from there on are not used")
    return report
