"""Changes of settings as they come: all replaced, or key by key.

AlterConfigs replaces all that was set on a resource; IncrementalAlterConfigs changes single keys
(0 set, 1 delete, 2 append, 3 subtract; the last two for lists only).  Either becomes a function
from what is set to what is set afterwards; whether that can be is checked by whoever stores it.
A key that is there twice is refused.
"""

from collections.abc import Callable, Mapping
from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    AlterConfigsRequestResource,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from segbroker.segments.topic_config import TopicConfig

from ..refused import Refused

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_LISTS: Final = frozenset(one.name for one in TopicConfig().describe() if one.kind == "list")

_TWICE: Final = "Error due to duplicate config keys"

Overrides = Mapping[str, str]
Change = Callable[[Overrides], Overrides]


def replacement(asked: AlterConfigsRequestResource) -> Change:
    def change(_: Overrides) -> Overrides:
        wanted: dict[str, str] = {}
        for one in asked.configs:
            if one.name in wanted:
                raise Refused(ErrorCode.INVALID_REQUEST, _TWICE)
            if one.value is None:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{one.name} has no value")
            wanted[one.name] = one.value
        return wanted

    return change


def increment(
    asked: IncrementalAlterConfigsRequestResource,
) -> Change:
    def change(overrides: Overrides) -> Overrides:
        names = [one.name for one in asked.configs]
        if len(set(names)) < len(names):
            raise Refused(ErrorCode.INVALID_REQUEST, _TWICE)
        changed = dict(overrides)
        for one in asked.configs:
            _apply(changed, one)
        return changed

    return change


def _apply(changed: dict[str, str], one: IncrementalAlterConfigsRequestConfig) -> None:
    if one.config_operation == _DELETE:
        changed.pop(one.name, None)
    elif one.config_operation == _SET and one.value is not None:
        changed[one.name] = one.value
    elif one.config_operation in (_APPEND, _SUBTRACT) and one.value is not None:
        if one.name not in _LISTS:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{one.name} is not a list")
        default = {setting.name: setting.value for setting in TopicConfig().describe()}
        present = changed.get(one.name, default[one.name]).split(",")
        asked = one.value.split(",")
        kept = [item for item in present if item and item not in asked]
        changed[one.name] = ",".join(kept + asked * (one.config_operation == _APPEND))
    else:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"operation {one.config_operation} with value {one.value!r} on {one.name}",
        )
