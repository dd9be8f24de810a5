"""Which groups of consumers there are, in memory and written down, and when each is forgotten.

| nobody is in a group, and | it goes |
|---|---|
| it has no offsets | after group_kept_empty_ms, also after a request has deleted the last, or a |
| | transaction has staged some |
| it has offsets | with the last of them (offset_expiry.py), not before the longest session has |
| | passed since the start |

Of groups with members those offsets go that are of no use any more, and of any group those of
deleted topics: subscriptions may name them, or have an expression for them, for ever.  What could
not be written down when it happened is written down when it is looked at again.

Limits: VISITS_MAX groups or OFFSETS_MAX offsets in one look, so that the loop does not stall.  A
group that has more is gone on with in the next looks; what has changed of it meanwhile stays.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final
from uuid import UUID

import structlog

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.committed import Content, offsets_count

from ..configuration.config import BrokerConfig
from ..failed_changes import FailedChanges
from ..loop.loop_clock import monotonic_ms
from ..recording import Done, ignored
from ..refused import Refused
from .all_names import each_once
from .classic_members import PROTOCOL_TYPE
from .consumer_group import ConsumerGroup
from .group import Group
from .group_lines import STREAMS
from .group_offsets import GroupOffsets
from .group_rounds import State
from .kept_consumers import KeptConsumers
from .kept_ends import KeptEnds
from .kept_groups import KeptGroups
from .kept_streams import KeptStreams
from .offset_expiry import AT_ONCE, AnyGroup, Expiry, unchanged
from .streams_group import StreamsGroup

log = structlog.get_logger()

_OVER: Final = object()
_MINUTE_MS: Final = 60_000
VISITS_MAX: Final = 200
OFFSETS_MAX: Final = AT_ONCE
"""Offsets that one look after the groups goes over, and as many more of the last of them."""
_REST_MS_MAX: Final = 60_000
"""Between two rounds: 1 ms for each offset beyond OFFSETS_MAX that the last one went over."""
LOOK_INTO_MS: Final = 600_000
"""How often every offset of groups with members is looked at, LOOKS_INTO_MAX groups per call."""
LOOKS_INTO_MAX: Final = 20


class GroupUpkeep(GroupOffsets):
    """Those of one data directory."""

    def __init__(
        self,
        manager: DiskManager,
        config: BrokerConfig,
        kept: KeptGroups,
        pending: Callable[[str], Collection[tuple[str, int]]],
        now_ms: Callable[[], int],
        failed: FailedChanges,
    ) -> None:
        """kept, pending, now_ms, failed: as in Groups."""
        super().__init__(manager, pending)
        self._failed = failed
        self.config = config
        self._groups: dict[str, AnyGroup] = {}
        self._is_closed = False
        self._started_ms = self._looked_into_ms = monotonic_ms()
        self._visits: Iterator[str | None] | None = None
        """What is left of a round; None: it has ended."""
        self._visit_left: Iterator[None] | None = None
        """Of a group that is gone on with."""
        self._looks_into_groups = False
        self._next_round_ms = self._looked_at = 0
        self._all_kept = self._kept, self._consumers, self._streams = kept
        self._ends = KeptEnds(manager, now_ms, failed)

    @property
    def is_open(self) -> bool:
        """Whether the broker does not end yet."""
        return not self._is_closed

    def check_open(self) -> None:
        """Raise Refused when the broker ends: that a group is not here says nothing of it then."""
        if self._is_closed:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker ends")

    def _number(self, group_id: str) -> int:
        """The generation or epoch that is written down of a group."""
        return max(one.number(group_id) for one in self._all_kept)

    def _keeps(self, group_id: str) -> bool:
        """Whether it is written down that somebody is in a group."""
        return any(one.has_members(group_id) for one in self._all_kept)

    def places(self) -> list[Collection[str]]:
        """Where the names of all groups are (all_names.py): with members, or with offsets, or those
        of KIP-848 or of streams that had members."""
        kept = (self._consumers.names(), self._streams.names())
        return [self._groups.copy(), self._manager.committed, *kept]

    def exists(self, group_id: str) -> bool:
        """Whether there is such a group."""
        self.check_open()
        is_known = group_id in self._groups or group_id in self._manager.committed
        kept = (self._consumers, self._streams)
        return is_known or any(one.number(group_id) for one in kept)

    def protocol_type(self, group_id: str) -> str:
        """What its members are or were, "consumer" for the most part; empty where nobody ever was
        in it: somebody has committed for it."""
        group = self._groups.get(group_id)
        is_written = group is None  # else it may have been of another kind, when that was written
        if isinstance(group, ConsumerGroup) or (is_written and self._consumers.number(group_id)):
            return PROTOCOL_TYPE
        if isinstance(group, StreamsGroup) or (is_written and self._streams.number(group_id)):
            return STREAMS
        now = "" if group is None else group.protocol_type
        return now or self._kept.protocol_type(group_id)

    def remove(self, group_id: str, done: Done = ignored) -> None:
        """A group without members is deleted.  Not when the broker ends: nobody knows any more
        whether it is one, and the next broker finds it without offsets.

        done: told when its generations are forgotten durably, so that the next group of its name
        begins with the first; or when that failed, and it counts on.
        """
        assert self.is_open, "asked by whoever waited"
        group = self._groups.pop(group_id, None)
        if group is not None:
            group.close(ErrorCode.GROUP_ID_NOT_FOUND)
        left = len(self._all_kept)

        def forgotten(_: OSError | None) -> None:
            nonlocal left
            left -= 1
            if not left:
                done(None)

        for kept in self._all_kept:
            kept.forget(group_id, forgotten)
        self._ends.forget(group_id)

    def keep_house(self, now_ms: int | None) -> None:
        """Forget groups that nobody is in: each after its time, which is short without offsets.

        VISITS_MAX groups per call, or OFFSETS_MAX offsets: the loop does not stall over a million
        of them.  now_ms: the wall clock, for the age of commits; None: it is not believed, nothing
        goes by age.
        """
        if self._is_closed:
            return
        if now_ms is None:
            self._visit_left = None
        if self._visits is None:
            now = monotonic_ms()
            if now < self._next_round_ms:
                return
            self._looked_at = 0
            self._looks_into_groups = now - self._looked_into_ms >= LOOK_INTO_MS
            self._looked_into_ms = now if self._looks_into_groups else self._looked_into_ms
            # In no order, but not in that of a set: a run of the simulation can be repeated.
            self._visits = each_once([*self.places(), self._kept.names(), self._ends.names()])
        most = LOOKS_INTO_MAX if self._looks_into_groups else VISITS_MAX
        until = self._looked_at + OFFSETS_MAX
        while self._visit_left or (most and self._looked_at < until):
            if self._visit_left is None:
                try:
                    group_id = next(self._visits)
                except StopIteration:
                    self._visits = None
                    rest_ms = min(max(0, self._looked_at - OFFSETS_MAX), _REST_MS_MAX)
                    self._next_round_ms = monotonic_ms() + rest_ms
                    return
                if group_id is None:
                    self._looked_at += 1
                    continue
                most -= 1
                self._looked_at += offsets_count(self._manager.committed, group_id)
                self._visit_left = self._visit(group_id, now_ms)
            if next(self._visit_left, _OVER) is not _OVER:
                return
            self._visit_left = None

    def _visit(self, group_id: str, now_ms: int | None) -> Iterator[None]:
        """One group, in pieces: written down where that has failed before, and forgotten when it is
        time."""
        content = self._manager.committed
        group = self._groups.get(group_id)
        self._keep_again(group_id, group)
        if group is not None and not group.is_idle:
            yield from self._visit_members(group_id, group, now_ms)
            return
        if group_id not in content:
            since_ms = self._started_ms
            if group is not None:
                since_ms = group.empty_since_ms or self._started_ms
            if monotonic_ms() - since_ms >= self.config.group_kept_empty_ms:
                self.remove(group_id)
            return
        if now_ms is None:
            return
        last = self._last_used_ms(group_id, group, now_ms)
        if monotonic_ms() - self._started_ms < self.config.group_max_session_timeout_ms:
            return  # whoever was a member before the start may be about to join again
        rows = yield from self._expiry(group_id, now_ms).of_nobody(content, group_id, last)
        if self._groups.get(group_id) is not group or (group is not None and not group.is_idle):
            return  # somebody came meanwhile
        if rows is not None:
            self._forget_expired(group_id, now_ms, content, rows)
            return
        is_same = self._manager.committed.get(group_id) is content.get(group_id)
        if is_same and not (self._pending(group_id) or self.committing(group_id)):
            log.info("group_expired", group=group_id, last_used_ms=last)
            told = self._failed.told("group_not_forgotten", group_id, group=group_id)
            self.forget(group_id, None, told)
            self.remove(group_id)

    def _keep_again(self, group_id: str, group: AnyGroup | None) -> None:
        """Write down what could not be written before."""
        has_turned = isinstance(group, ConsumerGroup | StreamsGroup) and bool(group.members)
        if self._kept.has_members(group_id) and not has_turned:
            self._mend_kept(group_id, group)
        if isinstance(group, ConsumerGroup):
            self._consumers.keep(group, again=True)
        elif self._consumers.has_members(group_id):
            self._mend(self._consumers, group_id, group)
        if isinstance(group, StreamsGroup):
            self._streams.keep(group, again=True)
        elif self._streams.has_members(group_id):
            self._mend(self._streams, group_id, group)

    def _visit_members(self, group_id: str, group: AnyGroup, now_ms: int | None) -> Iterator[None]:
        """A group that somebody is in: what it does not read any more is forgotten."""
        if not self._looks_into_groups or now_ms is None:
            return
        if not self._keeps(group_id):
            self._ends.keep(group_id, now_ms)  # a start will not know of them
        content = self._manager.committed
        gone = yield from self._expiry(group_id, now_ms).abandoned(content, group)
        if self._groups.get(group_id) is group and not group.is_idle:
            self._forget_expired(group_id, now_ms, content, gone)

    def _expiry(self, group_id: str, now_ms: int) -> Expiry:
        retention_ms = self.config.offsets_retention_minutes * _MINUTE_MS
        return Expiry(
            now_ms,
            retention_ms,
            self._pending(group_id),
            self.committing(group_id),
            self._is_there,
        )

    def _is_there(self, name: str, topic_id: UUID) -> bool:
        meta = self._manager.topics.get(name)
        return meta is not None and meta.topic_id == topic_id

    def _forget_expired(
        self, group_id: str, now_ms: int, before: Content, found: list[tuple[str, int]]
    ) -> None:
        """Forget what was found in what stood before, where that still stands."""
        expiry = self._expiry(group_id, now_ms)
        same = unchanged(before, self._manager.committed, group_id, found)
        rows = [row for row in same if not expiry.is_replaced(*row)]
        if rows:
            topics = sorted({topic for topic, _ in rows})
            log.info("offsets_expired", group=group_id, topics=topics, partitions=len(rows))
            told = self._failed.told("offsets_not_forgotten", group_id, group=group_id)
            self.forget(group_id, rows, told)

    def _last_used_ms(self, group_id: str, group: AnyGroup | None, now_ms: int) -> int | None:
        """When somebody was last in an idle group, or committed for it; None: nobody ever was."""
        was_in = not isinstance(group, Group) or group.generation > 0  # else: offsets were deleted
        if group is not None and group.empty_since_ms and was_in:
            since = now_ms - (monotonic_ms() - group.empty_since_ms)
            self._ends.keep(group_id, since)  # what could not be written before
            return max(self._ends.last_used_ms(group_id), since)
        if not (self._number(group_id) or self._ends.has(group_id)):
            return None
        return self._ends.last_used_ms(group_id)

    def _mend_kept(self, group_id: str, group: AnyGroup | None) -> None:
        """Write down that a group has no members any more, if that failed when it happened."""
        if group is None:
            self._ends.happens(group_id)
            self._kept.keep_number(group_id)
        elif isinstance(group, ConsumerGroup | StreamsGroup):
            self._ends.happens(group_id)
            self._kept.forget(group_id)
        elif group.state is State.EMPTY:
            self._kept.keep(group_id, group.kept(), ignored)  # a failure is in the log

    def _mend(
        self,
        kept: KeptConsumers | KeptStreams,
        group_id: str,
        group: AnyGroup | None,
    ) -> None:
        """A group is written down with members as one of a kind that it is none of: nobody is in it
        any more, or what it is now could not be written.  It counts on all the same."""
        if group is None or group.is_idle:
            self._ends.happens(group_id)
        if group is None:
            kept.keep_number(group_id)
        elif isinstance(group, Group):
            self._kept.keep(group_id, group.kept_last(), ignored)
