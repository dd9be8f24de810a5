"""Settings of single groups: KIP-848's, share groups, streams groups; group_keys.py has which.

Resource GROUP (32) of the configuration apis; control events, durable and in force when a change is
answered: members hear of another interval with their next heartbeat.  A group need not exist, and
what is set outlives it, as in Kafka.  The groups of a request are stored together, STORED_MAX by
one sync.

Invariant: of a group the interval is below the session, or its members would be lost for it.  Where
a later setting of the broker breaks it, a third of the session holds as the interval.

Limits: GROUPS_MAX groups with settings; one more is refused (POLICY_VIOLATION).  NAME_SIZE_MAX
bytes of the name of one (INVALID_REQUEST).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.broker_settings import GROUP_SECTION, GROUP_SET, settings_of

from ..configuration.config import BrokerConfig, InvalidConfig
from ..configuration.config_changes import Change
from ..configuration.config_key import text_of
from ..configuration.logs import told
from ..error_map import STORAGE_FAILURES
from ..loop.lanes import Lanes
from ..loop.pace import Pace
from ..refused import Refused, invalid_request
from .group_keys import GROUP_KEYS, SESSIONS

log = structlog.get_logger()

GROUPS_MAX: Final = 10_000
NAME_SIZE_MAX: Final = 1_000
STORED_MAX: Final = 1_000
"""Groups that one sync is for."""
_NOBODY: Final[Mapping[str, str]] = MappingProxyType({})


class GroupSettings:
    """What is set on groups."""

    def __init__(self, manager: DiskManager, config: BrokerConfig, lanes: Lanes) -> None:
        self._manager = manager
        self._lanes = lanes
        self._rows = settings_of(manager.section(GROUP_SECTION))
        # For groups without settings of their own; replaced when it changes.
        self.config = config
        # Held from reading what is set to storing what is set afterwards.
        self._changing = trio.Lock()
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

    async def change_all(
        self,
        changes: Mapping[str, Change],
        asker: Mapping[str, str] = _NOBODY,
        *,
        validate_only: bool = False,
    ) -> dict[str, Exception | None]:
        """Replace what is set on groups, by name, by `change(what is set)`: durable and in force
        when it returns.

        Of each why it is as it was: Refused, InvalidConfig, StorageError, OSError; None: it is not.

        asker: who asked for it, for the lines about it.
        """
        outcomes: dict[str, Exception | None] = dict.fromkeys(changes)
        async with self._changing:
            after = dict(self._rows)
            wanted: dict[str, Mapping[str, str]] = {}
            pace = Pace()
            for group_id, change in changes.items():
                await pace.step()
                try:
                    values = self._checked(group_id, change(after.get(group_id, {})), after)
                except (Refused, InvalidConfig) as exc:
                    outcomes[group_id] = exc
                    continue
                wanted[group_id] = values
                if values:
                    after[group_id] = values
                else:
                    after.pop(group_id, None)
            if validate_only:
                return outcomes
            groups = list(wanted)
            for begin in range(0, len(groups), STORED_MAX):
                some = groups[begin : begin + STORED_MAX]
                try:
                    await self._lanes.run(self._store, {one: wanted[one] for one in some}, asker)
                except STORAGE_FAILURES as exc:
                    outcomes |= dict.fromkeys(some, exc)
                self._go_by_what_is_stored(some)
        return outcomes

    def _checked(
        self, group_id: str, values: Mapping[str, str], rows: Mapping[str, Mapping[str, str]]
    ) -> Mapping[str, str]:
        """`values` as they are kept, if they can be all that is set on a group beside `rows`.

        Raises:
            Refused, InvalidConfig: they cannot.
        """
        if not group_id:
            raise invalid_request("the group has no name")
        size = len(group_id.encode())
        if values and size > NAME_SIZE_MAX:
            raise invalid_request(f"a name of {size} bytes, limit {NAME_SIZE_MAX}")
        if values and group_id not in rows and len(rows) >= GROUPS_MAX:
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

    def _store(self, changes: Mapping[str, Mapping[str, str]], asker: Mapping[str, str]) -> None:
        """Store these, and a line for each: in one step, for a lane, so that who asked for it may
        be gone meanwhile.

        Raises StorageError: none of them is stored.
        """
        events = [{"resource": one, "values": dict(values)} for one, values in changes.items()]
        self._manager.record_all_now(GROUP_SET, events)
        for group_id, values in changes.items():
            log.info("group_settings_changed", group=told(group_id), values=dict(values), **asker)

    def _go_by_what_is_stored(self, changed: Sequence[str]) -> None:
        self._rows = settings_of(self._manager.section(GROUP_SECTION))
        if self.on_change is not None:
            for group_id in changed:
                self.on_change(group_id)
