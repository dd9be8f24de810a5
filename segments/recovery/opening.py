"""Opening a log: survey what is there, carry out the decisions, serve what is durable.

    survey         what lies there, and what is to be done (survey.py): no byte changes
    manifest       if a log start was written after its last checkpoint: written again, synced
    carry out      cut, repair, clear; damaged originals to quarantine/ (repairing.py)
    sync           what is kept is made durable before anything is served from it, except what was
                   just put back from the write-ahead log and is durable already (replaying.py)
    seal           all segments but the last
    producers      snapshot, then the headers of the batches after it (producer_replay.py)

Why this sync: a page may be in memory, clean, and not on the disk, because the process before had
a failed sync.  What was read is not known to be durable until we have written and synced it.

Invariant: recovery may be interrupted anywhere and started again; run twice it changes nothing
more.

A log in which nothing ever was is opened without a sync: there is nothing to keep, and what its
manifest says is known without it.  Its files become durable with the first sync of the log
(manifest_file.py).
"""

from collections.abc import Collection

from segbroker.protocol.record_batch import GapReason

from ..decisions import Decision, stamp_of
from ..disk.storage import Storage, make_dirs, read_file, write_all
from ..errors import PartitionForeign, PartitionMissing
from ..files.manifest import start_row
from ..log.caches import FileCache, IndexCache, OpenLogs
from ..log.columns import SealedSegments
from ..log.partition_log import PartitionLog
from ..log.sealed import SealedFiles
from ..log.sealing import seal
from ..log.segment import ActiveSegment
from ..names import LogPaths
from ..report import LogReport
from ..settings.topic_config import Durability, TopicConfig
from .corruption import check_opening
from .known import Known, is_of_a_deleted_topic, write_known
from .producer_replay import replay_producers
from .repairing import carry_out
from .survey import Circumstances, Step, survey


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
    first_epoch: int = 0,
    create: bool = True,
    durable_end: int = -1,
    durable: Collection[int] = (),
    settled_end: int = -1,
    writes_again: bool = True,
    acks_unsynced: bool = False,
    report: LogReport | None = None,
) -> PartitionLog:
    """Open the log in `paths`, recovering what a crash left; an empty one when there is none.

    leader_epoch: the least that the log begins with.  first_epoch: the first of its
    topic.  `create`: make the directory if missing.
    durable_end: END frames vouch for the offsets below it.  report: what is done is added to it.
    settled_end: the metadata vouches for the offsets below it; who opens a log that ends before it
    writes the gap (lost_tail.py), unless that is refused here.
    durable: segments of which this process has just synced everything, and then the directory.
    acks_unsynced: what nobody vouches for may have been acknowledged before its sync, whatever the
    class is now: it is a lost tail where it is missing.
    writes_again: False where this process opened the log before and no sync of it failed.
    Raises PartitionMissing when the directory is not there and may not be made, PartitionForeign,
    PartitionRefused, OSError.
    """
    report = report if report is not None else LogReport()
    if not storage.exists(paths.folder):
        if not create:
            raise PartitionMissing(paths.folder)
        make_dirs(storage, paths.folder)
    loses_tails = acks_unsynced or config.durability is not Durability.FSYNC
    above = GapReason.LOST_TAIL if loses_tails else GapReason.CORRUPTION
    around = Circumstances(now_ms, leader_epoch, durable_end, above)
    found = survey(storage, paths, around)
    if found.manifest_lost and is_of_a_deleted_topic(storage, paths, first_epoch):
        raise PartitionForeign(paths.folder)
    damage = "" if found.damaged is None else _told(paths, found.damaged)
    if not damage and found.end_offset < settled_end:
        lost = f"offsets lost: [{found.end_offset}, {settled_end})"
        damage = f"{paths.folder} ends before what it was synced up to, {lost}"
    name = (report.topic or paths.prefix, max(report.partition, 0))
    damage = check_opening(storage, paths, config.on_corruption, damage, name)
    known, is_clean = found.known, found.is_clean
    steps = found.steps
    if writes_again and known.size and known.deletes and not found.is_empty:
        # Nothing says that the process before has synced it, and what it speaks of as gone goes.
        _write_again(storage, paths.manifest, known.size)
    if not is_clean:
        steps = carry_out(storage, paths, found, report)
    if found.manifest_lost:
        report.add("manifest_rebuilt", paths.manifest)
    unsealed: list[ActiveSegment] = []
    try:
        unsealed += [
            _activate(storage, paths, config, step, now_ms) for step in steps[: found.last + 1]
        ]
        if not unsealed:
            unsealed = [_new_segment(storage, paths, config, known.sealed, leader_epoch, now_ms)]
        epochs = _epochs(known, unsealed, leader_epoch)
        # An epoch that begins here is durable before a batch carries it.
        is_told = epochs == known.epochs and paths.owner in (0, known.owner)
        is_new = found.is_empty and (is_told or not known.size)
        is_kept = is_told and known.size > 0
        manifest_size = known.size
        if not is_kept:
            start = start_row(
                found.log_start_offset,
                known.sealed.first_number,
                known.sealed.base_offsets[0] if len(known.sealed) else unsealed[0].base_offset,
                found.floor,
            )
            manifest_size = write_known(
                storage,
                paths,
                known.sealed,
                epochs,
                start,
                now_ms,
                known.cleaned,
                known.checkpoint if is_clean else None,
                is_new=is_new,
            )
        if not is_new and not is_clean:
            _make_durable(unsealed, steps, durable, writes_again=writes_again)
        has_names = is_kept and (is_clean or (durable and steps and found.keeps_names))
        if not is_new and not has_names:
            storage.fsync_dir(paths.folder)
        for segment in unsealed:
            segment.synced_size = segment.size
            segment.name_is_durable = not is_new
        opened = PartitionLog(
            storage,
            paths,
            config,
            SealedFiles(storage, paths, files, indexes, config.index_interval_bytes, epochs),
            sealed=known.sealed,
            unsealed=unsealed,
            log_start_offset=found.log_start_offset,
            epochs=epochs,
            manifest_size=manifest_size,
            manifest_is_durable=not is_new,
            open_logs=open_logs,
            made=unsealed[-1].number
            if is_new
            else max([unsealed[-1].number, *(step.number for step in steps)]),
            floor=found.floor,
            cleaned=known.cleaned,
        )
        opened.damage = damage
        if is_clean:
            opened.checkpointed = opened.log_end_offset
        replay_producers(opened)
        opened.producers.loaded()
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


def _make_durable(
    unsealed: list[ActiveSegment],
    steps: list[Step],
    durable: Collection[int],
    *,
    writes_again: bool,
) -> None:
    """What is kept is durable before anybody is served from it.

    It is written again first: where a sync of the process before failed, the page cache may have
    what the disk has not, and a sync of pages that count as clean would prove nothing.
    """
    for place, segment in enumerate(unsealed):
        if segment.number in durable and steps[place].decision is Decision.KEEP:
            continue
        if segment.size and writes_again:
            write_all(segment.opened(), steps[place].data[: segment.size], 0)
        if segment.size or steps:
            segment.opened().fdatasync()


def _write_again(storage: Storage, path: str, size: int) -> None:
    """As `_make_durable`, of the first bytes of a file that changes by new bytes at its end."""
    content = read_file(storage, path)[:size]
    file = storage.open(path)
    try:
        write_all(file, content, 0)
        file.fdatasync()
    finally:
        file.close()


def _told(paths: LogPaths, step: Step) -> str:
    """Damage in a file as a sentence."""
    gaps = step.rebuilt.gaps if step.rebuilt else []
    lost = ", ".join(f"[{gap.begin}, {gap.end})" for gap in gaps) or "none"
    return (
        f"{paths.log(step.number)} is damaged at byte {step.scan.valid_size} "
        f"({step.scan.tail.value}), offsets lost: {lost}"
    )


def _activate(
    storage: Storage, paths: LogPaths, config: TopicConfig, step: Step, now_ms: int
) -> ActiveSegment:
    """A file that is whole as a segment that can be appended to."""
    batches = step.scan.batches
    stamp = stamp_of(batches[0].header) if batches else now_ms
    segment = ActiveSegment(
        step.number,
        step.starts_at,
        storage,
        paths.log(step.number),
        interval=config.index_interval_bytes,
        created_ms=max(stamp, 0),
        leader_epoch=max((found.header.leader_epoch for found in batches), default=0),
        name_is_durable=True,
    )
    # Age comes from the data; a timestamp from the future is no reason never to roll.
    segment.first_ms = min(stamp, now_ms) if stamp >= 0 else now_ms
    for position, header in batches:
        segment.add(
            step.data[position : position + header.size],
            header.base_offset,
            header.next_offset,
            header.records_count,
            stamp_of(header),
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
    known: Known, unsealed: list[ActiveSegment], leader_epoch: int
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
