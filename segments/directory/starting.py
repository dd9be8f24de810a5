"""The start of a data directory: from its files to the state that is served.

    read the WAL -> snapshot and events -> remove what is half made or half deleted
                 -> put the contents of the WAL back into its partitions -> empty the WAL

Nothing is served before all of it is done.  It may be interrupted anywhere: the next start begins
again from the WAL, which is emptied last.
"""

import base64
import errno
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

import structlog

from ..disk.storage import Storage, remove_tree
from ..errors import NO_SPACE, CorruptMetadata, StorageError
from ..metadata.metadata import Metadata, machine_of
from ..metadata.metadata_log import MetadataLog, check_newest
from ..names import wal_owner_of
from ..replay.doubting import lost_with_a_sync
from ..replay.putting_back import Place, PuttingBack
from ..replay.resuming import Resuming
from ..replay.tearing import mark_torn
from ..report import RecoveryReport, ReportRow
from ..wal.files import is_short
from ..wal.journal import Wal
from ..wal.replay import Replay
from ..witness import WITNESS
from .orphans import Missing, find_orphans, keep_put_aside, put_aside, remove_orphan
from .reserve import RESERVE, Reserve
from .start_room import ROOM_FOR_SMALL_FILES, room_to_start

log = structlog.get_logger()

T = TypeVar("T")

OWN: Final = frozenset({"LOCK", "clock", "meta", "topics", "wal", "quarantine", RESERVE, WITNESS})
"""What a data directory has."""
OF_A_VOLUME: Final = frozenset({"lost+found"})
OTHERS_MAX: Final = 5


class Started(NamedTuple):
    """What a start found, beside the state of the metadata."""

    replayed: list[Place]
    """Partitions that are to be opened, for what was put back into them."""
    missing: Missing
    """Partitions that have no directory, or one that cannot be read."""
    graves: list[str]
    """Directories of deleted topics that are to be removed."""
    is_new_boot: bool
    """Whether the machine was started anew since this directory was last open."""


class Starting:
    """One data directory that is locked, and of which nothing is open."""

    def __init__(
        self,
        storage: Storage,
        root: str,
        wal: Wal,
        metadata: MetadataLog,
        resuming: Resuming,
        putting_back: PuttingBack,
        report: RecoveryReport,
        reserve: Reserve,
    ) -> None:
        self._storage = storage
        self._reserve = reserve
        self._root = root
        self._wal = wal
        self._metadata = metadata
        self._resuming = resuming
        self._putting_back = putting_back
        self._report = report
        self._events_lost = 0
        self._is_loaded = False
        self._graves: list[str] = []

    def start(self) -> Started:
        """Do all of it; blocking.

        Raises CorruptMetadata, UnsupportedFormat (no file that was there was changed then),
        StorageError (what the WAL holds could not be put back).
        """
        found = Replay()
        self._graves = []
        try:
            found = self._wal.open()
            is_new_boot = self._with_ballast(lambda: self._load_metadata(found))
            missing = self._with_ballast(self._remove_orphans)
            replayed = self._with_ballast(lambda: self._put_back(found))
            self._keep_what_vouches()
            self._make_room_for_wal()
            self._wal.absorbed()
        except OSError as exc:
            hint = self._what_to_do(found) if exc.errno in NO_SPACE else ""
            raise StorageError(
                f"what {self._root}/wal holds could not be put back and stays there: {exc}{hint}"
            ) from exc
        self._metadata.attach(self._wal)
        return Started(replayed, dict(sorted(missing.items())), self._graves, is_new_boot)

    def _load_metadata(self, found: Replay) -> bool:
        """The snapshot and the events behind it, as one snapshot: the WAL may begin anew.

        Whether the machine was started anew.  Raises CorruptMetadata, UnsupportedFormat, OSError.
        """
        if self._metadata.load():
            self._is_loaded = True
            self._wal.owner = wal_owner_of(self._metadata.state.cluster_id)
            found.check_owner(f"{self._root}/wal", self._wal.owner)
            if not found.shards and (self._metadata.state.topics or found.is_missing):
                found.lose_all(f"{self._root}/wal")  # an orderly stop leaves the directories
            lost = self._events_lost = self._metadata.replay(found.control) + found.control_lost
            if lost:
                self._resuming.widen(lost)
            state, boot_id = self._metadata.state, self._storage.boot_id(self._root)
            self._resuming.record_ceilings(
                list(lost_with_a_sync(self._storage, self._root, state, boot_id, found.partitions))
            )
            mark_torn(self._metadata, boot_id)
            self._resuming.begin_boot(boot_id)  # last: tried once more, it is another boot still
            self._metadata.absorb()
            return not boot_id or machine_of(boot_id) != machine_of(state.boot_id)
        topics = [n for n in self._storage.listdir(f"{self._root}/topics") if not n.startswith("~")]
        if topics or not found.is_empty:
            # Taken for a new directory, every topic would be an orphan, and removed.
            raise CorruptMetadata(
                f"{self._root}/meta",
                f"there is no snapshot, but there are topics {topics[:3]} "
                f"and {len(found.control)} events",
            )
        check_newest(self._storage, f"{self._root}/meta", 0)
        others = sorted({*self._storage.listdir(self._root)} - OWN - OF_A_VOLUME)
        cluster_id = base64.urlsafe_b64encode(self._storage.random_bytes(16))
        state = Metadata(cluster_id.decode().rstrip("="))
        self._wal.owner = wal_owner_of(state.cluster_id)
        self._metadata.begin(state.with_boot(self._storage.boot_id(self._root)))
        if others:
            advice = "is this the right place? A broker without topics begins here"
            log.warning(
                "data_directory_has_others",
                path=self._root,
                others=others[:OTHERS_MAX],
                advice=advice,
            )
        return False

    def _put_back(self, found: Replay) -> list[Place]:
        """Raises OSError."""
        self._resuming.distrust(found.unnamed, found.torn, found.shards)
        topics = self._metadata.state.topics
        return self._putting_back.put_back(found, topics, events_lost=self._events_lost > 0)

    def _keep_what_vouches(self) -> None:
        """How far the logs have to reach, before that goes with the WAL: who is killed before they
        are opened must not forget it.  Raises OSError."""
        topics = {meta.topic_id.bytes for meta in self._metadata.state.topics.values()}
        waiting = self._putting_back.waiting
        ends = {
            key: end_offset
            for key, end_offset in self._putting_back.vouched()
            if key[0] in topics and end_offset > 0
        }
        try:
            self._with_ballast(lambda: self._wal.keep(waiting, ends))
        except OSError as exc:
            if waiting:
                raise
            log.warning("wal_ends_not_kept", error=str(exc))  # they are said when it has begun anew

    def _make_room_for_wal(self) -> None:
        """Without a file nothing can be deleted, so that there would never be room for one.  Raises
        OSError."""
        if self._wal.lacks_room() and self._reserve.give_back():
            log.warning("reserve_given_up", error="the write-ahead log has no file, and no room")

    def _with_ballast(self, work: Callable[[], T]) -> T:
        """`work`, once more without what deleted topics left where the disk is full, then without
        the spare files of the WAL, and then without the reserve."""
        while True:
            try:
                return work()
            except OSError as exc:
                if exc.errno not in NO_SPACE:
                    raise
                if self._graves:
                    while self._graves:
                        remove_tree(self._storage, self._graves.pop(), links=1)
                elif self._wal.give_space_back():
                    log.warning("wal_spare_files_given_up", error=str(exc))
                elif self._reserve.give_back():
                    log.warning("reserve_given_up", error=str(exc))
                else:
                    raise

    def _what_to_do(self, found: Replay) -> str:
        """For who reads that there is no room: how much is missing, and what makes some."""
        missing = ROOM_FOR_SMALL_FILES
        try:
            if self._is_loaded:
                missing = room_to_start(self._storage, self._root, found, self._metadata.state)
            space = self._storage.space(self._root)
            if space is not None:
                missing = max(missing - space.usable, ROOM_FOR_SMALL_FILES)
        except (OSError, StorageError) as exc:
            log.warning("room_not_known", error=str(exc))
        return (
            f"; the start needs about {-(-missing // 1024)} KiB more on this volume: grow it, or "
            f"move files away that are not {self._root}'s; delete nothing below {self._root}/wal"
        )

    def _remove_orphans(self) -> Missing:
        """The partitions that have no directory that can be read.  Of deleted topics the
        directories are left to be removed later: where there is room, the start does not wait for
        that."""
        has_room = not is_short(self._storage, self._root, self._wal.config.file_bytes)
        missing: Missing = {}
        state = self._metadata.state
        keep_put_aside(self._storage, self._root)
        for orphan in list(find_orphans(self._storage, self._root, state, missing)):
            mark = self._storage.random_bytes(8).hex()
            path = orphan.path
            if has_room and orphan.topic.startswith("~"):
                self._graves.append(path)
                row = ReportRow("orphan_removed", path)
            elif orphan.has_records:
                path = put_aside(self._storage, self._root, orphan, mark)
                row = ReportRow("unknown_topic", path, orphan.topic, orphan.partition)
            else:
                try:
                    remove_orphan(self._storage, orphan, mark)
                except OSError as exc:
                    if exc.errno != errno.EBUSY:
                        raise
                    # Something is mounted there.  No topic of this name can be made meanwhile.
                    log.warning("deleted_topic_not_removed", folder=path, error=str(exc))
                    continue
                row = ReportRow("orphan_removed", path)
            self._report.add(row)
        return missing
