"""Where share groups begin in partitions that are new to them: durable before a record leaves.

Those of one call are written down together, in one event or a few, and waited for once: a member
of a new group may ask for thousands of partitions.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.metadata import TopicMeta
from segbroker.segments.metadata.share_groups import SECTION, ShareRow, ShareState, grows, state_of

from ..error_map import wire_error
from ..groups.group_settings import GroupSettings
from ..loop.lanes import Lanes
from ..loop.pace import Pace
from ..partitions.partition import Partition
from ..partitions.topics import Topics
from ..recording import Done, recorded
from .live_partition import Key
from .offset_reset import first_offsets
from .share_events import record_states

log = structlog.get_logger()

Why: TypeAlias = tuple[ErrorCode, str]
"""Why a group cannot begin in a partition."""


class Beginnings:
    """Those of one broker."""

    def __init__(
        self,
        manager: DiskManager,
        topics: Topics,
        settings: GroupSettings,
        lanes: Lanes,
        now_ms: Callable[[], int],
    ) -> None:
        """now_ms: the wall clock."""
        self._manager = manager
        self._topics = topics
        self._settings = settings
        self._lanes = lanes
        self._now_ms = now_ms
        # On their way to the disk: the beginnings, and the last change of where a group stands.
        self._beginning: dict[Key, trio.Event] = {}
        self._moving: dict[str, trio.Event] = {}

    def kept(self, key: Key, meta: TopicMeta) -> ShareState | None:
        """Where a group stands in a partition of this topic; None: it has not begun there."""
        content = self._manager.section(SECTION) or {}
        return state_of(content, key.group_id, meta.name, key.topic_id, key.partition)

    def under_way(self, key: Key) -> trio.Event | None:
        """What to wait for before it is known where a group stands."""
        return self._moving.get(key.group_id, self._beginning.get(key))

    def move(self, group_id: str, record: Callable[[Done], None], done: Done) -> None:
        """Have it recorded that a group stands elsewhere.  Until that is durable nobody brings into
        memory what was so before, and would write it down again."""
        moving = self._moving[group_id] = trio.Event()

        def moved() -> None:
            if self._moving.get(group_id) is moving:
                del self._moving[group_id]
            moving.set()

        def written(error: OSError | None) -> None:
            moved()
            done(error)

        try:
            record(written)
        except BaseException:  # for want of memory: it stands where it stood
            moved()
            raise

    async def begin(self, group_id: str, keys: Iterable[Key], pace: Pace) -> dict[Key, Why]:
        """Have a group begin in those of its partitions that are new to it, and that are served;
        where it cannot, and why."""
        new: dict[Key, tuple[TopicMeta, Partition]] = {}
        done = trio.Event()
        try:
            for key in keys:
                await pace.step()
                found = self._if_new(key)
                if found is not None:
                    new[key], self._beginning[key] = found, done
            return await self._write(group_id, new) if new else {}
        finally:
            for key in new:
                self._beginning.pop(key, None)
            done.set()

    def _if_new(self, key: Key) -> tuple[TopicMeta, Partition] | None:
        meta = self._topics.by_id(key.topic_id)
        if meta is None or self.under_way(key) is not None:
            return None
        partition = self._topics.served_partition(meta.name, key.partition)
        if partition is None or self.kept(key, meta) is not None:
            return None
        return meta, partition

    async def _write(
        self, group_id: str, new: Mapping[Key, tuple[TopicMeta, Partition]]
    ) -> dict[Key, Why]:
        if self._manager.is_metadata_full:
            why = "the metadata of the broker is full: no room for more"
            return dict.fromkeys(new, (ErrorCode.POLICY_VIOLATION, why))
        handlers = [partition.handler for _, partition in new.values()]
        starts = await first_offsets(
            self._settings, self._lanes, group_id, handlers, self._now_ms()
        )
        content = self._manager.section(SECTION) or {}
        rows: dict[Key, ShareRow] = {}
        refused: dict[Key, Why] = {}
        for (key, (meta, _)), start in zip(new.items(), starts, strict=True):
            if not isinstance(start, int):
                refused[key] = wire_error(start)
                continue
            row = ShareRow(meta.name, key.topic_id, key.partition, start)
            if group_id not in self._moving and grows(content, group_id, row):
                rows[key] = row  # else it was put somewhere meanwhile
        if not rows:
            return refused
        error = await recorded(
            lambda done: record_states(self._manager, group_id, rows.values(), done)
        )
        if error is not None:
            why = f"its first offset is not durable: {error}"
            return refused | dict.fromkeys(rows, (ErrorCode.COORDINATOR_NOT_AVAILABLE, why))
        first = next(iter(rows.values()))
        log.info(
            "share_partition_begun",
            group=group_id,
            topic=first.topic,
            partition=first.partition,
            offset=first.start,
            others=len(rows) - 1,
        )
        return refused
