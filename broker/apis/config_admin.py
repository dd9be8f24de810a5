"""Configuration over the wire: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

| resource | described (config_rows.py) | altered |
|---|---|---|
| topic (2) | every key, set or default | yes, at once |
| broker (4), its id | every key | those that can change, at once and for good (settings.py) |
| broker (4), "" | what is set for every broker | the same |
| group (32) | its settings, set or the broker's | yes, at once and for good (group_settings.py) |
| broker logger (8) | one logger, `root` | its level, until the restart; key by key alone |

Programs ask for all topics at once (kafka-topics.sh --describe): those with the same settings share
their rows.  What is asked for beyond ROWS_MAX rows is refused.

Who is not this broker is refused: there is only one.  A resource that a request changes twice is
left as it is, and refused twice.  The groups of a request are changed together, behind the others,
and so are its topics.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from segbroker.segments.names import is_topic_name
from segbroker.segments.settings.topic_config import TopicConfig

from ..call import Call
from ..configuration.config import InvalidConfig
from ..configuration.config_changes import Change, increment, replacement
from ..configuration.settings import EVERY_BROKER
from ..core import Core
from ..error_map import STORAGE_FAILURES, wire_error
from ..loop.pace import Pace
from ..peers.peer import Peer
from ..refused import Refused, invalid_request
from .config_rows import broker_rows, every_broker_rows, group_rows, logger_rows, topic_rows
from .logger_admin import alter_logger

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
GROUP: Final = 32
_NOT_HERE: Final = {
    16: "segbroker takes no metrics of clients (KIP-714): there is nothing to set",
}

# Kafka says so of what a broker cannot be set to, and leaves it at that (KAFKA-13609).
_INVALID: Final = {BROKER: ErrorCode.INVALID_REQUEST}

ROWS_MAX: Final = 500_000
"""Rows that one request looks at, told or not: those of 13,000 topics."""

Altered = AlterConfigsRequestResource | IncrementalAlterConfigsRequestResource
_Resource: TypeAlias = tuple[int, str]
"""Type and name."""
_Told: TypeAlias = tuple[ErrorCode, str | None]
_Described: TypeAlias = TopicConfig | _Resource
"""Whose rows: topics with the same settings have the same."""
Rows: TypeAlias = list[DescribeConfigsResponseConfig]
_NO_ERROR: Final[_Told] = (ErrorCode.NONE, None)
_ONCE: Final = "Each resource must appear at most once."


async def describe_configs(
    core: Core, call: Call[DescribeConfigsRequest]
) -> DescribeConfigsResponse:
    """The settings of topics and of this broker."""
    request = call.request
    results = []
    known: dict[_Described, Rows] = {}
    room = ROWS_MAX
    pace = Pace()
    once: dict[tuple[int, str, tuple[str, ...]], DescribeConfigsRequestResource] = {}
    for one in request.resources:
        once[_meant(one)] = one
        await pace.step()
    for asked in once.values():
        await pace.step()
        row = DescribeConfigsResponseResource(
            error_message=None,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=[],
        )
        results.append(row)
        try:
            described = _described(core, asked)
            if (rows := known.get(described)) is None:
                rows = known[described] = _rows(core, call.peer, described, request)
            room -= len(rows)
            if room < 0:
                raise Refused(
                    ErrorCode.POLICY_VIOLATION,
                    f"{len(request.resources)} resources have more than {ROWS_MAX} settings",
                )
        except Refused as exc:
            row.error_code, row.error_message = exc.code, exc.message
            continue
        wanted = set(asked.configuration_keys or ())
        row.configs = [one for one in rows if one.name in wanted] if wanted else rows
    return DescribeConfigsResponse(results=results)


def _meant(asked: DescribeConfigsRequestResource) -> tuple[int, str, tuple[str, ...]]:
    """What is asked twice is answered once: an answer is a thousand times the question."""
    return asked.resource_type, asked.resource_name, tuple(asked.configuration_keys or ())


def _described(core: Core, asked: DescribeConfigsRequestResource) -> _Described:
    """What is looked at.  Raises Refused: there is no such thing."""
    kind, name = asked.resource_type, asked.resource_name
    if kind == TOPIC:
        meta = core.topics.get(name)
        if meta is None:
            if not is_topic_name(name):
                raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is no topic name")
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return meta.config
    if kind == BROKER_LOGGER or (kind == BROKER and name != EVERY_BROKER):
        _check_broker(core, name)
    elif kind == GROUP and not name:
        raise invalid_request("the group has no name")
    elif kind not in (BROKER, GROUP):
        raise _unknown_type(kind)
    return kind, name


def _rows(core: Core, peer: Peer, described: _Described, request: DescribeConfigsRequest) -> Rows:
    """The settings of a topic, a broker, a group or a logger, as they are asked for."""
    match described:
        case TopicConfig():
            rows = list(topic_rows(core, described))
        case (kind, name) if kind == BROKER:
            found = every_broker_rows(core) if name == EVERY_BROKER else broker_rows(core, peer)
            rows = list(found)
        case (kind, name) if kind == GROUP:
            rows = list(group_rows(core, name))
        case _:
            rows = list(logger_rows())
    for one in rows:
        if not request.include_synonyms:
            one.synonyms = []
        if not request.include_documentation:
            one.documentation = None
    return rows


def _unknown_type(resource_type: int) -> Refused:
    words = _NOT_HERE.get(resource_type, f"resource type {resource_type} has no settings here")
    return invalid_request(words)


def _check_broker(core: Core, name: str) -> None:
    """Raises Refused for every broker but this one."""
    if name != core.settings.own:
        raise invalid_request(f"there is no broker {name!r}, only {core.settings.own}")


async def alter_configs(core: Core, call: Call[AlterConfigsRequest]) -> AlterConfigsResponse:
    """Replace everything that was set on topics or brokers."""
    return AlterConfigsResponse(responses=await _alter_all(core, call))


async def incremental_alter_configs(
    core: Core, call: Call[IncrementalAlterConfigsRequest]
) -> IncrementalAlterConfigsResponse:
    """Change single settings of topics or brokers."""
    return IncrementalAlterConfigsResponse(responses=await _alter_all(core, call))


async def _alter_all(
    core: Core, call: Call[AlterConfigsRequest | IncrementalAlterConfigsRequest]
) -> list[AlterConfigsResponseResource]:
    request, asker = call.request, call.peer.asker
    pace = Pace()
    repeated = await _repeated(request.resources, pace)
    told: dict[_Resource, _Told] = {}
    groups: dict[str, Change] = {}
    topics: dict[str, Change] = {}
    for asked in request.resources:
        await pace.step()
        resource = _resource_of(asked)
        if resource in repeated:
            told[resource] = ErrorCode.INVALID_REQUEST, _ONCE
        elif asked.resource_type == TOPIC and is_topic_name(asked.resource_name):
            topics[asked.resource_name] = _change(asked)
        elif asked.resource_type == GROUP:
            groups[asked.resource_name] = _change(asked)
        else:
            told[resource] = await _alter(core, asked, asker, validate_only=request.validate_only)
    set_to = core.group_settings.change_all
    of_groups = await set_to(groups, asker, validate_only=request.validate_only)
    of_topics = await core.topics.alter_all(topics, asker, validate_only=request.validate_only)
    for of, outcomes in (GROUP, of_groups), (TOPIC, of_topics):
        for name, outcome in outcomes.items():
            told[of, name] = _NO_ERROR
            if isinstance(outcome, Exception):
                told[of, name] = _why(outcome, of)
    rows = []
    for asked in request.resources:
        await pace.step()
        code, message = told[_resource_of(asked)]
        rows.append(
            AlterConfigsResponseResource(
                error_code=code,
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        )
    return rows


def _resource_of(asked: Altered) -> _Resource:
    return asked.resource_type, asked.resource_name


async def _repeated(resources: Sequence[Altered], pace: Pace) -> set[_Resource]:
    """Those that are there more than once."""
    seen: set[_Resource] = set()
    repeated: set[_Resource] = set()
    for one in resources:
        await pace.step()
        resource = _resource_of(one)
        (repeated if resource in seen else seen).add(resource)
    return repeated


async def _alter(
    core: Core, asked: Altered, asker: Mapping[str, str], *, validate_only: bool
) -> _Told:
    name = asked.resource_name
    try:
        if asked.resource_type == TOPIC:
            raise _no_topic_name(name)
        elif asked.resource_type == BROKER:
            await _alter_broker(core, asked, asker, validate_only=validate_only)
        elif asked.resource_type == BROKER_LOGGER:
            _check_broker(core, name)
            alter_logger(asked, asker, validate_only=validate_only)
        else:
            raise _unknown_type(asked.resource_type)
    except (Refused, InvalidConfig, *STORAGE_FAILURES) as exc:
        return _why(exc, asked.resource_type)
    return _NO_ERROR


def _why(failure: Exception, resource_type: int) -> _Told:
    """What is answered about a resource that could not be changed."""
    match failure:
        case Refused():
            return failure.code, failure.message
        case InvalidConfig():
            return _INVALID.get(resource_type, ErrorCode.INVALID_CONFIG), str(failure)
        case _:
            return wire_error(failure)


def _no_topic_name(name: str) -> Refused:
    """Why no topic can be called so."""
    if not name:
        return invalid_request("Default topic resources are not allowed.")
    return Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is no topic name")


async def _alter_broker(
    core: Core, asked: Altered, asker: Mapping[str, str], *, validate_only: bool
) -> None:
    settings, name = core.settings, asked.resource_name
    if name != EVERY_BROKER:
        _check_broker(core, name)
    for one in asked.configs:
        one.name = settings.own_names.get(one.name, one.name)  # what is kept has one spelling
    async with settings.changing:
        values = _change(asked)(settings.set_on(name))
        if validate_only:
            settings.check(name, values)
        else:
            await settings.set(name, values, asker)
    with trio.CancelScope(shield=True):  # what is set holds, whoever waits to be told so
        await core.topics.choose_defaults()


def _change(asked: Altered) -> Change:
    if isinstance(asked, AlterConfigsRequestResource):
        return replacement(asked)
    return increment(asked)
