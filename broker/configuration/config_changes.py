"""Changes of settings as they come: all replaced, or key by key.

AlterConfigs replaces all that was set on a resource; IncrementalAlterConfigs changes single keys
(0 set, 1 delete, 2 append, 3 subtract; the last two for lists only).  Either becomes a function
from what is set to what is set afterwards; whether that can be is checked by whoever stores it.
A key that is there twice, or has no value, is refused: in Kafka's words, which clients hand on.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from segbroker.segments.settings.topic_config import TopicConfig

from ..refused import Refused, invalid_request
from .config import keys

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_OF_LISTS: Final = {_APPEND: "APPEND", _SUBTRACT: "SUBTRACT"}
_OF_TOPICS: Final = {one.name: one.value for one in TopicConfig().describe() if one.kind == "list"}
_OF_BROKER: Final = {
    spec.name: _OF_TOPICS[spec.metadata["topic"]]
    for spec in keys()
    if spec.metadata["topic"] in _OF_TOPICS
}
_LISTS: Final = _OF_TOPICS | _OF_BROKER
"""What a list begins from where it is not set: as in Kafka what it is by default, also of a topic
for which the broker says something else."""

_TWICE: Final = "Error due to duplicate config keys"

Overrides = Mapping[str, str]
Change = Callable[[Overrides], Overrides]


def replacement(asked: AlterConfigsRequestResource) -> Change:
    def change(_: Overrides) -> Overrides:
        _check_names(asked.configs)
        _check_values(one.name for one in asked.configs if one.value is None)
        return {one.name: one.value or "" for one in asked.configs}

    return change


def _check_names(
    configs: Iterable[AlterConfigsRequestConfig | IncrementalAlterConfigsRequestConfig],
) -> None:
    names = [one.name for one in configs]
    if len(set(names)) < len(names):
        raise invalid_request(_TWICE)


def _check_values(empty: Iterable[str]) -> None:
    if names := ", ".join(empty):
        raise invalid_request(f"Null value not supported for : {names}")


def increment(
    asked: IncrementalAlterConfigsRequestResource,
) -> Change:
    def change(overrides: Overrides) -> Overrides:
        _check_names(asked.configs)
        _check_values(
            one.name
            for one in asked.configs
            if one.value is None and one.config_operation != _DELETE
        )
        changed = dict(overrides)
        for one in asked.configs:
            _apply(changed, one)
        return changed

    return change


def _apply(changed: dict[str, str], one: IncrementalAlterConfigsRequestConfig) -> None:
    if one.config_operation == _DELETE:
        changed.pop(one.name, None)
    elif one.config_operation == _SET:
        changed[one.name] = one.value or ""
    elif one.config_operation in _OF_LISTS:
        if one.name not in _LISTS:
            told = f"Can't {_OF_LISTS[one.config_operation]} to key {one.name} "
            raise Refused(ErrorCode.INVALID_CONFIG, f"{told}because its type is not LIST.")
        present = changed.get(one.name, _LISTS[one.name]).split(",")
        present = [item for item in present if item]
        for item in _split(one.value or ""):
            is_in = item in present
            if one.config_operation == _APPEND and not is_in:
                present.append(item)
            elif one.config_operation == _SUBTRACT and is_in:
                present.remove(item)  # of one that was set twice the first
        changed[one.name] = ",".join(present)
    else:
        raise invalid_request(f"there is no operation {one.config_operation} on {one.name}")


def _split(text: str) -> list[str]:
    """At each comma; as in Java what is empty at the end is no part, but an empty text is one."""
    return text.rstrip(",").split(",") if text.strip(",") or not text else []
