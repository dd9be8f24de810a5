"""Settings of single groups: KIP-848's, share groups, streams groups; group_keys.py has which.

Resource GROUP (32) of the configuration apis; control events, durable and in force when a change is
answered: members hear of another interval with their next heartbeat.  A group need not exist, and
what is set outlives it, as in Kafka.

Invariant: of a group the interval is below the session, or its members would be lost for it.  Where
a later setting of the broker breaks it, a third of the session holds as the interval.

Limits: GROUPS_MAX groups with settings; one more is refused (POLICY_VIOLATION).  NAME_SIZE_MAX
bytes of the name of one (INVALID_REQUEST).
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.broker_settings import GROUP_SECTION, GROUP_SET, settings_of

from ..configuration.config import BrokerConfig, InvalidConfig
from ..configuration.config_key import text_of
from ..configuration.logs import told
from ..recording import recorded
from ..refused import Refused
from .group_keys import GROUP_KEYS, SESSIONS

log = structlog.get_logger()

GROUPS_MAX: Final = 10_000
NAME_SIZE_MAX: Final = 1_000
_NOBODY: Final[Mapping[str, str]] = MappingProxyType({})


class GroupSettings:
    """What is set on groups."""

    def __init__(self, manager: DiskManager, config: BrokerConfig) -> None:
        self._manager = manager
        self._rows = settings_of(manager.section(GROUP_SECTION))
        # For groups without settings of their own; replaced when it changes.
        self.config = config
        # Held from reading what is set to storing what is set afterwards.
        self.changing = trio.Lock()
        self.on_change: Callable[[str], None] | None = None
        """Told the group whose settings have changed."""

    def set_on(self, group_id: str) -> Mapping[str, str]:
        """What is set on a group."""
        return self._rows.get(group_id, {})

    def groups(self) -> Iterator[str]:
        """Groups with settings of their own, by name."""
        return iter(sorted(self._rows))

    def in_force(self, group_id: str, key: str) -> int:
        """The number that holds for a group; times are in ms."""
        value = int(self.text_in_force(group_id, key))
        if key in SESSIONS:
            session_ms = int(self.text_in_force(group_id, SESSIONS[key]))
            if value >= session_ms:
                return max(1, session_ms // 3)
        return value

    def text_in_force(self, group_id: str, key: str) -> str:
        """The text that holds for a group."""
        return self._said(self.set_on(group_id), key)

    def _said(self, own: Mapping[str, str], key: str) -> str:
        """What holds for a group on which `own` is set."""
        if (text := own.get(key)) is not None:
            return text
        of_broker, default = GROUP_KEYS[key].of_broker, GROUP_KEYS[key].default
        return text_of(getattr(self.config, of_broker)) if of_broker else default

    def check(self, group_id: str, values: Mapping[str, str]) -> Mapping[str, str]:
        """`values` as they are kept, if they can be all that is set on a group.

        Raises:
            Refused, InvalidConfig: they cannot.
        """
        if not group_id:
            raise Refused(ErrorCode.INVALID_REQUEST, "the group has no name")
        size = len(group_id.encode())
        if values and size > NAME_SIZE_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"a name of {size} bytes, limit {NAME_SIZE_MAX}"
            )
        if values and group_id not in self._rows and len(self._rows) >= GROUPS_MAX:
            raise Refused(ErrorCode.POLICY_VIOLATION, f"at most {GROUPS_MAX} groups have settings")
        kept = {}
        for key, text in values.items():
            if key not in GROUP_KEYS:
                raise InvalidConfig(f"there is no group setting {key!r}")
            kept[key] = GROUP_KEYS[key].check(key, text)
        for heartbeat, session in SESSIONS.items():
            heartbeat_ms, session_ms = (int(self._said(kept, key)) for key in (heartbeat, session))
            if kept.keys() & {heartbeat, session} and heartbeat_ms >= session_ms:
                raise InvalidConfig(
                    f"{session} must be greater than {heartbeat}: {session_ms}, {heartbeat_ms}"
                )
        return kept

    async def set(
        self, group_id: str, values: Mapping[str, str], asker: Mapping[str, str] = _NOBODY
    ) -> None:
        """Set exactly these on a group: durable and in force when it returns.

        asker: who asked for it, for the line about it.

        Raises:
            Refused, InvalidConfig: they cannot be.
            OSError: they are not durable.
        """
        values = self.check(group_id, values)
        event = {"resource": group_id, "values": dict(values)}
        failure = await recorded(lambda done: self._manager.record_soon(done, GROUP_SET, **event))
        self._rows = settings_of(self._manager.section(GROUP_SECTION))
        if self.on_change is not None:
            self.on_change(group_id)
        if failure is not None:
            raise failure
        log.info("group_settings_changed", group=told(group_id), values=dict(values), **asker)
