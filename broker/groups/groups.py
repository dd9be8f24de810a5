"""All groups of a broker: their members, their clocks, and their offsets.

    members      in memory and as control events, durable before members hear of what they are
                 given: they survive a restart (kept_*.py)
    offsets      control events of the storage engine: durable before a commit is answered

A group exists while it has members, or offsets, or was used a moment ago (group_upkeep.py).  It is
of the classic protocol (group.py), of KIP-848's (consumer_group.py) or a streams group
(streams_group.py).  A group without members takes the protocol of the next member and continues to
count: generations become epochs, and back.  A group of consumers with members can change its
protocol, too (group_turning.py), if `group_consumer_migration_policy` allows it.  Share groups
(share_groups.py) never become another kind.

Limits: `groups_max` groups with members, `group_size_max` members each.  Offsets expire after
`offsets_retention_minutes` (offset_expiry.py), but those of a group without members not before the
longest session has passed since the start.  If a start finds more than `groups_max` groups with
members, the members of the rest are unknown and join again.  If there is no room for a group,
groups without members leave memory (group_places.py).  Until somebody joins, or until the next
start, such a KIP-848 or streams group is reported as it is stored.
"""

import errno
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Final

import structlog

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.generations import Generation

from ..configuration.config import BrokerConfig
from ..failed_changes import FailedChanges
from ..loop.alarms import Alarms
from ..loop.deadlines import Deadlines
from ..loop.lanes import Lanes
from ..loop.loop_clock import monotonic_ms
from ..loop.pace import Pace
from ..recording import Done
from ..refused import Refused
from .consumer_group import ConsumerGroup
from .consumer_members import MaySee
from .group import Group
from .group_keys import SESSION, STREAMS_INITIAL_DELAY, STREAMS_SESSION, STREAMS_STANDBYS
from .group_lines import CLASSIC, CONSUMER, STREAMS, GroupLines
from .group_members import new_member_id
from .group_places import GroupPlaces
from .group_rounds import OnRecorded, Record
from .group_settings import GroupSettings
from .group_start import Start
from .group_turning import check_upgrade, downgrade, may_downgrade, upgrade
from .group_upkeep import GroupUpkeep
from .kept_groups import KeptGroups
from .member_room import MemberRoom
from .member_sizes import NAME, Key, sizes_in
from .offset_expiry import AnyGroup
from .share_group import ShareGroup
from .share_groups import ShareGroups
from .streams_group import StreamsGroup

log = structlog.get_logger()

FAILED_REST_MS: Final = 1_000
"""A group in which a mistake of ours ended what was due is looked at again after that."""
_ENDS: Final = OSError(errno.ESHUTDOWN, "the broker ends")


class Groups(GroupUpkeep):
    """The groups of one broker."""

    def __init__(
        self,
        manager: DiskManager,
        config: BrokerConfig,
        kept: KeptGroups,
        deadlines: Deadlines,
        settings: GroupSettings,
        end_turn: Callable[[], None],
        may_see: Callable[[str], MaySee],
        pending: Callable[[str], Collection[tuple[str, int]]],
        now_ms: Callable[[], int],
        failed: FailedChanges,
    ) -> None:
        """kept: what is written down; nobody is in a group before it is taken up.

        end_turn: send what was answered outside of a request.  may_see: what a viewer may.
        pending: partitions of which a transaction is about to say where a group stands.
        now_ms: the wall clock.  failed: tells what could not be written.
        """
        super().__init__(manager, config, kept, pending, now_ms, failed)
        self._settings = settings
        self.lines = GroupLines()
        self._alarms = Alarms[AnyGroup](deadlines, self._ring)
        self.share_groups = ShareGroups(manager, config, deadlines, settings, self.lines)
        self.room = MemberRoom(self._sizes, self._drop_if_idle)
        self._places = GroupPlaces(self._has_place, self._every, self._drop_if_idle)
        self._may_see = may_see
        self._end_turn = end_turn

    async def take_up(self, lanes: Lanes) -> None:
        """Let the groups go on that somebody was in when the last broker ended: in a lane, since
        there may be thousands of them, while nobody is served yet."""
        start = Start(
            self._manager,
            self.config.groups_max,
            self._started_ms,
            self._made,
            self._made_consumer,
            self._made_streams,
            self._may_see,
        )
        found = await lanes.run(start.groups, self._kept, self._consumers, self._streams)
        self._groups |= found
        pace = Pace()
        for group in found.values():
            for key, size in sizes_in(group).items():
                self.room.put(group.group_id, key, size())
            self.changed(group)
            await pace.step()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Go by these settings: in groups that there are from their next request on."""
        self.config = self._settings.config = config
        for group in self._groups.values():
            if isinstance(group, Group):
                group.initial_delay_ms = config.group_initial_rebalance_delay_ms
                group.size_max = config.group_size_max
            elif isinstance(group, ConsumerGroup):
                group.size_max = config.group_consumer_size_max
                self.settings_changed(group.group_id)
            else:
                group.size_max = config.group_streams_size_max
                self.settings_changed(group.group_id)
        self.share_groups.reconfigure(config)

    def settings_changed(self, group_id: str) -> None:
        """A group, if it is there, goes by the settings that hold for it."""
        if isinstance(group := self._groups.get(group_id), ConsumerGroup):
            group.session_timeout_ms = self._settings.in_force(group_id, SESSION)
        elif isinstance(group, StreamsGroup):
            self._set(group)
        self.share_groups.settings_changed(group_id)

    # Groups with members

    def get(self, group_id: str) -> Group | None:
        """The group, if it is classic and had members since the start.

        This and all that asks who is in a group raises Refused when the broker ends.
        """
        self.check_open()
        group = self._groups.get(group_id)
        return group if isinstance(group, Group) else None

    def get_consumer(self, group_id: str) -> ConsumerGroup | None:
        """The group, if it is of KIP-848's protocol: one that has left memory as it is written
        down."""
        self.check_open()
        group = self._groups.get(group_id)
        if group is None and self._is_kept_consumer(group_id):
            made = self._made_consumer(group_id)
            made.epoch = made.assignment_epoch = self._consumers.number(group_id)
            return made
        return group if isinstance(group, ConsumerGroup) else None

    def _is_kept_consumer(self, group_id: str) -> bool:
        return self._consumers.number(group_id) > 0 and not self.share_groups.has(group_id)

    def get_streams(self, group_id: str) -> StreamsGroup | None:
        """The group, if it is a streams group: one that has left memory as it is written down."""
        self.check_open()
        group = self._groups.get(group_id)
        if group is None:
            return self._written_down(group_id)
        return group if isinstance(group, StreamsGroup) else None

    def _written_down(self, group_id: str) -> StreamsGroup | None:
        """A streams group that is not in memory: nobody is in it."""
        kept = self._streams.find(group_id)
        if kept is None or self.share_groups.has(group_id):
            return None
        made = self._made_streams(group_id)
        made.count_on(kept)
        return made

    def get_epochal(self, group_id: str) -> ConsumerGroup | StreamsGroup | None:
        """The group, if its members commit with an epoch: of KIP-848's protocol, or streams."""
        return self.get_consumer(group_id) or self.get_streams(group_id)

    def get_mixed(self, group_id: str) -> ConsumerGroup | None:
        """The group, if it is of KIP-848's protocol and has members: a classic one joins it so."""
        group = self.get_consumer(group_id)
        return group if group is not None and group.members else None

    def obtain(self, group_id: str) -> Group:
        """The classic group, made if it is new.

        Raises Refused: too many, or not classic, or the broker ends.  In a group of KIP-848's
        protocol with members a classic one joins otherwise (classic_members.py).
        """
        self.check_open()
        group = self._groups.get(group_id)
        if isinstance(group, Group):
            return group
        self.check_classic(group_id)
        self._check_room(group_id)
        made = self._made(group_id)
        made.generation = self._number(group_id) if group is None else group.epoch
        self._consumers.turned(group_id)
        self._streams.turned(group_id)
        self._replace(made)
        return made

    def in_hand(self, group_id: str) -> AnyGroup | None:
        """A group of which a request is about to delete offsets: in memory, so that one that is
        deleted meanwhile is known by it.  None: nobody is in it, as it is written down."""
        group = self._groups.get(group_id)
        if group is None and self.get_epochal(group_id) is None:
            with suppress(Refused):  # too many: then it is gone with its last offset
                group = self.obtain(group_id)
        return group

    def stays_empty(self, group: AnyGroup) -> None:
        """Offsets of a group were deleted by a request.  One that nobody is in and that has none
        left stays for group_kept_empty_ms, as in Kafka for some minutes: whoever has deleted its
        offsets may be about to delete it.  Not one that was deleted meanwhile."""
        has_offsets = group.group_id in self._manager.committed
        is_there = self._groups.get(group.group_id) is group
        if is_there and group.is_idle and not has_offsets:
            group.empty_since_ms = monotonic_ms()

    def has_staged(self, group_id: str) -> None:
        """Offsets of a group were staged by a transaction.  One that nobody is in and that has none
        that stand stays as long as that, from now on, whatever becomes of the transaction."""
        if self.is_open and group_id not in self._manager.committed:
            group = self.in_hand(group_id)
            if group is not None:
                self.stays_empty(group)

    def check_classic(self, group_id: str) -> None:
        """Raise Refused where another kind of group has this name: one that somebody is in, or
        that stands somewhere."""
        group = self._groups.get(group_id)
        if group is not None and not isinstance(group, Group) and not group.is_idle:
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{group_id!r} is no classic group"
            )
        if not self.share_groups.gives_way(group_id):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{group_id!r} is a share group")

    def _made(self, group_id: str) -> Group:
        return Group(
            group_id,
            new_member_id,
            self.config.group_initial_rebalance_delay_ms,
            self.config.group_size_max,
            self._recorder(group_id),
            self.lines.of(group_id, CLASSIC),
        )

    def _recorder(self, group_id: str) -> Record:
        """How a group has its generations written down."""

        def record(kept: Generation, told: OnRecorded) -> None:
            def written(error: OSError | None) -> None:
                code = ErrorCode.NONE if error is None else ErrorCode.COORDINATOR_NOT_AVAILABLE
                told(monotonic_ms(), code)
                if isinstance(group := self._groups.get(group_id), Group):
                    self.changed(group)
                self._end_turn()

            if not kept.members:
                self._ends.happens(group_id)
            self._kept.keep(group_id, kept, written)

        return record

    def obtain_consumer(self, group_id: str) -> ConsumerGroup:
        """The KIP-848 group, made if it is new, or what a classic one with members turns into.

        It is there from `install` on: who is refused in it has turned nothing.

        Raises Refused: too many, or a classic one that cannot turn, or the broker ends.
        """
        self.check_open()
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        is_streams = isinstance(group, StreamsGroup) and not group.is_idle
        if is_streams or not self.share_groups.gives_way(group_id):
            raise Refused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        self._check_room(group_id)
        made = self._made_consumer(group_id)
        if isinstance(group, Group) and group.members:
            check_upgrade(group, self.config)
            upgrade(monotonic_ms(), group, made, self._manager.topics, self._may_see)
        else:
            made.epoch = made.assignment_epoch = self._counted(group_id, group)
        if isinstance(group, Group):
            for member_id, ends_ms in group.roster.given.items():
                made.give(member_id, ends_ms)
        return made

    def _counted(self, group_id: str, group: AnyGroup | None) -> int:
        """The last generation or epoch of a group, whatever it was."""
        if group is None:
            return self._number(group_id)
        return group.generation if isinstance(group, Group) else group.epoch

    def obtain_streams(self, group_id: str) -> StreamsGroup:
        """The streams group, made if it is new; it is there from `install` on.

        Raises Refused: too many, or a group of another kind with members, or the broker ends.
        """
        self.check_open()
        group = self._groups.get(group_id)
        if isinstance(group, StreamsGroup):
            return group
        is_other = group is not None and not group.is_idle
        if is_other or not self.share_groups.gives_way(group_id):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        self._check_room(group_id)
        if group is None and (written := self._written_down(group_id)) is not None:
            return written
        made = self._made_streams(group_id)
        made.epoch = made.assignment_epoch = self._counted(group_id, group)
        return made

    def _made_streams(self, group_id: str) -> StreamsGroup:
        made = StreamsGroup(
            group_id,
            session_timeout_ms=0,
            size_max=self.config.group_streams_size_max,
            tell=self.lines.of(group_id, STREAMS),
        )
        self._set(made)
        return made

    def _set(self, group: StreamsGroup) -> None:
        """Have a streams group go by the settings that hold for it."""
        group.session_timeout_ms = self._settings.in_force(group.group_id, STREAMS_SESSION)
        group.standbys = self._settings.in_force(group.group_id, STREAMS_STANDBYS)
        delay_ms = self._settings.in_force(group.group_id, STREAMS_INITIAL_DELAY)
        group.initial_delay_ms = delay_ms

    def obtain_share(self, group_id: str) -> ShareGroup:
        """The share group, made if it is new.

        Raises Refused: too many, or a group of another kind has this name, or the broker ends.
        """
        self.check_open()
        if (group := self.share_groups.get(group_id)) is not None:
            return group
        self.check_shared(group_id)
        self._check_room(group_id)
        self.remove(group_id)  # what nobody is in any more, and stands nowhere
        return self.share_groups.make(group_id)

    def check_shared(self, group_id: str) -> None:
        """Raise Refused where another kind of group has this name: one that somebody is in, or
        that stands somewhere."""
        if not (self.share_groups.has(group_id) or self._is_free(group_id)):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")

    def _is_free(self, group_id: str) -> bool:
        group = self._groups.get(group_id)
        has_members = self._keeps(group_id) if group is None else not group.is_idle
        stands = group_id in self._manager.committed or self.committing(group_id)
        return not (has_members or stands or self._pending(group_id))

    def install(self, made: ConsumerGroup | StreamsGroup) -> None:
        """A group that was obtained is there now, if it was not before."""
        before = self._groups.get(made.group_id)
        if before is made:
            return
        self._consumers.turned(made.group_id)  # rows of a group that did not go on are none of it
        self._streams.turned(made.group_id)
        self._replace(made)
        if before is not None:
            if before.members:
                log.info("group_upgraded", group=made.group_id, epoch=made.epoch)
            before.close(ErrorCode.REBALANCE_IN_PROGRESS)

    def _maybe_turn_back(self, group: ConsumerGroup) -> bool:
        """A group of classic members alone is a classic one again; whether it is."""
        if not may_downgrade(group, self.config):
            return False
        group_id = group.group_id
        waiting = self._consumers.handed_over(group_id)
        made = self._made(group_id)
        kept = downgrade(monotonic_ms(), group, made, self._manager.topics)
        self._replace(made)
        log.info("group_downgraded", group=group_id, generation=made.generation)

        def written(error: OSError | None) -> None:
            for done in waiting:
                done(error)
            self._end_turn()

        self._kept.keep(group_id, kept, written)
        self.changed(made)
        return True

    def _made_consumer(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(
            group_id,
            self._settings.in_force(group_id, SESSION),
            self.config.group_consumer_size_max,
            self.lines.of(group_id, CONSUMER),
        )

    def when_kept(
        self, group: ConsumerGroup | StreamsGroup, member_id: str | None, done: Done
    ) -> None:
        """Call `done` when what is known of a member, or of all with None, is durable, or is not.

        At once where nothing of it has changed."""
        if self._is_closed:
            done(_ENDS)
            return
        self._note_end(group)
        if isinstance(group, ConsumerGroup):
            self._consumers.when_kept(group, member_id, done)
        else:
            self._streams.when_kept(group, member_id, done)

    def changed_and_kept(self, group: ConsumerGroup, done: Done) -> None:
        """A group was changed; `done` when all of that is durable, or is not."""
        self.when_kept(group, None, done)
        self.changed(group)  # it may turn, and is written down as another one then

    def _note_end(self, group: ConsumerGroup | StreamsGroup) -> None:
        """Before it is written down that a group has no members: since when."""
        if group.unkept and not group.members:
            self._ends.happens(group.group_id)

    def _check_room(self, group_id: str) -> None:
        """Raise Refused where there is none for one more, which is about to be made."""
        if group_id in self._groups:
            return
        self.room.check(group_id, NAME, len(group_id))
        if not self._places.make():
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"there are {self._count} groups")
        self.room.put(group_id, NAME, len(group_id))

    def _sizes(self, group_id: str) -> dict[Key, Callable[[], int]]:
        """What there is of a group that may be large."""
        sizes: dict[Key, Callable[[], int]] = {}
        for one in (self._groups.get(group_id), self.share_groups.get(group_id)):
            if one is not None:
                sizes |= sizes_in(one)
        return sizes

    @property
    def _count(self) -> int:
        return len(self._groups) + len(self.share_groups)

    def _has_place(self) -> bool:
        return self._count < self.config.groups_max

    def _every(self) -> Iterator[AnyGroup | ShareGroup]:
        yield from self._groups.values()
        yield from self.share_groups.in_memory

    def _drop_if_idle(self, group_id: str) -> bool:
        """A group without members is as it is written down: it may go.  Whether one went."""
        before = self._count
        self.share_groups.drop_if_idle(group_id)
        group = self._groups.get(group_id)
        if group is None or not group.is_idle or self._keeps(group_id):
            return self._count < before
        if self._number(group_id) == self._counted(group_id, group):
            self._alarms.silence(group)
            del self._groups[group_id]
        return self._count < before

    def _replace(self, made: AnyGroup) -> None:
        if (before := self._groups.get(made.group_id)) is not None:
            self._alarms.silence(before)
        self._groups[made.group_id] = made

    def in_memory(self, group_id: str) -> AnyGroup | None:
        """The group, if it has members or had some a moment ago; no share group."""
        return self._groups.get(group_id)

    def members_count(self, group_id: str) -> int:
        """How many are in it now."""
        self.check_open()
        group = self._groups.get(group_id)
        return 0 if group is None else len(group.members)

    def changed(self, group: AnyGroup) -> None:
        """Something was done with this group: it is written down, and its alarm is set anew if it
        has to come earlier."""
        if self._is_closed or self._groups.get(group.group_id) is not group:
            return
        if isinstance(group, ConsumerGroup):
            if self._maybe_turn_back(group):
                return
            self._note_end(group)
            self._consumers.keep(group)
        elif isinstance(group, StreamsGroup):
            self._note_end(group)
            self._streams.keep(group)
        self._alarms.set(group, group.due_ms)

    def look_by_then(self, group: ConsumerGroup | StreamsGroup) -> None:
        """It may have something to do earlier than before, and nothing to be written down."""
        if not self._is_closed and self._groups.get(group.group_id) is group:
            self._alarms.set(group, group.due_ms)

    def _ring(self, group: AnyGroup) -> None:
        if self._groups.get(group.group_id) is not group:
            return  # it was deleted, or the broker ends: its members go on with the next one
        try:
            group.tick(monotonic_ms())
        except Exception:
            log.exception("group_failed", group=group.group_id)
            group.due_ms = monotonic_ms() + FAILED_REST_MS
        self.changed(group)

    def close(self) -> None:
        """The broker ends: everybody who waits is told to look for the coordinator again.

        Members stay written down: they go on when it is there again.
        """
        self._is_closed = True
        for group in self._groups.values():
            group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._groups.clear()
        self.share_groups.close()
        self._consumers.close(_ENDS)
        self._streams.close(_ENDS)
