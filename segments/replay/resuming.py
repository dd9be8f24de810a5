"""How partitions go on after a start: what their ceilings say against what was found.

| the ceiling was reserved | end found | then |
|---|---|---|
| never | any | go on |
| in this boot | any | go on: the process died, the page cache did not |
| in another boot | at or above it | go on |
| in another boot | below it | gap `lost_tail` up to the ceiling, new leader epoch |
| in doubt: a sync failed, and what it was for was gone from memory | below it | the same |
| settled: the log was synced up to there | below it | the same with the reason `corruption` |
| any, class `ephemeral` | (nothing is there) | an empty log that begins at the ceiling, new epoch |

Afterwards everything below the end is synced, which the ceiling then says (SETTLED), whatever
boot comes next.  A log of class `fsync` reserves nothing: its ceiling says how far it reached at
the last orderly stop that it was open at.  So an older copy of its directory is told from the
present one, which no file in it could.  Many
partitions share two events, so a start after a power cut costs no event per partition.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from segbroker.protocol.record_batch import GapReason

from ..log.partition_log import PartitionLog
from ..metadata.ceilings import BLOCK, Done, PartitionCeiling
from ..metadata.control import ROWS_MAX
from ..metadata.metadata import IN_DOUBT, SETTLED, Ceiling, PartitionKey, TopicMeta
from ..metadata.metadata_log import MetadataLog
from ..parallel import Each, one_by_one
from ..recovery.lost_tail import write_lost_tail
from ..report import LogReport, RecoveryReport
from ..settings.topic_config import Durability
from ..wal.replay import shard_number

NOTHING: Final = Ceiling(0, SETTLED)
CeilingRow: TypeAlias = tuple[PartitionKey, Ceiling]


class Found(NamedTuple):
    """An opened log, before anybody is served from it."""

    meta: TopicMeta
    partition: int
    log: PartitionLog

    @property
    def key(self) -> PartitionKey:
        return self.meta.topic_id, self.partition


class Resuming:
    """Ceilings and leader epochs of the partitions of one data directory."""

    def __init__(self, metadata: MetadataLog, report: RecoveryReport) -> None:
        self._metadata = metadata
        self._report = report

    def begin_boot(self, boot_id: str) -> None:
        """Note which boot of the machine this is, if it is another.  Raises OSError."""
        state = self._metadata.state
        boot = state.with_boot(boot_id)
        if boot is not state:
            self._metadata.record("boot", id=boot_id, number=boot.boot)

    def widen(self, events: int) -> None:
        """So many events are lost, each of which may have reserved another block: take it that they
        did, of every partition that acknowledges before the sync.  Raises OSError."""
        state = self._metadata.state
        keys = [
            (meta.topic_id, partition)
            for meta in state.topics.values()
            if meta.config.durability is not Durability.FSYNC
            for partition in range(meta.partitions)
        ]
        known = [(key, state.ceiling(key) or NOTHING) for key in keys]
        width = 2 * events * BLOCK
        self.record_ceilings(
            [
                # What is known to be lost of it stays lost.
                (key, Ceiling(offset + width, boot if boot == IN_DOUBT else state.boot))
                for key, (offset, boot) in known
            ]
        )

    def distrust(self, damaged: Collection[int], torn: Collection[int], count: int) -> None:
        """Frames of these of the WAL's `count` shards are or may be lost, nobody knows whose: every
        partition that was acknowledged by them begins a leader epoch, and where they are lost for
        certain those whose end they vouched for, too.  Raises OSError."""
        if not damaged and not torn:
            return
        state = self._metadata.state
        self._record_epochs(
            ((meta.topic_id, partition), state.leader_epoch(meta, partition) + 1)
            for meta in state.topics.values()
            for partition in range(meta.partitions)
            if (shard := shard_number(meta.topic_id.bytes, partition, count)) in damaged
            or (shard in torn and meta.config.durability is Durability.FSYNC)
            if meta.config.durability is not Durability.EPHEMERAL
        )

    def begin_epoch(self, meta: TopicMeta, partition: int) -> int:
        """A leader epoch above all that this partition was in; durable.  Raises OSError."""
        epoch = self._metadata.state.leader_epoch(meta, partition) + 1
        self._record_epochs([((meta.topic_id, partition), epoch)])
        return epoch

    def unresolved(self) -> list[tuple[TopicMeta, int]]:
        """Partitions of class `disk` that may have lost their tail in another boot."""
        state = self._metadata.state
        return [
            (meta, partition)
            for meta in state.topics.values()
            if meta.config.durability is Durability.DISK
            for partition, ceiling in state.ceilings[meta.topic_id].items()
            if ceiling.boot not in (SETTLED, state.boot)
        ]

    def unsynced(self) -> list[tuple[str, int]]:
        """Topic and number of the partitions of class `disk`, and of those that became `fsync`,
        that a process of this boot may have left unsynced: nobody else syncs them."""
        state = self._metadata.state
        return [
            (meta.name, partition)
            for meta in state.topics.values()
            if meta.config.durability in (Durability.DISK, Durability.FSYNC)
            for partition, ceiling in state.ceilings[meta.topic_id].items()
            if ceiling.boot == state.boot
        ]

    def is_unresolved(self, meta: TopicMeta, partition: int) -> bool:
        """Whether offsets of this partition were reserved by a class that acknowledges before the
        sync, and nothing says yet that they are synced: also after it became `fsync`."""
        ceiling = self._metadata.state.ceiling((meta.topic_id, partition))
        return ceiling is not None and ceiling.boot != SETTLED

    def acks_unsynced(self, meta: TopicMeta, partitions: Iterable[int]) -> list[int]:
        """Those of these partitions that are stored and acknowledge before the sync, or did and
        nothing says yet that all of it is synced."""
        match meta.config.durability:
            case Durability.EPHEMERAL:
                return []
            case Durability.FSYNC if not self._metadata.state.ceilings.get(meta.topic_id):
                return []  # so it is mostly, and they may be thousands
            case Durability.FSYNC:
                return [one for one in partitions if self.is_unresolved(meta, one)]
            case _:
                return list(partitions)

    def settled_end(self, meta: TopicMeta, partition: int) -> int:
        """Below it everything was synced, by an orderly stop, or by a start that gave it up; -1:
        nothing is known of that, or it was in memory."""
        ceiling = self._metadata.state.ceiling((meta.topic_id, partition))
        is_stored = meta.config.durability is not Durability.EPHEMERAL
        return (
            ceiling.offset if ceiling is not None and ceiling.boot == SETTLED and is_stored else -1
        )

    def resume(
        self, opened: Sequence[Found], now_ms: int, each: Each = one_by_one
    ) -> list[PartitionCeiling | None]:
        """Let these logs go on as the table of the head says; the ceilings they go on with.

        each: does something with every log that has a gap to be written.  Blocking.  Raises
        OSError.
        """
        self._write_gaps(opened, now_ms, each)
        whole = [one for one in opened if self._is_to_be_noted(one)]
        self.record_ceilings([(one.key, Ceiling(one.log.log_end_offset, SETTLED)) for one in whole])
        state = self._metadata.state
        return [
            self.ceiling_of(one.key, state.ceiling(one.key))
            if one.meta.config.durability is not Durability.FSYNC
            else None
            for one in opened
        ]

    def ceiling_of(self, key: PartitionKey, known: Ceiling | None) -> PartitionCeiling:
        """The ceiling of a partition that is served."""

        def reserve(ceiling: Ceiling, done: Done) -> None:
            self._metadata.record_soon(done, "ceilings", rows=[_row(key, ceiling)])

        return PartitionCeiling(known, self._metadata.state.boot, reserve)

    def record_ceilings(self, rows: Sequence[CeilingRow]) -> None:
        """Make these ceilings durable.  Blocking.  Raises OSError."""
        self._record("ceilings", [_row(key, ceiling) for key, ceiling in rows])

    def _write_gaps(self, opened: Sequence[Found], now_ms: int, each: Each) -> None:
        state = self._metadata.state
        lost: list[tuple[Found, Ceiling]] = []
        for one in opened:
            ceiling = state.ceiling(one.key)
            if ceiling is None or ceiling.boot == state.boot:
                continue
            if one.log.log_end_offset < ceiling.offset:
                lost.append((one, ceiling))
        if not lost:
            return
        epochs = [
            max(one.log.leader_epoch, state.leader_epoch(one.meta, one.partition)) + 1
            for one, _ in lost
        ]
        self._record_epochs(zip([one.key for one, _ in lost], epochs, strict=True))
        each(lambda place: self._write_gap(*lost[place], epochs[place], now_ms), range(len(lost)))

    def _write_gap(self, one: Found, ceiling: Ceiling, epoch: int, now_ms: int) -> None:
        settled = ceiling.boot == SETTLED
        reason = GapReason.CORRUPTION if settled else GapReason.LOST_TAIL
        lost_from = one.log.log_end_offset
        write_lost_tail(one.log, ceiling.offset, epoch, reason, now_ms)
        LogReport(self._report, one.meta.name, one.partition).add(
            "gap",
            one.log.paths.folder,
            lost_from,
            ceiling.offset,
            reason=reason.name.lower(),
        )

    def _is_to_be_noted(self, one: Found) -> bool:
        """Whether nothing says yet that a log is synced, whose gap, if any, is written."""
        state = self._metadata.state
        offset, boot = state.ceiling(one.key) or NOTHING
        if one.meta.config.durability is Durability.FSYNC:
            # Whatever was acknowledged from here on is synced.  What an orderly stop has settled
            # stays: it vouches for what is below, however far the log goes on.
            return boot != SETTLED
        # Written and never acknowledged, or acknowledged when it was synced: the class was `fsync`.
        # The first append reserves, so a power cut before it is no loss.
        return one.log.log_end_offset > offset or boot not in (SETTLED, state.boot)

    def _record_epochs(self, rows: Iterable[tuple[PartitionKey, int]]) -> None:
        packed = [[topic_id.bytes, partition, epoch] for (topic_id, partition), epoch in rows]
        self._record("epochs", packed)

    def _record(self, kind: str, rows: list[list[object]]) -> None:
        """As few events as have room for them, durable together.  Raises OSError."""
        if rows:
            self._metadata.record_all(kind, [{"rows": some} for some in _chunks(rows)])


def _row(key: PartitionKey, ceiling: Ceiling) -> list[object]:
    topic_id, partition = key
    return [topic_id.bytes, partition, ceiling.offset, ceiling.boot]


def _chunks(rows: list[list[object]]) -> Iterable[list[list[object]]]:
    for start in range(0, len(rows), ROWS_MAX):
        yield rows[start : start + ROWS_MAX]
