"""Configuration over the wire: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

| resource       | described                                             | altered            |
|----------------|-------------------------------------------------------|--------------------|
| topic (2)      | every key, set or default, with both as synonyms      | yes, at once       |
| broker (4)     | every key, under our name and where there is one      | no: it is read at  |
|                | under Kafka's; name "" or this broker's id            | start              |

AlterConfigs replaces all that was set on a topic; IncrementalAlterConfigs changes single keys
(0 set, 1 delete, 2 append, 3 subtract; the last two for lists only, and there is one list).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
    CreateTopicsResponseConfig,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResource,
    DescribeConfigsResponseSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
)
from segbroker.segments.names import is_topic_name
from segbroker.segments.topic_config import TopicConfig

from .call import Call
from .config import join_address, keys
from .core import Core
from .error_map import STORAGE_FAILURES, wire_error
from .peer import Peer
from .refused import Refused

TOPIC: Final = 2
BROKER: Final = 4

# Where a value came from.
_TOPIC_OVERRIDE: Final = 1
_STATIC_BROKER: Final = 4
_DEFAULT: Final = 5

# Types of values.
_BOOLEAN: Final = 1
_STRING: Final = 2
_LONG: Final = 5
_LIST: Final = 7
_TYPES: Final = {"boolean": _BOOLEAN, "string": _STRING, "int": 3, "long": _LONG, "list": _LIST}

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
# Resources of one request: each is answered with dozens of rows, whose sum must fit a reply.
DESCRIBED_MAX: Final = 1_000
_LIST_KEYS: Final = frozenset({"cleanup.policy"})
_LISTENERS: Final = frozenset({"listeners", "advertised.listeners"})

Overrides = Mapping[str, str]


def created_configs(config: TopicConfig) -> list[CreateTopicsResponseConfig]:
    """The settings of a topic as CreateTopics answers them: never null (Java streams them)."""
    return [
        CreateTopicsResponseConfig(
            name=setting.name,
            value=setting.value,
            read_only=False,
            config_source=_DEFAULT if setting.is_default else _TOPIC_OVERRIDE,
            is_sensitive=False,
        )
        for setting in config.describe()
    ]


def describe_configs(core: Core, call: Call[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    """The settings of topics and of this broker."""
    request = call.request
    results = []
    for asked in request.resources:
        row = DescribeConfigsResponseResource(
            error_message=None,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=[],
        )
        results.append(row)
        try:
            if len(results) > DESCRIBED_MAX:
                raise Refused(
                    ErrorCode.POLICY_VIOLATION,
                    f"{len(request.resources)} resources, at most {DESCRIBED_MAX} are described",
                )
            rows = _describe(core, call.peer, asked)
        except Refused as exc:
            row.error_code, row.error_message = exc.code, exc.message
            continue
        wanted = set(asked.configuration_keys or ())
        row.configs = [one for one in rows if not wanted or one.name in wanted]
        for one in row.configs:
            if not request.include_synonyms:
                one.synonyms = []
            if not request.include_documentation:
                one.documentation = None
    return DescribeConfigsResponse(results=results)


def _describe(
    core: Core, peer: Peer, asked: DescribeConfigsRequestResource
) -> Iterable[DescribeConfigsResponseConfig]:
    name = asked.resource_name
    if asked.resource_type == TOPIC:
        meta = core.topics.get(name)
        if meta is None:
            if not is_topic_name(name):
                raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is no topic name")
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return _topic_rows(meta.config)
    if asked.resource_type == BROKER:
        if name not in ("", str(core.config.broker_id)):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"there is no broker {name!r}, only {core.config.broker_id}",
            )
        return _broker_rows(core, peer)
    raise Refused(
        ErrorCode.INVALID_REQUEST, f"resource type {asked.resource_type} has no settings here"
    )


def _topic_rows(config: TopicConfig) -> Iterable[DescribeConfigsResponseConfig]:
    for setting in config.describe():
        synonyms = [
            DescribeConfigsResponseSynonym(
                name=setting.name, value=setting.default, source=_DEFAULT
            )
        ]
        if not setting.is_default:
            synonyms.insert(
                0,
                DescribeConfigsResponseSynonym(
                    name=setting.name, value=setting.value, source=_TOPIC_OVERRIDE
                ),
            )
        yield DescribeConfigsResponseConfig(
            name=setting.name,
            value=setting.value,
            read_only=False,
            config_source=_DEFAULT if setting.is_default else _TOPIC_OVERRIDE,
            is_sensitive=False,
            synonyms=synonyms,
            config_type=_TYPES[setting.kind],
            documentation=setting.documentation,
        )


def _broker_rows(core: Core, peer: Peer) -> Iterable[DescribeConfigsResponseConfig]:
    config = core.config
    for spec in keys():
        value = "" if spec.metadata["secret"] else _text(getattr(config, spec.name))
        default = _text(spec.default)
        source = _DEFAULT if config.source(spec.name) == "default" else _STATIC_BROKER
        kafka = spec.metadata["kafka"]
        names = [spec.name] if kafka in (None, spec.name) else [spec.name, kafka]
        for name in names:
            if name in _LISTENERS:
                host = peer.listener.bound if name == "listeners" else core.advertised(peer)
                value = value or f"{peer.listener.spec.name}://{join_address(*host)}"
            yield DescribeConfigsResponseConfig(
                name=name,
                value=None if spec.metadata["secret"] else value,
                read_only=True,
                config_source=source,
                is_sensitive=spec.metadata["secret"],
                synonyms=[
                    DescribeConfigsResponseSynonym(name=spec.name, value=value, source=source),
                    DescribeConfigsResponseSynonym(name=spec.name, value=default, source=_DEFAULT),
                ][source == _DEFAULT :],
                config_type=_broker_type(spec.default),
                documentation=spec.metadata["doc"],
            )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _broker_type(default: object) -> int:
    if isinstance(default, bool):
        return _BOOLEAN
    return _LONG if isinstance(default, int) else _STRING


async def alter_configs(core: Core, call: Call[AlterConfigsRequest]) -> AlterConfigsResponse:
    """Replace everything that was set on topics."""
    request = call.request
    rows = []
    for asked in request.resources:
        code, message = await _alter(
            core, asked, _replacement(asked), validate_only=request.validate_only
        )
        rows.append(
            AlterConfigsResponseResource(
                error_code=code,
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        )
    return AlterConfigsResponse(responses=rows)


async def incremental_alter_configs(
    core: Core, call: Call[IncrementalAlterConfigsRequest]
) -> IncrementalAlterConfigsResponse:
    """Change single settings of topics."""
    request = call.request
    rows = []
    for asked in request.resources:
        code, message = await _alter(
            core, asked, _increment(asked), validate_only=request.validate_only
        )
        rows.append(
            IncrementalAlterConfigsResponseResource(
                error_code=code,
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=rows)


async def _alter(
    core: Core,
    asked: AlterConfigsRequestResource | IncrementalAlterConfigsRequestResource,
    change: Callable[[Overrides], Overrides],
    *,
    validate_only: bool,
) -> tuple[ErrorCode, str | None]:
    if asked.resource_type != TOPIC:
        return ErrorCode.INVALID_REQUEST, "only topics can be altered while the broker runs"
    try:
        await core.topics.alter(asked.resource_name, change, validate_only=validate_only)
    except Refused as exc:
        return exc.code, exc.message
    except STORAGE_FAILURES as exc:
        return wire_error(exc)
    return ErrorCode.NONE, None


def _replacement(asked: AlterConfigsRequestResource) -> Callable[[Overrides], Overrides]:
    def change(_: Overrides) -> Overrides:
        wanted: dict[str, str] = {}
        for one in asked.configs:
            if one.value is None:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{one.name} has no value")
            wanted[one.name] = one.value
        return wanted

    return change


def _increment(
    asked: IncrementalAlterConfigsRequestResource,
) -> Callable[[Overrides], Overrides]:
    def change(overrides: Overrides) -> Overrides:
        names = [one.name for one in asked.configs]
        if len(set(names)) < len(names):
            raise Refused(ErrorCode.INVALID_REQUEST, "a setting is changed twice in one request")
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
        if one.name not in _LIST_KEYS:
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
