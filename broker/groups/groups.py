"""All consumer groups of a broker: who they are, their clocks, and where they stand.

    members      in memory and as control events, durable before members hear of what they are
                 given: after a restart they go on (kept_generations.py, kept_consumers.py)
    offsets      control events of the storage engine: durable before a commit is answered

A group exists while it has members, or offsets, or was looked at a moment ago.  It is of the
classic protocol (group.py) or of KIP-848's (consumer_group.py); one without members becomes the
other when a member of that comes, and goes on counting its generations as epochs, and back.  One
with members turns too (group_turning.py), as `group_consumer_migration_policy` allows.  Share
groups (share_groups.py) turn into none of these, nor these into them.

Limits: `groups_max` groups with members, `group_size_max` members each; offsets go after
`offsets_retention_minutes` (offset_expiry.py), those of a group without members not before the
longest session has passed since the start.  Where a start finds more than `groups_max` groups with
members, those of the rest are unknown and join again.  Where a group finds no room those without
members leave memory, at most once in a second: until somebody joins or the next start they are said
to be classic.
"""

import errno
from collections.abc import Callable, Collection
from itertools import chain
from typing import Final

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.committed import offsets_count
from segbroker.segments.generations import Generation
from segbroker.segments.manager import DiskManager

from ..configuration.config import BrokerConfig
from ..loop.deadlines import Deadlines
from ..recording import Done, ignored, logged
from ..refused import Refused
from .classic_members import PROTOCOL_TYPE
from .consumer_group import ConsumerGroup
from .consumer_members import MaySee
from .group import Group
from .group_alarms import GroupAlarms
from .group_keys import SESSION
from .group_members import new_member_id
from .group_offsets import GroupOffsets
from .group_rounds import OnRecorded, Record, State
from .group_settings import GroupSettings
from .group_start import Start
from .group_turning import check_upgrade, downgrade, may_downgrade, upgrade
from .kept_consumers import KeptConsumers
from .kept_ends import KeptEnds
from .kept_generations import KeptGenerations
from .kept_sizes import KeptSizes
from .offset_expiry import Expiry
from .server_assignors import Partition
from .share_group import ShareGroup
from .share_groups import ShareGroups

log = structlog.get_logger()

_MINUTE_MS: Final = 60_000
VISITS_MAX: Final = 200
OFFSETS_MAX: Final = 2_000
"""Offsets that one look after the groups goes over, but for those of one group: some ms."""
_REST_MS_MAX: Final = 60_000
"""Between two rounds: 1 ms for each offset beyond OFFSETS_MAX that the last one went over."""
LOOK_INTO_MS: Final = 600_000
"""How often every offset of groups with members is looked at, LOOKS_INTO_MAX groups per call."""
LOOKS_INTO_MAX: Final = 20
_DROP_INTERVAL_MS: Final = 1_000
"""Between two looks for groups without members where there are `groups_max`: each looks at all."""
_ENDS: Final = OSError(errno.ESHUTDOWN, "the broker ends")


def monotonic_ms() -> int:
    """Trio's clock, in ms: sessions and rebalances run on it."""
    return int(trio.current_time() * 1000)


class Groups(GroupOffsets):
    """The groups of one broker."""

    def __init__(
        self,
        manager: DiskManager,
        config: BrokerConfig,
        deadlines: Deadlines,
        settings: GroupSettings,
        end_turn: Callable[[], None],
        may_see: Callable[[str], MaySee],
        pending: Callable[[str], Collection[tuple[str, int]]],
        now_ms: Callable[[], int],
    ) -> None:
        """end_turn: send what was answered outside of a request.  may_see: what a viewer may.

        pending: partitions of which a transaction is about to say where a group stands.
        now_ms: the wall clock.
        """
        super().__init__(manager, pending)
        self._settings = settings
        self.config = config
        self._groups: dict[str, Group | ConsumerGroup] = {}
        self._alarms = GroupAlarms[Group | ConsumerGroup](deadlines, self._ring)
        self.share_groups = ShareGroups(manager, config, deadlines, settings, monotonic_ms)
        self._visits: list[str] = []
        self._may_see = may_see
        self._started_ms = monotonic_ms()
        self._end_turn = end_turn
        self._is_closed = False
        self._looks_into_groups = False
        self._next_drop_ms = self._next_round_ms = 0
        self._looked_at = 0
        self._looked_into_ms = self._started_ms
        sizes = KeptSizes(manager.event_size_max)
        self._kept = KeptGenerations(manager, sizes)
        self._consumers = KeptConsumers(manager, sizes, end_turn)
        self._ends = KeptEnds(manager, now_ms)
        start = Start(
            manager, config.groups_max, self._started_ms, self._made, self._made_consumer, may_see
        )
        self._groups |= start.groups(self._kept, self._consumers)
        for group in tuple(self._groups.values()):
            self.changed(group)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Go by these settings: in groups that there are from their next request on."""
        self.config = self._settings.config = config
        for group in self._groups.values():
            if isinstance(group, Group):
                group.initial_delay_ms = config.group_initial_rebalance_delay_ms
                group.size_max = config.group_size_max
            else:
                group.size_max = config.group_consumer_size_max
                self.settings_changed(group.group_id)
        self.share_groups.reconfigure(config)

    def settings_changed(self, group_id: str) -> None:
        """A group, if it is there, goes by the settings that hold for it."""
        if isinstance(group := self._groups.get(group_id), ConsumerGroup):
            group.session_timeout_ms = self._settings.in_force(group_id, SESSION)
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
        """The group, if it is of KIP-848's protocol and had members since the start."""
        self.check_open()
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def get_mixed(self, group_id: str) -> ConsumerGroup | None:
        """The group, if it is of KIP-848's protocol and has members: a classic one joins it so."""
        group = self.get_consumer(group_id)
        return group if group is not None and group.members else None

    @property
    def is_open(self) -> bool:
        """Whether the broker does not end yet."""
        return not self._is_closed

    def check_open(self) -> None:
        """Raise Refused when the broker ends: that a group is not here says nothing of it then."""
        if self._is_closed:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker ends")

    def obtain(self, group_id: str) -> Group:
        """The classic group, made if it is new.

        Raises Refused: too many, or not classic, or the broker ends.  In a group of KIP-848's
        protocol with members a classic one joins otherwise (classic_members.py).
        """
        self.check_open()
        group = self._groups.get(group_id)
        if isinstance(group, Group):
            return group
        if group is not None and not group.is_idle:
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{group_id!r} is no classic group"
            )
        if not self.share_groups.gives_way(group_id):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{group_id!r} is a share group")
        self._check_room(group_id)
        made = self._made(group_id)
        made.generation = self._number(group_id) if group is None else group.epoch
        self._consumers.turned(group_id)
        self._replace(made)
        return made

    def _made(self, group_id: str) -> Group:
        return Group(
            group_id,
            new_member_id,
            self.config.group_initial_rebalance_delay_ms,
            self.config.group_size_max,
            self._recorder(group_id),
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
        if not self.share_groups.gives_way(group_id):
            raise Refused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        self._check_room(group_id)
        made = self._made_consumer(group_id)
        if group is not None and group.members:
            check_upgrade(group, self.config)
            upgrade(monotonic_ms(), group, made, self._manager.topics, self._may_see)
        else:
            before = self._number(group_id) if group is None else group.generation
            made.epoch = made.assignment_epoch = before
        made.given = {} if group is None else dict(group.roster.given)
        return made

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

    def install(self, made: ConsumerGroup) -> None:
        """A group that was obtained is there now, if it was not before."""
        before = self._groups.get(made.group_id)
        if before is made:
            return
        self._consumers.turned(made.group_id)  # rows of a group that did not go on are none of it
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
        )

    def _number(self, group_id: str) -> int:
        """The generation or epoch that is written down of a group."""
        return max(self._kept.number(group_id), self._consumers.number(group_id))

    def when_kept(self, group: ConsumerGroup, member_id: str | None, done: Done) -> None:
        """Call `done` when what is known of a member, or of all with None, is durable, or is not.

        At once where nothing of it has changed."""
        if self._is_closed:
            done(_ENDS)
        else:
            self._note_end(group)
            self._consumers.when_kept(group, member_id, done)

    def changed_and_kept(self, group: ConsumerGroup, done: Done) -> None:
        """A group was changed; `done` when all of that is durable, or is not."""
        self.when_kept(group, None, done)
        self.changed(group)  # it may turn, and is written down as another one then

    def _note_end(self, group: ConsumerGroup) -> None:
        """Before it is written down that a group has no members: since when."""
        if group.unkept and not group.members:
            self._ends.happens(group.group_id)

    def _check_room(self, group_id: str) -> None:
        if group_id in self._groups or self._count < self.config.groups_max:
            return
        now = monotonic_ms()
        if now >= self._next_drop_ms:
            self._next_drop_ms = now + _DROP_INTERVAL_MS
            self._drop_idle()
        if self._count >= self.config.groups_max:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"there are {self._count} groups")

    @property
    def _count(self) -> int:
        return len(self._groups) + len(self.share_groups)

    def _drop_idle(self) -> None:
        """Make room: groups without members are as they are written down."""
        self.share_groups.drop_idle()
        for group_id, group in tuple(self._groups.items()):
            number = group.epoch if isinstance(group, ConsumerGroup) else group.generation
            if group.is_idle and self._number(group_id) == number and not self._keeps(group_id):
                self._alarms.silence(group_id)
                del self._groups[group_id]

    def _keeps(self, group_id: str) -> bool:
        """Whether it is written down that somebody is in a group."""
        return self._kept.has_members(group_id) or self._consumers.has_members(group_id)

    def _replace(self, made: Group | ConsumerGroup) -> None:
        self._alarms.silence(made.group_id)
        self._groups[made.group_id] = made

    def members_count(self, group_id: str) -> int:
        """How many are in it now."""
        self.check_open()
        group = self._groups.get(group_id)
        return 0 if group is None else len(group.members)

    def changed(self, group: Group | ConsumerGroup) -> None:
        """Something was done with this group: it is written down, and its alarm is set anew if it
        has to come earlier."""
        if self._is_closed or self._groups.get(group.group_id) is not group:
            return
        if isinstance(group, ConsumerGroup):
            if self._maybe_turn_back(group):
                return
            self._note_end(group)
            self._consumers.keep(group)
        self._alarms.set(group)

    def was_told(
        self, group: ConsumerGroup, member_id: str, assignment: Collection[Partition] | None
    ) -> None:
        """The answer to a member leaves."""
        group.was_told(monotonic_ms(), member_id, assignment)
        if not self._is_closed and self._groups.get(group.group_id) is group:
            self._alarms.set(group)

    def _ring(self, group: Group | ConsumerGroup) -> None:
        try:
            group.tick(monotonic_ms())
        except Exception:
            log.exception("group_failed", group=group.group_id)
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

    # Offsets

    def names(self) -> list[str]:
        """Every group: with members, or with offsets."""
        return sorted({*self._groups, *self._manager.committed})

    def exists(self, group_id: str) -> bool:
        """Whether there is such a group."""
        self.check_open()
        group = self._groups.get(group_id)
        return group is not None or group_id in self._manager.committed

    def protocol_type(self, group_id: str) -> str:
        """What its members are or were, "consumer" for the most part; empty where nobody ever was
        in it: somebody has committed for it."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup) or self._consumers.number(group_id):
            return PROTOCOL_TYPE
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
        left = 2

        def forgotten(_: OSError | None) -> None:
            nonlocal left
            left -= 1
            if not left:
                done(None)

        self._kept.forget(group_id, forgotten)
        self._consumers.forget(group_id, forgotten)
        self._ends.forget(group_id)

    def keep_house(self, now_ms: int | None) -> None:
        """Forget groups that nobody is in: each after its time, which is short without offsets.

        VISITS_MAX groups per call, or OFFSETS_MAX offsets: the loop does not stall over a million
        of them.  now_ms: the wall clock, for the age of commits; None: it is not believed, nothing
        goes by age.
        """
        if self._is_closed:
            return
        if not self._visits:
            now = monotonic_ms()
            if now < self._next_round_ms:
                return
            self._looked_at = 0
            self._looks_into_groups = now - self._looked_into_ms >= LOOK_INTO_MS
            self._looked_into_ms = now if self._looks_into_groups else self._looked_into_ms
            written = (self._kept.names(), self._consumers.names(), self._ends.names())
            self._visits = sorted({*self.names(), *chain(*written)})
        most = LOOKS_INTO_MAX if self._looks_into_groups else VISITS_MAX
        until = self._looked_at + OFFSETS_MAX
        while self._visits and most and self._looked_at < until:
            group_id = self._visits.pop()
            most -= 1
            self._looked_at += offsets_count(self._manager.committed, group_id)
            self._visit(group_id, now_ms)
        if not self._visits:
            rest_ms = min(max(0, self._looked_at - OFFSETS_MAX), _REST_MS_MAX)
            self._next_round_ms = monotonic_ms() + rest_ms

    def _visit(self, group_id: str, now_ms: int | None) -> None:
        content = self._manager.committed
        group = self._groups.get(group_id)
        has_turned = isinstance(group, ConsumerGroup) and bool(group.members)
        if self._kept.has_members(group_id) and not has_turned:
            self._mend_kept(group_id, group)
        if isinstance(group, ConsumerGroup):
            self._consumers.keep(group, again=True)  # what could not be written before
        elif self._consumers.has_members(group_id):
            if group is None or group.is_idle:
                self._ends.happens(group_id)
            self._consumers.forget(group_id)
        if group is not None and not group.is_idle:
            if self._looks_into_groups and now_ms is not None:
                if not self._keeps(group_id):
                    self._ends.keep(group_id, now_ms)  # a start will not know of them
                expiry = self._expiry(group_id, now_ms)
                self._forget_expired(group_id, expiry.abandoned(content, group))
            return
        if group_id not in content:
            since_ms = self._started_ms
            if group is not None:
                since_ms = group.empty_since_ms
            if monotonic_ms() - since_ms >= self.config.group_kept_empty_ms:
                self.remove(group_id)
            return
        if now_ms is None:
            return
        last = self._last_used_ms(group_id, group, now_ms)
        if monotonic_ms() - self._started_ms < self.config.group_max_session_timeout_ms:
            return  # whoever was a member before the start may be about to join again
        rows = self._expiry(group_id, now_ms).of_nobody(content, group_id, last)
        if rows is None:
            log.info("group_expired", group=group_id, last_used_ms=last)
            self.forget(group_id, None, logged("group_not_forgotten", group=group_id))
            self.remove(group_id)
        else:
            self._forget_expired(group_id, rows)

    def _expiry(self, group_id: str, now_ms: int) -> Expiry:
        retention_ms = self.config.offsets_retention_minutes * _MINUTE_MS
        return Expiry(now_ms, retention_ms, self._pending(group_id), self.committing(group_id))

    def _forget_expired(self, group_id: str, rows: list[tuple[str, int]]) -> None:
        if rows:
            topics = sorted({topic for topic, _ in rows})
            log.info("offsets_expired", group=group_id, topics=topics, partitions=len(rows))
            self.forget(group_id, rows, logged("offsets_not_forgotten", group=group_id))

    def _last_used_ms(
        self, group_id: str, group: Group | ConsumerGroup | None, now_ms: int
    ) -> int | None:
        """When somebody was last in an idle group, or committed for it; None: nobody ever was."""
        if group is not None and group.empty_since_ms:
            since = now_ms - (monotonic_ms() - group.empty_since_ms)
            self._ends.keep(group_id, since)  # what could not be written before
            return max(self._ends.last_used_ms(group_id), since)
        if not (self._number(group_id) or self._ends.has(group_id)):
            return None
        return self._ends.last_used_ms(group_id)

    def _mend_kept(self, group_id: str, group: Group | ConsumerGroup | None) -> None:
        """Write down that a group has no members any more, if that failed when it happened."""
        if group is None:
            self._ends.happens(group_id)
            self._kept.keep_number(group_id)
        elif isinstance(group, ConsumerGroup):
            self._ends.happens(group_id)
            self._kept.forget(group_id)
        elif group.state is State.EMPTY:
            self._kept.keep(group_id, group.kept(), lambda _: None)  # a failure is in the log
