"""All share groups of a broker, as far as who is in them; what they did with records is in Shares.

A name is that of one kind of group.  A share group is there while it has members, had some a moment
ago (group_kept_empty_ms), or something is written down of it (segments/metadata/share_groups.py):
this is for good, as in Kafka, until somebody deletes it.  Members and epochs are in memory alone.

Groups has them among its own, counts them together, and asks here whether a name is theirs.
"""

from collections.abc import Collection, Container
from typing import Final

import structlog

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.share_groups import SECTION

from ..configuration.config import BrokerConfig
from ..loop.alarms import Alarms
from ..loop.deadlines import Deadlines
from ..loop.loop_clock import monotonic_ms
from .group_keys import SHARE_SESSION
from .group_lines import SHARE, GroupLines
from .group_settings import GroupSettings
from .share_group import ShareGroup

log = structlog.get_logger()

_NONE: Final[frozenset[str]] = frozenset()
_FAILED_AGAIN_MS: Final = 1_000
"""When a group is looked at again in which something went wrong."""


class ShareGroups:
    """The share groups of one broker."""

    def __init__(
        self,
        manager: DiskManager,
        config: BrokerConfig,
        deadlines: Deadlines,
        settings: GroupSettings,
        lines: GroupLines,
    ) -> None:
        self._manager = manager
        self._lines = lines
        self._config = config
        self._settings = settings
        self._groups: dict[str, ShareGroup] = {}
        self._alarms = Alarms[ShareGroup](deadlines, self._ring)

    def __len__(self) -> int:
        """How many are in memory."""
        return len(self._groups)

    @property
    def in_memory(self) -> Collection[ShareGroup]:
        """Those that have members, or had some a moment ago."""
        return self._groups.values()

    @property
    def _kept(self) -> Container[str]:
        """Those of which something is written down."""
        return self._manager.section(SECTION) or _NONE

    def places(self) -> list[Collection[str]]:
        """Where the names of all share groups are: see all_names.py."""
        return [self._groups.copy(), self._manager.section(SECTION) or {}]

    def has(self, group_id: str) -> bool:
        """Whether there is such a share group."""
        return group_id in self._groups or group_id in self._kept

    def get(self, group_id: str) -> ShareGroup | None:
        """The group, if it has members or had some a moment ago."""
        return self._groups.get(group_id)

    def make(self, group_id: str) -> ShareGroup:
        """A group whose first member joins."""
        made = self._groups[group_id] = ShareGroup(
            group_id,
            self._settings.in_force(group_id, SHARE_SESSION),
            self._config.group_share_size_max,
            self._lines.of(group_id, SHARE),
            empty_since_ms=monotonic_ms(),
        )
        self.changed(made)  # it goes if that member is refused
        return made

    def gives_way(self, group_id: str) -> bool:
        """Whether another kind of group may have this name: one that nobody is in, and of which
        nothing is written down, is forgotten then."""
        group = self._groups.get(group_id)
        if group_id in self._kept or (group is not None and not group.is_idle):
            return False
        self.remove(group_id)
        return True

    def changed(self, group: ShareGroup) -> None:
        """Something was done with this group: its alarm is set anew if it has to come earlier."""
        if self._groups.get(group.group_id) is not group:
            return
        if group.is_idle:
            group.due_ms = self._ends_ms(group)
        self._alarms.set(group, group.due_ms)

    def _ends_ms(self, group: ShareGroup) -> int:
        return group.empty_since_ms + self._config.group_kept_empty_ms

    def _ring(self, group: ShareGroup) -> None:
        now_ms = monotonic_ms()
        try:
            group.tick(now_ms)
        except Exception:
            log.exception("group_failed", group=group.group_id)
            group.due_ms = now_ms + _FAILED_AGAIN_MS
        if group.is_idle and self._ends_ms(group) <= now_ms:
            self.remove(group.group_id)
        self.changed(group)

    def drop_if_idle(self, group_id: str) -> None:
        """Make room."""
        group = self._groups.get(group_id)
        if group is not None and group.is_idle:
            self.remove(group_id)

    def remove(self, group_id: str) -> None:
        """Nothing is in memory of it any more."""
        if (group := self._groups.pop(group_id, None)) is not None:
            self._alarms.silence(group)
            group.close(ErrorCode.GROUP_ID_NOT_FOUND)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Go by these settings, in groups that there are from their next request on."""
        self._config = config
        for group in self._groups.values():
            group.size_max = config.group_share_size_max
            self.settings_changed(group.group_id)

    def settings_changed(self, group_id: str) -> None:
        """A group, if it is there, goes by the settings that hold for it."""
        if (group := self._groups.get(group_id)) is not None:
            group.session_timeout_ms = self._settings.in_force(group_id, SHARE_SESSION)

    def close(self) -> None:
        """The broker ends."""
        self._groups.clear()
