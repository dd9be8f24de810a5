"""What an admin client asks, as calls (see engine): written once, run by both shells.

Requests that change something go to the controller.  What is asked again, and what is not: asking.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from segbroker.protocol.messages_admin import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from segbroker.protocol.messages_core import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

from .asking import change, look, refused, unsaid
from .cluster import NOBODY, TopicView
from .engine import Ask, AskAll, Call, Engine, Onward
from .errors import (
    BrokerError,
    LeaderNotAvailable,
    SegbrokerError,
    broker_error,
    check_code,
)
from .lists import ASKED_MAX, as_names, in_pieces
from .lookups import END_TIME, START_TIME, look_up, no_partition, pieces_of, topics_known
from .records import ByPartition, OffsetAndTimestamp, TopicPartition, as_partition
from .starting import to_ms

TOPIC_RESOURCE = 2
SET, DELETE = 0, 1
# Where a config value comes from: set for the topic itself.
SOURCE_TOPIC = 1
SOURCES = {SOURCE_TOPIC: "topic", 2: "broker", 3: "every broker", 4: "start", 5: "default"}
"""In words, by their numbers in DescribeConfigs."""
# How often a change is tried while the broker says "not now".
CHANGE_TIMEOUT_MS = 30_000


Setting = str | int | float | bool
"""A value of a setting; the wire has its text."""


class ConfigEntry(NamedTuple):
    """One setting of a topic.

    is_default: it is not set for this topic.
    source: "topic" (set for it); "broker", "every broker" (chosen for all topics while the broker
    ran), "start" (the same, where it was started); "default".
    """

    value: str | None
    is_default: bool
    documentation: str | None
    source: str = "default"


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    partitions: tuple[PartitionDescription, ...]
    config: Mapping[str, ConfigEntry]


class BrokerAddress(NamedTuple):
    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """`controller` is the broker that topics are created at."""

    cluster_id: str | None
    controller: int
    brokers: tuple[BrokerAddress, ...]


def create_topic(
    engine: Engine,
    name: str,
    *,
    partitions: int,
    config: Mapping[str, Setting],
    replication_factor: int,
    validate_only: bool,
) -> Call[None]:
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequestTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                assignments=[],
                configs=[
                    CreateTopicsRequestConfig(name=key, value=as_setting(value))
                    for key, value in config.items()
                ],
            )
        ],
        timeout_ms=CHANGE_TIMEOUT_MS,
        validate_only=validate_only,
    )
    yield from change(engine, request, CreateTopicsResponse, refused(f"create topic {name!r}"))


def delete_topic(engine: Engine, name: str) -> Call[None]:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=CHANGE_TIMEOUT_MS)
    yield from change(engine, request, DeleteTopicsResponse, refused(f"delete topic {name!r}"))
    engine.cluster.forget([name])


def create_partitions(engine: Engine, name: str, count: int) -> Call[None]:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsRequestTopic(name=name, count=count, assignments=None)],
        timeout_ms=CHANGE_TIMEOUT_MS,
        validate_only=False,
    )
    about = f"topic {name!r} to {count} partitions"
    yield from change(engine, request, CreatePartitionsResponse, refused(about))


def alter_topic_config(
    engine: Engine, name: str, changes: Mapping[str, Setting | None]
) -> Call[None]:
    request = altering(TOPIC_RESOURCE, name, changes)
    about = f"config of topic {name!r}"
    yield from change(engine, request, IncrementalAlterConfigsResponse, refused(about))


def as_setting(value: Setting) -> str:
    """As a configuration file has it: `true` and `false` are written small."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"a setting is a str or a number, not {value!r}")


def altering(
    kind: int, name: str, changes: Mapping[str, Setting | None]
) -> IncrementalAlterConfigsRequest:
    """The request that changes settings of a resource one by one; None unsets one."""
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequestResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterConfigsRequestConfig(
                        name=key,
                        config_operation=DELETE if value is None else SET,
                        value=None if value is None else as_setting(value),
                    )
                    for key, value in changes.items()
                ],
            )
        ],
        validate_only=False,
    )


def describing(kind: int, name: str, *, synonyms: bool = False) -> DescribeConfigsRequest:
    """The request for all settings of a resource, and what they mean."""
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequestResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
        ],
        include_synonyms=synonyms,
        include_documentation=True,
    )


def list_topics(engine: Engine, *, internal: bool) -> Call[list[str]]:
    reply = yield from look(engine, MetadataRequest(topics=None), MetadataResponse)
    return sorted(  # one of which the broker does not know the leaders for now is there as well
        topic.name or "" for topic in reply.topics if internal or not topic.is_internal
    )


def describe_topic(engine: Engine, name: str) -> Call[TopicDescription]:
    described = yield from describe_topics(engine, [name])
    return described[name]


def describe_topics(
    engine: Engine, names: Iterable[str], *, keys: Collection[str] | None = None
) -> Call[dict[str, TopicDescription]]:
    """All of these, or what is wrong with the first that cannot be described; a question for every
    ASKED_MAX of them.  With `keys` only these settings, without what they mean."""
    described: dict[str, TopicDescription] = {}
    for some in in_pieces(names):
        topics = yield from _topics_metadata(engine, some)
        configs = yield from _topics_config(engine, some, keys)
        described |= {
            name: TopicDescription(name, _partitions_of(topic), configs.get(name, {}))
            for name, topic in topics.items()
        }
        yield Onward()
    return described


def _topics_config(
    engine: Engine, names: Iterable[str], keys: Collection[str] | None
) -> Call[dict[str, dict[str, ConfigEntry]]]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequestResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=name,
                configuration_keys=None if keys is None else list(keys),
            )
            for name in names
        ],
        include_synonyms=False,
        include_documentation=keys is None,
    )

    def check(reply: DescribeConfigsResponse) -> None:
        for row in reply.results:
            check_code(row.error_code, f"config of topic {row.resource_name!r}", row.error_message)

    reply = yield from look(engine, request, DescribeConfigsResponse, check)
    return {
        row.resource_name: {
            entry.name: ConfigEntry(
                entry.value,
                entry.config_source != SOURCE_TOPIC,
                entry.documentation,
                SOURCES.get(entry.config_source, str(entry.config_source)),
            )
            for entry in row.configs
        }
        for row in reply.results
    }


def partitions(engine: Engine, name: str) -> Call[tuple[PartitionDescription, ...]]:
    topics = yield from _topics_metadata(engine, [name])
    return _partitions_of(topics[name])


def _partitions_of(topic: MetadataResponseTopic) -> tuple[PartitionDescription, ...]:
    return tuple(
        PartitionDescription(
            row.partition_index, row.leader_id, row.leader_epoch, tuple(row.replica_nodes)
        )
        for row in sorted(topic.partitions, key=lambda row: row.partition_index)
    )


def _topics_metadata(
    engine: Engine, names: Collection[str]
) -> Call[dict[str, MetadataResponseTopic]]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )

    def check(reply: MetadataResponse) -> None:
        for row in reply.topics:
            check_code(row.error_code, f"topic {row.name!r}")

    reply = yield from look(engine, request, MetadataResponse, check)
    found = {row.name: row for row in reply.topics}
    return {name: found[name] for name in names}


def delete_records(engine: Engine, offsets: ByPartition[int]) -> Call[dict[TopicPartition, int]]:
    wanted = {as_partition(tp): offset for tp, offset in offsets.items()}
    views = yield from _topics_now(engine, {tp.topic for tp in wanted})
    known = {view.name: view for view in views}
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for tp, offset in wanted.items():
        leader = engine.cluster.leader_in(known[tp.topic], tp.partition)
        if leader is None:
            if tp.partition in range(known[tp.topic].partition_count):
                why = engine.cluster.why_unled(*tp)
                raise LeaderNotAvailable(f"{tp.topic}-{tp.partition}: {why or NOBODY}") from why
            raise no_partition(tp, known[tp.topic])
        by_leader.setdefault(leader, {})[tp] = offset
    starts: dict[TopicPartition, int] = {}
    failed: BrokerError | None = None
    for some in pieces_of(by_leader):
        asks = [Ask(_deletion(offsets), to=leader) for leader, offsets in some.items()]
        for reply in (yield AskAll(asks)):
            if isinstance(reply, SegbrokerError):
                raise reply
            assert isinstance(reply, DeleteRecordsResponse)
            for topic in reply.topics:
                for row in topic.partitions:
                    tp = TopicPartition(topic.name, row.partition_index)
                    where = f"delete records of {tp.topic}-{tp.partition} before {wanted[tp]}"
                    if row.error_code and failed is None:  # the others are deleted all the same
                        failed = broker_error(row.error_code, where)
                    starts[tp] = row.low_watermark
        yield Onward()
    if failed is not None:
        raise failed
    for topic_name, partition in wanted.keys() - starts.keys():
        raise unsaid(f"delete records of {topic_name}-{partition}")
    return starts


def _deletion(offsets: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
    topics: dict[str, list[DeleteRecordsRequestPartition]] = {}
    for tp, offset in offsets.items():
        row = DeleteRecordsRequestPartition(partition_index=tp.partition, offset=offset)
        topics.setdefault(tp.topic, []).append(row)
    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
        timeout_ms=CHANGE_TIMEOUT_MS,
    )


def offsets(
    engine: Engine, topics: str | Iterable[str], at: str | int | datetime, *, only_served: bool
) -> Call[dict[TopicPartition, OffsetAndTimestamp]]:
    """Of every partition of topics: the start, the end, or the first record at a time (ms).

    A time later than every record gives offset -1.  `only_served`: what is not served is left out,
    else it is raised.
    """
    match at:
        case "start":
            time = START_TIME
        case "end":
            time = END_TIME
        case datetime():
            time = to_ms(at)
        case int() if at >= 0:
            time = at
        case _:
            raise ValueError(f"at={at!r} is not 'start', 'end', a time in ms or a datetime")
    told: dict[TopicPartition, OffsetAndTimestamp] = {}
    for some in in_pieces(as_names(topics)):
        try:
            told |= yield from _offsets_at(engine, some, time, only_served=only_served)
        finally:  # it may ask about more than a client keeps in view
            if len(engine.cluster.topics) > ASKED_MAX:
                _forget(engine, some)
        yield Onward()
    return told


def _topics_now(engine: Engine, topics: Collection[str]) -> Call[list[TopicView]]:
    """As `topics_known`, as they are now: what is in view may be as old as `metadata_max_age_ms`,
    and who asks does so because they have changed."""
    _forget(engine, topics)
    return (yield from topics_known(engine, topics))


def _forget(engine: Engine, topics: Iterable[str]) -> None:
    """Those that nobody waits for."""
    view = engine.cluster.topics
    engine.cluster.forget([name for name in topics if name in view and view[name].is_settled])


def _offsets_at(
    engine: Engine, topics: Collection[str], time: int, *, only_served: bool
) -> Call[dict[TopicPartition, OffsetAndTimestamp]]:
    views = yield from _topics_now(engine, topics)
    wanted = {
        TopicPartition(view.name, number): time
        for view in views
        for number in range(view.partition_count)
    }
    unserved: dict[TopicPartition, BrokerError] = {}
    found = yield from look_up(engine, wanted, isolation_level=0, unserved=unserved)
    if unserved and not only_served:
        raise next(iter(unserved.values()))
    return {
        tp: OffsetAndTimestamp(found[tp].offset, found[tp].timestamp_ms)
        for tp in wanted
        if tp in found
    }


def describe_cluster(engine: Engine) -> Call[ClusterDescription]:
    reply = yield from look(engine, MetadataRequest(topics=[]), MetadataResponse)
    return ClusterDescription(
        reply.cluster_id,
        reply.controller_id,
        tuple(BrokerAddress(row.node_id, row.host, row.port) for row in reply.brokers),
    )
