"""A file of the write-ahead log, frame by frame.

| what                                                     | is                    |
|----------------------------------------------------------|-----------------------|
| a frame missing that a later one says was durable        | damage                |
| a frame missing of the group that was being written      | a torn write, as said |
| bytes behind the last frame                              | torn, or an earlier   |
|                                                          | use of the file       |
| bytes in a kept- file that are no frames                 | damage                |
| nothing where the first frame begins, a later group      | damage                |
| a header that is none                                    | damage                |
| a spare file (free-<n>.log)                              | nothing is in it      |

Of a user its mechanisms and their iterations are shown: who reads a report has no business with
salts and keys.
"""

import re
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from segbroker.protocol.record_batch import InvalidBatch, iter_batches, read_header
from segbroker.protocol.scram import ScramMechanism
from segbroker.segments.errors import CorruptSegment, UnsupportedFormat
from segbroker.segments.metadata import credentials
from segbroker.segments.metadata.control import Event, decode_event
from segbroker.segments.wal.frames import (
    MAGIC,
    VERSION,
    Frame,
    FrameType,
    decode_header,
    header_of,
    later_version,
)
from segbroker.segments.wal.kept import holes_of
from segbroker.segments.wal.missing import frames_missing, missing_in_front
from segbroker.segments.wal.scanning import scan_file

from .dump_report import Report, Row

_MECHANISMS: Final = {int(one): one.label for one in ScramMechanism}
# Not only the beginning: topics may be called wal-x or free-trials.
_NAME: Final = re.compile(r"(wal|free|kept)-\d+\.log")


def is_wal_file(name: str, content: bytes) -> bool:
    """Whether a .log file is one of the write-ahead log, not of a segment."""
    return content[: len(MAGIC)] == MAGIC or _NAME.fullmatch(name) is not None


def dump_wal(content: bytes, name: str) -> Report:
    """What a file of the write-ahead log holds."""
    report = Report("write-ahead log", {"size": len(content)})
    header = header_of(content)
    if name.startswith("free-"):
        report.kind = "spare file of the write-ahead log"
        return report
    if header is None:
        why = "the header is damaged: without it no frame can be checked"
        if version := later_version(content):
            why = str(UnsupportedFormat(name, version, f"1 to {VERSION}"))
        report.damage.append(why)
        return report
    if decode_header(content) is None:
        report.damage.append("the first header is damaged: its copy stands in")
    found = scan_file(memoryview(content), header)
    if not name.startswith("kept-") and found.cut is not None:
        report.damage.append(f"{found.cut.size} bytes are missing at its end")
    report.facts |= {
        "shard": header.shard,
        "sequence": header.sequence,
        "salt": f"{header.salt:016x}",
        "frames": len(found.frames),
        "end": found.end,
    }
    for position, frame in zip(found.positions, found.frames, strict=True):
        report.rows.append(_row(position, frame, report))
    if name.startswith("kept-"):
        for hole in holes_of(found):
            text = f"bytes {hole.position} to {hole.position + hole.size} are no frames"
            report.damage.append(f"{text}, and the file was written whole")
        return report
    holes = list(frames_missing([(name, frame) for frame in found.frames]))
    if in_front := missing_in_front([(name, found)]):
        holes.insert(0, in_front[0])
    for missing in holes:
        text = f"{missing.what} are not there"
        if missing.durable:
            report.damage.append(f"{text}, and they were durable")
        else:
            report.torn.append(f"{text}: of a group that was being written")
    if any(content[found.end : found.size]):
        report.torn.append(
            f"behind byte {found.end} lies nothing of this use of the file: a torn write, or an"
            " earlier use"
        )
    return report


def _row(position: int, frame: Frame, report: Report) -> Row:
    says: object
    match frame.type:
        case FrameType.BATCHES:
            says = _batches(position, frame, report)
        case FrameType.CONTROL:
            says = _event(position, frame, report)
        case FrameType.END:
            says = f"synced up to offset {frame.base_offset}"
        case FrameType.MARK:
            says = "everything before it was durable"
        case FrameType.KEPT:
            says = f"there was a file kept-{frame.base_offset}.log"
        case FrameType.GIVEN_UP:
            says = f"frames from lsn {frame.base_offset} on were given up: they never were"
        case _:
            says = "earlier frames of this partition are void"
    return {
        "position": position,
        "size": frame.size,
        "lsn": frame.lsn,
        "ordinal": frame.ordinal,
        "type": frame.type.name.lower(),
        "topic_id": str(UUID(bytes=frame.topic_id)) if any(frame.topic_id) else None,
        "partition": frame.partition,
        "segment": frame.segment,
        "at": frame.position,
        "offset": frame.base_offset,
        "says": says,
    }


def _batches(position: int, frame: Frame, report: Report) -> str:
    try:
        headers = [read_header(batch) for batch in iter_batches(frame.payload)]
    except InvalidBatch as exc:
        report.damage.append(f"frame at byte {position}: {exc}")
        return "no batches"
    return f"{len(headers)} batches, offsets {headers[0].base_offset}-{headers[-1].last_offset}"


def _event(position: int, frame: Frame, report: Report) -> dict[str, object]:
    try:
        event = decode_event(bytes(frame.payload))
    except CorruptSegment as exc:
        report.damage.append(f"frame at byte {position}: {exc.reason}")
        return {}
    return {"seq": event.seq, "kind": event.kind, **_shown(event)}


def _shown(event: Event) -> Mapping[str, Any]:
    """What an event says, but for what passwords are checked by."""
    match event.kind:
        case credentials.USERS_SECRET:
            return {}
        case credentials.USER_SET:
            rows = event.fields["rows"]
            iterations = {_MECHANISMS.get(row[0], row[0]): row[1] for row in rows}
            gone = [_MECHANISMS.get(one, one) for one in event.fields.get("gone", ())]
            more = {"gone": gone} if gone else {}
            return {"name": event.fields["name"], "credentials": iterations, **more}
        case _:
            return event.fields
