"""Settings of single groups, as calls (see engine): resource GROUP of the configuration apis."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from segbroker.protocol.messages_admin import (
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)

from .administration import SOURCES, Setting, altering, describing
from .asking import change, look, refused
from .engine import Call, Engine

_GROUP: Final = 32
_SOURCES: Final = {**SOURCES, 8: "group"}


class GroupSetting(NamedTuple):
    """A setting of a group.

    source: "group" (set on it); "broker", "every broker", "start" (what the broker says for
    groups without one of their own); "default".
    """

    value: str | None
    source: str
    documentation: str | None


def describe_group_config(engine: Engine, group_id: str) -> Call[dict[str, GroupSetting]]:
    """All settings of a group, whether it is there or not.  Raises GroupAuthorizationFailed."""
    request, check = describing(_GROUP, group_id), refused(_about(group_id))
    reply = yield from look(engine, request, DescribeConfigsResponse, check)
    return {
        row.name: GroupSetting(
            row.value, _SOURCES.get(row.config_source, str(row.config_source)), row.documentation
        )
        for resource in reply.results
        for row in resource.configs
    }


def alter_group_config(
    engine: Engine, group_id: str, changes: Mapping[str, Setting | None]
) -> Call[None]:
    """Change settings of a group; None has the broker's hold for it again.

    Raises InvalidConfig: with the broker's words.
    """
    request, check = altering(_GROUP, group_id, changes), refused(_about(group_id))
    yield from change(engine, request, IncrementalAlterConfigsResponse, check)


def _about(group_id: str) -> str:
    return f"settings of group {group_id!r}"
