"""Opening a log: survey what is there, carry out the decisions, serve what is durable.

    survey         what lies there, and what is to be done (survey.py): no byte changes
    renew          behind a failed sync: into new files first (renewing.py)
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
from contextlib import closing
from typing import Final, NamedTuple

import structlog

from segbroker.protocol.record_batch import GapReason

from ..decisions import Decision, stamp_of
from ..disk.storage import Storage, close_all, make_dirs, read_file, write_all
from ..errors import PartitionForeign, PartitionMissing
from ..files.copies import keep_copies
from ..files.manifest import start_row
from ..files.unsynced import sync_names_or_mark, sync_or_mark
from ..log.caches import Caches
from ..log.partition_log import PartitionLog
from ..log.sealed import SealedFiles
from ..log.sealing import seal
from ..log.segment import ActiveSegment
from ..names import LogPaths
from ..report import LogReport
from ..settings.topic_config import Durability, TopicConfig
from .corruption import check_opening
from .known import Known, has_other_bytes, write_known
from .ownership import is_of_another
from .producer_replay import replay_producers
from .renewing import renew
from .repairing import carry_out
from .survey import Circumstances, Step, Survey, survey

log = structlog.get_logger()


class Evidence(NamedTuple):
    """What others know of a log before it is opened.  By default nothing, and nobody had it open in
    this process."""

    leader_epoch: int = 0
    """The least that the log begins with."""
    first_epoch: int = 0
    """The first of its topic."""
    durable_end: int = -1
    """END frames vouch for the offsets below it."""
    settled_end: int = -1
    """The metadata vouches for the offsets below it; who opens a log that ends before it writes the
    gap (lost_tail.py), unless that is refused here."""
    durable: Collection[int] = ()
    """Segments of which this process has just synced everything, and then the directory."""
    acks_unsynced: bool = False
    """What nobody vouches for may have been acknowledged before its sync, whatever the class is
    now: it is a lost tail where it is missing."""
    writes_again: bool = True
    """False where this process opened the log before and no sync of it failed."""


NOTHING_KNOWN: Final = Evidence()


def open_log(
    storage: Storage,
    paths: LogPaths,
    config: TopicConfig,
    caches: Caches,
    evidence: Evidence = NOTHING_KNOWN,
    *,
    now_ms: int,
    create: bool = True,
    report: LogReport,
) -> PartitionLog:
    """Open the log in `paths`, recovering what a crash left; an empty one when there is none.

    create: make the directory if missing.  report: what is done is added to it.
    Raises PartitionMissing when the directory is not there and may not be made, PartitionForeign,
    PartitionRefused, OSError.
    """
    if not storage.exists(paths.folder):
        if not create:
            raise PartitionMissing(paths.folder)
        make_dirs(storage, paths.folder)
    keep_copies(storage, paths)
    renewed = renew(storage, paths)
    if renewed is not None:
        evidence = evidence._replace(durable=renewed, writes_again=False)
    loses_tails = evidence.acks_unsynced or config.durability is not Durability.FSYNC
    above = GapReason.LOST_TAIL if loses_tails else GapReason.CORRUPTION
    around = Circumstances(
        now_ms, evidence.leader_epoch, evidence.durable_end, above, evidence.settled_end
    )
    found = survey(storage, paths, around)
    if found.manifest_lost and is_of_another(storage, paths, evidence.first_epoch):
        raise PartitionForeign(paths.folder)
    name = (report.topic or paths.prefix, max(report.partition, 0))
    damage = _damage_in(paths, found, evidence.settled_end)
    damage = check_opening(storage, paths, config.on_corruption, damage, name)
    known, steps = found.known, found.steps
    is_unreadable = not known.size and has_other_bytes(storage, paths)
    if evidence.writes_again and known.size and known.deletes and not found.is_empty:
        # Nothing says that the process before has synced it, and what it speaks of as gone goes.
        _write_manifest_again(storage, paths, found)
    if not found.is_clean:
        steps = carry_out(storage, paths, found, report)
    if found.manifest_lost:
        report.add("manifest_rebuilt", paths.manifest)
    opening = _Opening(storage, paths, config, evidence, found, steps, now_ms)
    try:
        opening.activate()
        opening.write_manifest()
        if is_unreadable:  # not before: where it cannot be opened that is tried again and again
            log.warning("manifest_unreadable", path=paths.manifest)
        opening.make_durable()
        opened = opening.assemble(caches)
        opened.damage = damage
        replay_producers(opened)
        opened.know(opened.producers)
        opened.producers.loaded()
        if len(opening.unsealed) > 1:
            seal(opened)
    except BaseException:
        # Tried again every second while a disk is full: nothing may stay open, or count as open.
        opening.close()
        caches.files.drop(paths.folder)
        raise
    if opened.active.file is not None:
        caches.open_logs.add(opened)
    return opened


class _Opening:
    """A log whose files are what they are to be, on its way to be served.  Raises OSError."""

    def __init__(
        self,
        storage: Storage,
        paths: LogPaths,
        config: TopicConfig,
        evidence: Evidence,
        found: Survey,
        steps: list[Step],
        now_ms: int,
    ) -> None:
        """steps: those of `found`, as they are since they were carried out."""
        self._storage = storage
        self._paths = paths
        self._config = config
        self._evidence = evidence
        self._found = found
        self._steps = steps
        self._now_ms = now_ms
        self.unsealed: list[ActiveSegment] = []
        """Those behind the manifest's end; the last is appended to."""
        self._epochs: list[tuple[int, int]] = []
        self._manifest_size = 0
        self._is_new = False
        """Nothing is in it that has to be kept: it becomes durable with its first sync."""
        self._is_kept = False
        """The manifest is as it was."""
        self._opened: PartitionLog | None = None

    def activate(self) -> None:
        """The files behind the manifest's end as segments; a new one where there is none."""
        for step in self._steps[: self._found.last + 1]:
            one = _activate(self._storage, self._paths, self._config, step, self._now_ms)
            self.unsealed.append(one)
        if not self.unsealed:
            self.unsealed.append(self._new_segment())

    def write_manifest(self) -> None:
        """Anew, unless it says all of it already.  An epoch that begins here is durable before a
        batch carries it."""
        found, known, unsealed = self._found, self._found.known, self.unsealed
        self._epochs = _epochs(known, unsealed, self._evidence.leader_epoch)
        is_told = self._epochs == known.epochs and self._paths.owner in (0, known.owner)
        self._is_new = found.is_empty and (is_told or not known.size)
        self._is_kept = is_told and known.size > 0
        if self._is_kept:
            self._manifest_size = known.size
            return
        start = start_row(
            found.log_start_offset,
            known.sealed.first_number,
            known.sealed.base_offsets[0] if len(known.sealed) else unsealed[0].base_offset,
            found.floor,
        )
        self._manifest_size = write_known(
            self._storage,
            self._paths,
            known.sealed,
            self._epochs,
            start,
            self._now_ms,
            known.cleaned,
            known.checkpoint if found.is_clean else None,
            is_new=self._is_new,
        )

    def make_durable(self) -> None:
        """What is kept is durable before anybody is served from it."""
        if not self._is_new:
            found, evidence = self._found, self._evidence
            if not found.is_clean:
                self._write_and_sync()
            was_synced = found.is_clean or (evidence.durable and self._steps and found.keeps_names)
            if not (self._is_kept and was_synced):
                sync_names_or_mark(self._storage, self._paths)
        for segment in self.unsealed:
            segment.synced_size = segment.size
            segment.name_is_durable = not self._is_new

    def assemble(self, caches: Caches) -> PartitionLog:
        """The log, without what it knows of its producers."""
        found, known, unsealed = self._found, self._found.known, self.unsealed
        interval = self._config.index_interval_bytes
        made = unsealed[-1].number
        if not self._is_new:
            # Up to a hole: what a close has unlinked may be back in part, and of the others a roll
            # gives the name anew.
            most = max((step.number for step in self._steps), default=made)
            while made < most and self._storage.exists(self._paths.log(made + 1)):
                made += 1
        opened = PartitionLog(
            self._storage,
            self._paths,
            self._config,
            SealedFiles(
                self._storage, self._paths, caches.files, caches.indexes, interval, self._epochs
            ),
            sealed=known.sealed,
            unsealed=unsealed,
            log_start_offset=found.log_start_offset,
            epochs=self._epochs,
            manifest_size=self._manifest_size,
            manifest_is_durable=not self._is_new,
            open_logs=caches.open_logs,
            made=made,
            floor=found.floor,
            cleaned=known.cleaned,
        )
        self._opened = opened
        if found.is_clean:
            opened.checkpointed = opened.log_end_offset
        return opened

    def close(self) -> None:
        """Give back the files: it is not served."""
        close_all(file for segment in self.unsealed for file in segment.unused())
        if self._opened is not None:
            self._opened.release()

    def _write_and_sync(self) -> None:
        """It is written again first: where a sync of the process before failed, the page cache may
        have what the disk has not, and a sync of pages that count as clean would prove nothing."""
        for place, segment in enumerate(self.unsealed):
            is_durable = segment.number in self._evidence.durable
            if is_durable and self._steps[place].decision is Decision.KEEP:
                continue
            if segment.size and self._evidence.writes_again:
                write_all(segment.opened(), self._steps[place].data[: segment.size], 0)
            if segment.size or self._steps:
                file, end_offset = segment.opened(), self.unsealed[-1].next_offset
                sync_or_mark(self._storage, self._paths, file, end_offset)

    def _new_segment(self) -> ActiveSegment:
        sealed = self._found.known.sealed
        path = self._paths.log(sealed.next_number)
        return ActiveSegment(
            sealed.next_number,
            sealed.end_offset,
            self._storage,
            path,
            file=self._storage.open(path, create=True),
            interval=self._config.index_interval_bytes,
            created_ms=self._now_ms,
            leader_epoch=self._evidence.leader_epoch,
            name_is_durable=True,
        )


def _write_manifest_again(storage: Storage, paths: LogPaths, found: Survey) -> None:
    """Write what is there once more and sync it; of a file that only grows, its first bytes."""
    content = read_file(storage, paths.manifest)[: found.known.size]
    with closing(storage.open(paths.manifest)) as file:
        write_all(file, content, 0)
        sync_or_mark(storage, paths, file, found.end_offset)


def _damage_in(paths: LogPaths, found: Survey, settled_end: int) -> str:
    """What is wrong with a log that no power cut explains, as a sentence; empty: nothing."""
    if found.damaged is not None:
        return _told(paths, found.damaged)
    if found.end_offset < settled_end:
        lost = f"offsets lost: [{found.end_offset}, {settled_end})"
        return f"{paths.folder} ends before what it was synced up to, {lost}"
    return ""


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
