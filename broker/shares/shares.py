"""The partitions of all share groups of one broker: in memory while somebody fetches from them.

    first fetch   begins at the group's stored position; if there is none, where
                  share.auto.offset.reset says, stored durably before a record is handed out
    acknowledged  a control event; the acknowledgement is answered when it is durable
    taken back    (its lock or session has ended) available at once, stored soon after: of thousands
                  of partitions piece by piece (taking_back.py)
    idle          nobody fetches from it and nothing is acquired: it leaves memory

After a restart of the broker, records that were acquired are available again, with the delivery
count that was stored last.  If nothing was acknowledged before a restart, Kafka applies
share.auto.offset.reset once more; here the stored start holds, so no record is left out.

Limits: PARTITIONS_MAX in memory (COORDINATOR_NOT_AVAILABLE); bytes of records on their way to
readers (reply_budget.py).  When the partitions in memory span OFFSETS_MAX offsets together, each
hands out only a few records at a time.  The same holds while the broker's metadata is full; then a
group also begins in no further partition (POLICY_VIOLATION).
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import structlog

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.metadata import TopicMeta
from segbroker.segments.metadata.share_groups import (
    SECTION,
    RecordState,
    ShareRow,
    ShareState,
    Span,
    all_of,
    overlaid,
)

from ..error_map import STORAGE_FAILURES, wire_error
from ..failed_changes import FailedChanges
from ..groups.group_keys import SHARE_DELIVERIES, SHARE_RECORD_LOCK, SHARE_RECORD_LOCKS, SHARE_RENEW
from ..groups.group_settings import GroupSettings
from ..loop.alarms import Alarms
from ..loop.deadlines import Deadlines
from ..loop.lanes import Lanes
from ..loop.pace import Pace
from ..partitions.partition import Partition
from ..partitions.topics import Topics
from ..recording import Done
from ..refused import Refused
from .beginnings import Beginnings, Why
from .live_partition import Key, LivePartition
from .pieces import Change, Limits
from .reply_budget import ReplyBudget
from .share_events import record_forgotten, record_offsets, record_states
from .share_partition import SharePartition
from .share_session import Place, ShareSession, ShareSessions
from .taking_back import TakingBack

log = structlog.get_logger()

PARTITIONS_MAX: Final = 200_000
VISITS_MAX: Final = 1_000
"""In one look of keep_house: the loop does not stall."""
OFFSETS_MAX: Final = 2_000_000
"""From the start to the end of all partitions in memory: each may become a piece of its own, of
some 180 bytes."""
LOCKS_WHERE_FULL: Final = 16
"""Offsets from the start to the end of a partition, where there are so many of all, or the metadata
of the broker is full: each may become a range of its own there."""


class Shares:
    """All of them."""

    def __init__(
        self,
        manager: DiskManager,
        topics: Topics,
        settings: GroupSettings,
        deadlines: Deadlines,
        lanes: Lanes,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        end_turn: Callable[[], None],
        now_ms: Callable[[], int],
        failed: FailedChanges,
    ) -> None:
        """spawn: start a task that lives as long as the broker.  end_turn: send what was answered
        outside of a request.  now_ms: the wall clock.  failed: tells what could not be written."""
        self._manager = manager
        self._failed = failed
        self._topics = topics
        self._settings = settings
        self._taking_back = TakingBack(
            self.limits, self._taken_back, self._looked_at, spawn, end_turn
        )
        self._alarms = Alarms[LivePartition](deadlines, self._taking_back.lock_ended)
        self._beginnings = Beginnings(manager, topics, settings, lanes, now_ms)
        self._end_turn = end_turn
        self._live: dict[Key, LivePartition] = {}
        # From the start to the end of all of them; whether it was told that this is too much.
        self._offsets = 0
        self._is_told_full = False
        # Those that keep_house has yet to look at.
        self._visits: list[LivePartition] = []
        self.reply_budget = ReplyBudget()
        self.sessions = ShareSessions(
            lambda: settings.config.group_share_max_share_sessions,
            self._taking_back.session_ended,
            self._taking_back.session_followed,
        )

    # Where groups stand

    def names(self) -> list[str]:
        """Groups of which something is kept."""
        return list(self._manager.section(SECTION) or ())

    def has(self, group_id: str) -> bool:
        """Whether something is kept of a group."""
        return group_id in (self._manager.section(SECTION) or ())

    def places(self, group_id: str) -> Iterator[tuple[str, UUID, int]]:
        """Topic, its id and partition of all that is kept of a group."""
        for topic, topic_id, index, _ in all_of(self._manager.section(SECTION) or {}, group_id):
            yield topic, topic_id, index

    def start_offset(self, group_id: str, topic_id: UUID, partition: int) -> int | None:
        """The first offset that a group is not done with; None: nothing is known."""
        kept = self._standing(group_id, topic_id, partition)
        return None if kept is None else kept.start

    def lag(self, group_id: str, meta: TopicMeta, partition: int) -> int:
        """Records that the group is not done with, up to the high watermark; -1: unknown."""
        served = self._topics.served_partition(meta.name, partition)
        kept = self._standing(group_id, meta.topic_id, partition)
        if served is None or kept is None:
            return -1
        start = max(kept.start, served.handler.log_start_offset)  # what is deleted is no work
        done = sum(
            max(0, span.last - max(span.first, start) + 1)
            for span in kept.spans
            if span.state != RecordState.AVAILABLE
        )
        return max(0, served.handler.high_watermark - start - done)

    def _standing(self, group_id: str, topic_id: UUID, partition: int) -> ShareState | None:
        live = self._live.get(Key(group_id, topic_id, partition))
        if live is not None:
            spans = [
                Span(first, last, int(state), deliveries)
                for first, last, state, deliveries, _ in live.part.pieces()
                if state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
            ]
            return ShareState(live.part.start, tuple(spans))
        meta = self._topics.by_id(topic_id)
        return (
            None
            if meta is None
            else self._beginnings.kept(Key(group_id, topic_id, partition), meta)
        )

    def set_offsets(self, group_id: str, rows: Sequence[ShareRow], done: Done) -> None:
        """Have a group go on from other offsets; `done` when that is durable, or is not."""
        for row in rows:
            self._drop(self._live.get(Key(group_id, row.topic_id, row.partition)))
        record = partial(record_offsets, self._manager, group_id, rows)
        self._beginnings.move(group_id, record, done)

    def forget(self, group_id: str, topics: Sequence[str] | None, done: Done) -> None:
        """Have nothing kept of a group, or of what it did with these topics; likewise."""
        for live in tuple(self._live.values()):
            if live.key.group_id == group_id and (topics is None or live.topic in topics):
                self._drop(live)
        record = partial(record_forgotten, self._manager, group_id, topics)
        self._beginnings.move(group_id, record, done)

    # Opening

    def limits(self, group_id: str) -> Limits:
        """What holds for a group now."""
        said = self._settings.in_force
        locks = said(group_id, SHARE_RECORD_LOCKS)
        if self.is_full:
            locks = min(locks, LOCKS_WHERE_FULL)
        return Limits(
            locks,
            said(group_id, SHARE_DELIVERIES),
            said(group_id, SHARE_RECORD_LOCK),
        )

    @property
    def is_full(self) -> bool:
        """Whether records are handed out few at a time, whatever batch they are in."""
        return self._offsets >= OFFSETS_MAX or self._manager.is_metadata_full

    def may_renew(self, group_id: str) -> bool:
        """Whether members of a group may renew the locks of what they have."""
        return self._settings.text_in_force(group_id, SHARE_RENEW) == "true"

    def find(self, group_id: str, place: Place) -> LivePartition | None:
        """A group's partition, if somebody fetches from it."""
        return self._live.get(Key(group_id, *place))

    async def begin(self, group_id: str, places: Iterable[Place], pace: Pace) -> dict[Place, Why]:
        """Have a group begin, by one sync, in those of these partitions that are new to it; in
        which it cannot, and why.  `open` says so of what is not served."""
        keys = [key for place in places if (key := Key(group_id, *place)) not in self._live]
        keys = keys[: PARTITIONS_MAX - len(self._live)]
        if not keys:
            return {}
        closed = []
        for key in keys:
            meta = self._topics.by_id(key.topic_id)
            if meta and self._topics.served_partition(meta.name, key.partition) is None:
                closed.append((meta.name, key.partition))
        if closed:
            await self._topics.open_all(closed)
        refused = await self._beginnings.begin(group_id, keys, pace)
        return {Place(key.topic_id, key.partition): why for key, why in refused.items()}

    async def open(self, session: ShareSession, place: Place) -> LivePartition:
        """A group's partition, brought into memory if need be.  Raises Refused."""
        key = Key(session.group_id, *place)
        while True:
            meta = self._topics.by_id(place.topic_id)
            if meta is None:
                self._drop(self._live.get(key))
                raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
            partition = self._topics.served_partition(meta.name, place.partition)
            if partition is None:
                partition = await self._served(meta, place.partition)
                continue
            live = self._live.get(key)
            if live is None:
                live = await self._made(key, meta, partition)
                if live is None:
                    continue
            live.served_by(partition)
            if session.is_open and session not in live.sessions:
                live.sessions[session] = None  # first, or it might leave memory
                self._taking_back.joined(session, live)
            return live

    async def _served(self, meta: TopicMeta, index: int) -> Partition:
        try:
            partition = await self._topics.open(meta.name, index)
        except STORAGE_FAILURES as exc:
            raise Refused(*wire_error(exc)) from exc
        if partition is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {meta.name}-{index}")
        return partition

    async def _made(self, key: Key, meta: TopicMeta, partition: Partition) -> LivePartition | None:
        """As it is written down; None: it was about to be, look again."""
        under_way = self._beginnings.under_way(key)
        if under_way is not None:
            await under_way.wait()
            return None
        if len(self._live) >= PARTITIONS_MAX:
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"share groups have {len(self._live)} partitions in memory, the most there may be",
            )
        kept = self._beginnings.kept(key, meta)
        if kept is None:
            refused = await self._beginnings.begin(key.group_id, [key], Pace())
            if refused:
                raise Refused(*refused[key])
            return None
        live = self._live[key] = LivePartition(key, meta.name, partition, SharePartition(kept))
        self._count(live)
        return live

    # Writing down

    def write(
        self, group_id: str, changes: Iterable[tuple[LivePartition, Change]], done: Done
    ) -> None:
        """Have what a member has said written down, and then done; `done` hears of it."""
        changed = [(live, change) for live, change in changes if not live.is_gone]
        before = [(live.unwritten, live.is_start_unwritten) for live, _ in changed]
        rows = [self._row(live, change.spans, change.start) for live, change in changed]

        def written(error: OSError | None) -> None:
            for (live, change), (unwritten, is_start) in zip(changed, before, strict=True):
                if error is None:
                    live.part.done(change)
                else:
                    live.part.failed(change)
                    self._not_written(live, unwritten)
                    live.is_start_unwritten |= is_start
                    self._taking_back.not_written(live)
                self._looked_at(live)
            done(error)
            self._end_turn()

        self._record(group_id, [live for live, _ in changed], rows, written)

    def _taken_back(
        self, group_id: str, taken: Sequence[tuple[LivePartition, Sequence[Span]]]
    ) -> None:
        """Records are available again, or archived: that is so at once, and written down beside."""
        lives = [live for live, _ in taken]
        rows = [self._row(live, spans, live.part.start) for live, spans in taken]

        def written(error: OSError | None) -> None:
            if error is not None:
                self._failed.tell(
                    "share_state_not_recorded",
                    group_id,
                    group=group_id,
                    topic=lives[0].topic,
                    partition=lives[0].key.partition,
                    others=len(lives) - 1,
                    error=str(error),
                )
            for live, row in zip(lives, rows, strict=True):
                if error is not None:
                    self._not_written(live, row.spans)
                    live.is_start_unwritten = True
                self._forget_if_idle(live)

        self._record(group_id, lives, rows, written)

    def _row(self, live: LivePartition, spans: Sequence[Span], start: int) -> ShareRow:
        """With what could not be written before, as it is by now; what is said now lies over it."""
        before, live.unwritten = live.part.standing(live.unwritten), []
        live.is_start_unwritten = False
        told = _laid(before, spans, start)
        return ShareRow(live.topic, live.key.topic_id, live.key.partition, start, told)

    @staticmethod
    def _not_written(live: LivePartition, spans: Sequence[Span]) -> None:
        """They go with the next that is written; what is unwritten since lies over them."""
        live.unwritten = _laid(spans, live.unwritten, live.part.start)

    def _record(
        self, group_id: str, lives: list[LivePartition], rows: list[ShareRow], done: Done
    ) -> None:
        """Of what is being written nothing leaves memory."""
        if not rows:
            done(None)
            return

        def written(error: OSError | None) -> None:
            for live in lives:
                live.writing -= 1
            done(error)

        for live in lives:
            live.writing += 1
        record_states(self._manager, group_id, rows, written)

    # Alarms of locks, and the end

    def _looked_at(self, live: LivePartition) -> None:
        """Something was done with it: who fetches looks where there is something to be had, and the
        next lock has its alarm."""
        self._count(live)
        if live.sessions and self._has_work(live):
            live.look_again()
        self.set_alarm(live)
        self._forget_if_idle(live)

    def _has_work(self, live: LivePartition) -> bool:
        """Whether there may be records that nobody has."""
        part = live.part
        is_there = part.next_offset < live.partition.handler.high_watermark
        return is_there and part.has_room(self.limits(live.key.group_id))

    def looked_into(self, live: LivePartition, start: int) -> None:
        """Records of it were handed out, if there were any.

        start: where it began before.  If that was no record (a marker), nobody will acknowledge it:
        keep_house writes down that the group is done with it, or it would lag behind for good.
        """
        live.is_start_unwritten |= live.part.start > start
        self._count(live)
        self.set_alarm(live)

    def _count(self, live: LivePartition) -> None:
        offsets = 0 if live.is_gone else live.part.end - live.part.start
        self._offsets += offsets - live.counted
        live.counted = offsets
        if self._offsets >= OFFSETS_MAX and not self._is_told_full:
            log.warning("share_groups_full", offsets=self._offsets, limit=OFFSETS_MAX)
        is_near = self._offsets >= OFFSETS_MAX // 2  # it is told once while they go up and down
        self._is_told_full = self._offsets >= OFFSETS_MAX or (self._is_told_full and is_near)

    def set_alarm(self, live: LivePartition) -> None:
        """Have its next lock end in time."""
        if not live.is_gone:
            self._alarms.set(live, live.part.due_ms)

    def _forget_if_idle(self, live: LivePartition) -> None:
        """Nobody fetches from it and nothing is under way: it is as it is written down."""
        if any(live.place in one.places for one in live.sessions):
            return
        if live.writing or live.unwritten or live.is_start_unwritten or live.is_read:
            return
        if live.part.is_idle:
            self._drop(live)

    def _drop(self, live: LivePartition | None) -> None:
        if live is not None and not live.is_gone:
            live.drop()
            self._alarms.silence(live)
            self._count(live)
            del self._live[live.key]
            self._taking_back.dropped(live)

    def keep_house(self) -> None:
        """Write down what could not be, and let go of what belongs to topics that are gone, or is
        in no session any more: in VISITS_MAX partitions per call, the others in the next."""
        if not self._visits:
            self._visits = list(self._live.values())
        visits, self._visits = self._visits[:VISITS_MAX], self._visits[VISITS_MAX:]
        lacking: dict[str, list[tuple[LivePartition, list[Span]]]] = {}
        for live in visits:
            if self._topics.by_id(live.key.topic_id) is None:
                self._drop(live)
                continue
            lacks = live.unwritten or live.is_start_unwritten
            if lacks and not live.writing and not live.is_gone:
                spans, live.unwritten = live.part.standing(live.unwritten), []
                lacking.setdefault(live.key.group_id, []).append((live, spans))
            else:
                self._forget_if_idle(live)
        for group_id, some in lacking.items():
            self._taken_back(group_id, some)


def _laid(before: Sequence[Span], spans: Sequence[Span], start: int) -> list[Span]:
    """Spans over earlier ones."""
    return [Span(*one) for one in overlaid(before, sorted(spans), start)]
