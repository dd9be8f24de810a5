"""Opening a log: read what is known, scan what is not, act on the decisions of `recovery`.

    manifest       -> sealed segments, log start, epochs, checkpoint; no segment is touched
    k+1, k+2 ...   -> every file behind the manifest's end is read and scanned
    decide         -> keep, cut, or repair each (recovery.py has the table)
    sync           -> what is kept is durable before anybody is served from it
    seal           -> all but the last
    producers      -> snapshot, then the headers of the batches behind it

Repairing puts a synced copy of the damaged file into quarantine/ first, then replaces the file by
temp + rename: whenever the power goes, either the damaged original or the repaired file stands
under the segment's name, so recovery may be interrupted anywhere and started again.

A log that was closed in order costs: the manifest, the last segment, the snapshot.  Directories
are listed only when the manifest does not end with a checkpoint that fits.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

import structlog

from segbroker.protocol.batch_pure import HEADER_SIZE, LENGTH_END
from segbroker.protocol.record_batch import BatchHeader, read_header

from .caches import FileCache, IndexCache, OpenLogs
from .columns import SealedSegments
from .errors import CorruptSegment
from .manifest import Manifest, Row, RowKind, decode_manifest, encode_manifest
from .names import LogPaths
from .partition_log import PartitionLog
from .producers import ProducerTable, decode_producers
from .recovery import Decision, Scan, Tail, base_offset_of, decide, first_offset_of, rebuild, scan
from .sealed import SealedFiles
from .sealing import seal
from .segment import ActiveSegment
from .storage import Advice, Storage, make_dirs, read_file, replace_file, write_temporary
from .topic_config import TopicConfig

log = structlog.get_logger()

EventSink: TypeAlias = Callable[[str, dict[str, object]], None]
QUARANTINE_TRIES_MAX: Final = 10_000


class _Known(NamedTuple):
    """What the manifest says."""

    sealed: SealedSegments
    log_start_offset: int
    epochs: list[tuple[int, int]]
    checkpoint: Row | None
    size: int
    """Valid bytes of the file; 0: it has to be written anew."""


class _File(NamedTuple):
    """A segment file behind the manifest."""

    number: int
    data: memoryview
    starts_at: int
    scan: Scan


def open_log(
    storage: Storage,
    paths: LogPaths,
    config: TopicConfig,
    files: FileCache,
    indexes: IndexCache,
    open_logs: OpenLogs,
    *,
    now_ms: int,
    leader_epoch: int = 0,
    create: bool = True,
) -> PartitionLog:
    """Open the log in `paths`, recovering what a crash left; an empty one when there is none.

    leader_epoch: the least that the log begins with.  `create`: make the directory if missing.
    Raises CorruptSegment when the directory is missing and may not be made, OSError.
    """
    known = _read_manifest(storage, paths)
    if known is None and not storage.exists(paths.folder):
        if not create:
            raise CorruptSegment(paths.folder, 0, "the partition's directory is missing")
        make_dirs(storage, paths.folder)
    contents = _unsealed_files(storage, paths, known)
    if known is None:
        sealed = SealedSegments(contents[0][0] if contents else 0, 0)
        known = _Known(sealed, -1, [], None, 0)
    elif contents and not len(known.sealed):
        # Nothing but its first batch says where the first segment begins: a log start that was set
        # by a request may lie anywhere inside it.
        base_offset = base_offset_of(contents[0][1])
        if base_offset is not None and base_offset < known.log_start_offset:
            known.sealed.end_offset = base_offset
    found = _scan_all(known, contents)
    log_start_offset = known.log_start_offset
    if log_start_offset < 0:
        log_start_offset = found[0].starts_at if found else 0
        known.sealed.end_offset = log_start_offset
    last = max(
        (
            place
            for place, file in enumerate(found)
            if file.scan.batches or file.scan.tail is Tail.HOLE
        ),
        default=0,
    )
    is_clean = _is_clean(known, found, last)
    if not is_clean:
        _act(storage, paths, config, known, found, last, now_ms=now_ms, leader_epoch=leader_epoch)
    unsealed: list[ActiveSegment] = []
    try:
        unsealed += [_activate(storage, paths, config, file, now_ms) for file in found[: last + 1]]
        if not unsealed:
            unsealed = [_new_segment(storage, paths, config, known.sealed, leader_epoch, now_ms)]
        epochs = _epochs(known, unsealed, leader_epoch)
        # An epoch that begins here is durable before a batch carries it.
        is_clean = is_clean and epochs == known.epochs
        manifest_size = known.size if epochs == known.epochs else 0
        if not manifest_size:
            manifest_size = _write_manifest(
                storage, paths, known.sealed, epochs, log_start_offset, now_ms
            )
        if not is_clean:
            # What is kept is durable before anybody is served from it.
            storage.fsync_dir(paths.folder)
            for segment in unsealed:
                if segment.size or found:
                    segment.opened().fdatasync()
        for segment in unsealed:
            segment.synced_size = segment.size
        opened = PartitionLog(
            storage,
            paths,
            config,
            SealedFiles(storage, paths, files, indexes, config.index_interval_bytes, epochs),
            sealed=known.sealed,
            unsealed=unsealed,
            log_start_offset=log_start_offset,
            epochs=epochs,
            manifest_size=manifest_size,
            open_logs=open_logs,
            made=max([unsealed[-1].number, *(file.number for file in found)]),
        )
        if is_clean:
            opened.checkpointed = opened.log_end_offset
        _replay_producers(opened)
        if len(unsealed) > 1:
            seal(opened)
    except BaseException:
        # Tried again every second while a disk is full: nothing may stay open.
        for segment in unsealed:
            if segment.file is not None:
                segment.file.close()
                segment.file = None
        files.drop(paths.folder)
        raise
    if opened.active.file is not None:
        open_logs.add(opened)
    return opened


def _is_clean(known: _Known, found: list[_File], last: int) -> bool:
    """Whether the log is what its last checkpoint says: whole, and synced then."""
    checkpoint = known.checkpoint
    if checkpoint is None or not known.size or last or not found:
        return False
    file = found[0]
    return (
        checkpoint.number == file.number
        and checkpoint.size == len(file.data)
        and checkpoint.end_offset == file.scan.next_offset
        and file.starts_at == known.sealed.end_offset
        and file.scan.tail is Tail.WHOLE
        and not any(len(behind.data) for behind in found[1:])
    )


def _write_manifest(
    storage: Storage,
    paths: LogPaths,
    sealed: SealedSegments,
    epochs: list[tuple[int, int]],
    log_start_offset: int,
    now_ms: int,
) -> int:
    """Put a manifest without history in the place of the old one; its size.  Its name is not
    synced yet."""
    start = Row(RowKind.START, number=sealed.first_number, base_offset=log_start_offset)
    rows = [
        *(Row(RowKind.EPOCH, leader_epoch=epoch, base_offset=begin) for epoch, begin in epochs),
        start,
        *sealed.rows(),
    ]
    encoded = encode_manifest(now_ms, rows)
    write_temporary(storage, paths.manifest + ".tmp", encoded)
    storage.rename(paths.manifest + ".tmp", paths.manifest)
    return len(encoded)


def _read_manifest(storage: Storage, paths: LogPaths) -> _Known | None:
    """What the manifest says; None when there is none or its header is wrong."""
    try:
        data = read_file(storage, paths.manifest)
    except FileNotFoundError:
        return None
    manifest = decode_manifest(data)
    if manifest is None:
        log.warning("manifest_unreadable", path=paths.manifest, bytes=len(data))
        return None
    rows, start, epochs, checkpoint, is_whole = _sort_rows(manifest)
    first = start.number if start is not None else (rows[0].number if rows else 0)
    log_start_offset = start.base_offset if start is not None else 0
    rows = [row for row in rows if row.number >= first]
    base_offset = rows[0].base_offset if rows else log_start_offset
    sealed = SealedSegments(first, base_offset)
    sealed.fill(rows)
    # Rows behind a damaged one would be unreachable for ever: the file is written anew.
    size = manifest.size if is_whole and manifest.size == len(data) else 0
    return _Known(sealed, log_start_offset, epochs, checkpoint, size)


def _sort_rows(
    manifest: Manifest,
) -> tuple[list[Row], Row | None, list[tuple[int, int]], Row | None, bool]:
    """(segments in order, last start, epochs, last checkpoint, whether all rows were used)."""
    rows: list[Row] = []
    start: Row | None = None
    checkpoint: Row | None = None
    epochs: list[tuple[int, int]] = []
    for row in manifest.rows:
        match row.kind:
            case RowKind.SEGMENT:
                if rows and (
                    row.number != rows[-1].number + 1 or row.base_offset != rows[-1].end_offset
                ):
                    return rows, start, epochs, checkpoint, False  # scan from here
                rows.append(row)
            case RowKind.START:
                start = row
            case RowKind.CHECKPOINT:
                checkpoint = row
            case RowKind.EPOCH:
                epochs.append((row.leader_epoch, row.base_offset))
    return rows, start, epochs, checkpoint, True


def _unsealed_files(
    storage: Storage, paths: LogPaths, known: _Known | None
) -> list[tuple[int, memoryview]]:
    """The segments to scan, without a hole; missing files in between are among them, empty."""
    if known is not None and known.checkpoint is not None:
        first = known.sealed.next_number
        checkpoint = known.checkpoint
        if checkpoint.number == first:
            content = _read(storage, paths.log(first))
            if len(content) == checkpoint.size and not storage.exists(paths.log(first + 1)):
                return [(first, content)]
    present = sorted(
        number
        for name in storage.listdir(paths.folder)
        if (number := paths.segment_number(name)) is not None
    )
    first = known.sealed.next_number if known is not None else (present[0] if present else 0)
    if known is not None:
        for number in present:
            if number < known.sealed.first_number:  # deleted, but the unlink was lost
                storage.unlink(paths.log(number))
    present = [number for number in present if number >= first]
    numbers = range(first, present[-1] + 1) if present else range(0)
    return [(number, _read(storage, paths.log(number))) for number in numbers]


def _read(storage: Storage, path: str) -> memoryview:
    try:
        return memoryview(read_file(storage, path))
    except FileNotFoundError:
        return memoryview(b"")


def _scan_all(known: _Known, contents: list[tuple[int, memoryview]]) -> list[_File]:
    found: list[_File] = []
    offset: int | None = known.sealed.end_offset if known.log_start_offset >= 0 else None
    whole = True
    for number, data in contents:
        if len(data):
            offset = first_offset_of(data, offset, is_confirmed=not whole)
        result = scan(data, offset or 0, epochs=known.epochs)
        found.append(_File(number, data, offset or 0, result))
        whole = result.tail is Tail.WHOLE
        if len(data) or offset is not None:
            offset = result.next_offset
    return found


def _act(
    storage: Storage,
    paths: LogPaths,
    config: TopicConfig,
    known: _Known,
    found: list[_File],
    last: int,
    *,
    now_ms: int,
    leader_epoch: int,
) -> None:
    """Cut and repair; afterwards every file up to `last` is whole and continues the one before."""
    offset = known.sealed.end_offset
    for place, file in enumerate(found):
        path = paths.log(file.number)
        if place > last:
            # Behind the last batch: the file made ahead, or what never became a segment.
            if len(file.data):
                if any(file.data):
                    _quarantine(storage, paths, file)
                _cut(storage, path, 0)
            continue
        end_offset: int | None = None
        if place < last:
            end_offset = found[place + 1].starts_at
        elif known.checkpoint is not None:
            end_offset = known.checkpoint.end_offset
        is_short = end_offset is not None and file.scan.next_offset < end_offset
        is_short = is_short or file.starts_at > offset
        match decide(file.scan.tail, is_last=place == last, is_short=is_short):
            case Decision.KEEP:
                offset = file.scan.next_offset
            case Decision.CUT:
                log.info(
                    "torn_tail_cut",
                    path=path,
                    position=file.scan.valid_size,
                    bytes=len(file.data) - file.scan.valid_size,
                    tail=file.scan.tail.value,
                )
                _cut(storage, path, file.scan.valid_size)
                found[place] = file._replace(data=file.data[: file.scan.valid_size])
                offset = file.scan.next_offset
            case Decision.REPAIR:
                if len(file.data):
                    _quarantine(storage, paths, file)
                epoch = max(
                    (f.header.leader_epoch for f in file.scan.batches), default=leader_epoch
                )
                rebuilt = rebuild(
                    file.data,
                    offset,
                    end_offset,
                    now_ms=now_ms,
                    epochs=known.epochs,
                    leader_epoch=epoch,
                )
                content = b"".join(rebuilt.parts)
                replace_file(storage, path, content)
                for begin, end in rebuilt.gaps:
                    log.error(
                        "segment_repaired",
                        path=path,
                        gap_from=begin,
                        gap_to=end,
                        reason="corruption",
                    )
                view = memoryview(content)
                result = scan(view, offset)
                assert result.tail is Tail.WHOLE, "a repaired segment is whole"
                found[place] = _File(file.number, view, offset, result)
                offset = rebuilt.next_offset


def _cut(storage: Storage, path: str, size: int) -> None:
    file = storage.open(path)
    try:
        file.truncate(size)
        file.fdatasync()
    finally:
        file.close()


def _quarantine(storage: Storage, paths: LogPaths, file: _File) -> None:
    """Keep a durable copy of a damaged file under a name of its own."""
    make_dirs(storage, paths.quarantine)
    name = paths.log(file.number).rpartition("/")[2]
    for attempt in range(QUARANTINE_TRIES_MAX):
        target = f"{paths.quarantine}/{name}.{attempt}"
        if not storage.exists(target):
            break
        # Recovery was interrupted after the copy and sees the same bytes again.
        if read_file(storage, target) == file.data:
            return
    replace_file(storage, target, file.data)
    copy = storage.open(target, read_only=True)
    copy.advise(Advice.DONT_NEED)  # for people, not for readers
    copy.close()
    log.error("segment_quarantined", path=paths.log(file.number), copy=target)


def _activate(
    storage: Storage, paths: LogPaths, config: TopicConfig, file: _File, now_ms: int
) -> ActiveSegment:
    """A scanned file as a segment that can be appended to."""
    batches = file.scan.batches
    stamp = batches[0].header.max_timestamp if batches else now_ms
    segment = ActiveSegment(
        file.number,
        file.starts_at,
        storage,
        paths.log(file.number),
        interval=config.index_interval_bytes,
        created_ms=max(stamp, 0),
        leader_epoch=max((found.header.leader_epoch for found in batches), default=0),
        name_is_durable=True,
    )
    # Age comes from the data; a timestamp from the future is no reason never to roll.
    segment.first_ms = min(stamp, now_ms) if stamp >= 0 else now_ms
    for position, header in batches:
        segment.add(
            file.data[position : position + header.size],
            header.base_offset,
            header.next_offset,
            header.records_count,
            header.max_timestamp,
        )
    return segment


def _new_segment(
    storage: Storage,
    paths: LogPaths,
    config: TopicConfig,
    sealed: SealedSegments,
    leader_epoch: int,
    now_ms: int,
) -> ActiveSegment:
    return ActiveSegment(
        sealed.next_number,
        sealed.end_offset,
        storage,
        paths.log(sealed.next_number),
        file=storage.open(paths.log(sealed.next_number), create=True),
        interval=config.index_interval_bytes,
        created_ms=now_ms,
        leader_epoch=leader_epoch,
        name_is_durable=True,
    )


def _epochs(
    known: _Known, unsealed: list[ActiveSegment], leader_epoch: int
) -> list[tuple[int, int]]:
    """Leader epochs and where they begin; from the batches when the manifest does not say."""
    epochs = list(known.epochs)
    if not epochs:
        seen = zip(known.sealed.leader_epochs, known.sealed.base_offsets, strict=True)
        for epoch, offset in (*seen, *((s.leader_epoch, s.base_offset) for s in unsealed)):
            if not epochs or epoch > epochs[-1][0]:
                epochs.append((epoch, offset))
    if not epochs or (
        len(epochs) == 1 and not known.epochs and not unsealed[-1].size and not len(known.sealed)
    ):
        return [(leader_epoch, unsealed[0].base_offset)]
    if epochs[-1][0] < leader_epoch:
        epochs.append((leader_epoch, unsealed[-1].next_offset))
    return epochs


def _replay_producers(opened: PartitionLog) -> None:
    """The producers' state as of the end of the log."""
    end = -1
    table = ProducerTable()
    try:
        decoded = decode_producers(read_file(opened.storage, opened.paths.producers))
    except FileNotFoundError:
        decoded = None
    # A snapshot of more than the log has is of another log.
    if decoded is not None and decoded[1] <= opened.log_end_offset:
        table, end = decoded
    opened.producers = table
    if end == opened.log_end_offset:
        return
    sealed = opened.sealed
    first = sealed.first_number
    numbers = [first + place for place, upto in enumerate(sealed.ends()) if upto > end]
    numbers += [segment.number for segment in (*opened.rotating, opened.active) if segment.size]
    for number in numbers:
        path = opened.paths.log(number)
        try:
            for header in headers_of(opened.storage, path):
                if header.base_offset >= end and header.producer_id >= 0:
                    table.apply(header, header.base_offset)
        except (FileNotFoundError, CorruptSegment) as exc:
            # A damaged sealed segment costs its records, not the partition: producers whose last
            # batches lay there begin as unknown ones.
            log.warning("producers_not_replayed", path=path, error=str(exc))


def headers_of(storage: Storage, path: str) -> Iterator[BatchHeader]:
    """The batch headers of a log file, unchecked; for replaying producers."""
    data = read_file(storage, path)
    position = 0
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        if header.batch_length < HEADER_SIZE - LENGTH_END:
            raise CorruptSegment(path, position, f"batch length {header.batch_length}")
        yield header
        position += header.size
