"""Settings of single groups, of KIP-848's protocol: what the broker's own settings say for all.

| Kafka's name | where it is not set |
|---|---|
| consumer.session.timeout.ms | group_consumer_session_timeout_ms |
| consumer.heartbeat.interval.ms | group_consumer_heartbeat_interval_ms |

Resource GROUP (32) of the configuration apis; control events, durable and in force when a change is
answered: members hear of another interval with their next heartbeat.  A group need not exist, and
what is set outlives it, as in Kafka.  Settings of share groups and of streams are refused: there
are no such groups.

Invariant: of a group the interval is below the session, or its members would be lost for it.  Where
a later setting of the broker breaks it, a third of the session holds as the interval.

Limits: GROUPS_MAX groups with settings; one more is refused (POLICY_VIOLATION).  NAME_SIZE_MAX
bytes of the name of one (INVALID_REQUEST).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.broker_settings import GROUP_SECTION, GROUP_SET, settings_of
from segbroker.segments.manager import DiskManager

from ..configuration.config import BrokerConfig, InvalidConfig
from ..configuration.config_key import DAY_MS
from ..recording import recorded
from ..refused import Refused

log = structlog.get_logger()

GROUPS_MAX: Final = 10_000
NAME_SIZE_MAX: Final = 1_000
SESSION: Final = "consumer.session.timeout.ms"
HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
OF_BROKER: Final = {
    SESSION: "group_consumer_session_timeout_ms",
    HEARTBEAT: "group_consumer_heartbeat_interval_ms",
}


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
        """The value that holds for a group, ms."""
        value, session_ms = self._said(group_id, key), self._said(group_id, SESSION)
        if key == HEARTBEAT and value >= session_ms:
            return max(1, session_ms // 3)
        return value

    def _said(self, group_id: str, key: str) -> int:
        text = self.set_on(group_id).get(key)
        value: int = getattr(self.config, OF_BROKER[key]) if text is None else int(text)
        return value

    def check(self, group_id: str, values: Mapping[str, str]) -> None:
        """Whether `values` can be all that is set on a group.  Raises Refused, InvalidConfig."""
        if not group_id:
            raise Refused(ErrorCode.INVALID_REQUEST, "the group has no name")
        size = len(group_id.encode())
        if values and size > NAME_SIZE_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"a name of {size} bytes, limit {NAME_SIZE_MAX}"
            )
        if values and group_id not in self._rows and len(self._rows) >= GROUPS_MAX:
            raise Refused(ErrorCode.POLICY_VIOLATION, f"at most {GROUPS_MAX} groups have settings")
        found = {}
        for key, text in values.items():
            if key not in OF_BROKER:
                raise InvalidConfig(f"there is no group setting {key!r}")
            if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= DAY_MS:
                raise InvalidConfig(f"{key} = {text!r} is no number between 1 and {DAY_MS}")
            found[key] = int(text)
        session_ms, heartbeat_ms = (
            found.get(key, getattr(self.config, OF_BROKER[key])) for key in (SESSION, HEARTBEAT)
        )
        if values and heartbeat_ms >= session_ms:
            raise InvalidConfig(
                f"{SESSION} must be greater than {HEARTBEAT}: {session_ms}, {heartbeat_ms}"
            )

    async def set(self, group_id: str, values: Mapping[str, str]) -> None:
        """Set exactly these on a group: durable and in force when it returns.

        Raises:
            Refused, InvalidConfig: they cannot be.
            OSError: they are not durable.
        """
        self.check(group_id, values)
        event = {"resource": group_id, "values": dict(values)}
        failure = await recorded(lambda done: self._manager.record_soon(done, GROUP_SET, **event))
        self._rows = settings_of(self._manager.section(GROUP_SECTION))
        if self.on_change is not None:
            self.on_change(group_id)
        if failure is not None:
            raise failure
        log.info("group_settings_changed", group=group_id, values=dict(values))
