"""How large an answer will be, before a row of it is made: for the room that it takes.

| answer | rows |
|---|---|
| Metadata, DescribeLogDirs | the partitions of the topics asked about, or of all |
| DescribeConfigs, CreateTopics | the settings of each that is asked about |
| OffsetFetch, DescribeShareGroupOffsets | of all topics: where the group stands |
| ListGroups, ListTransactions, DescribeAcls, ... | all that there are |
| DescribeGroups, Consumer-, Share-, StreamsGroupDescribe | members, and what each says and has |
| DescribeTransactions, DescribeProducers | partitions of transactions, producers of partitions |

What is not here has no more rows than its request has items (`items_size`, of one that is large),
or a limit of its own.  It is the most that it may be, for who may see all: without a right it is
less.  Bytes, of the objects and of what they are encoded to, with the texts that clients may have
made long: metadata of commits, ids and names.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar
from uuid import UUID

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_admin import (
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
)
from segbroker.protocol.messages_consumer_groups import ConsumerGroupDescribeRequest
from segbroker.protocol.messages_core import MetadataRequest
from segbroker.protocol.messages_groups import (
    DescribeGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
)
from segbroker.protocol.messages_share_groups import (
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)
from segbroker.protocol.messages_streams_groups import StreamsGroupDescribeRequest
from segbroker.protocol.messages_transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
)
from segbroker.protocol.schema import Message
from segbroker.segments.metadata.committed import CommittedOffset
from segbroker.segments.metadata.share_groups import SECTION as SHARES
from segbroker.segments.settings.topic_config import TopicConfig

from ..call import Call
from ..core import Core
from ..groups.all_names import each_once
from ..groups.consumer_group import ConsumerGroup
from ..groups.group import Group
from ..groups.group_keys import GROUP_KEYS
from ..groups.member_sizes import (
    classic_size,
    consumer_size,
    share_size,
    streams_size,
    topology_size,
)
from ..groups.streams_group import StreamsGroup
from ..groups.task_assignor import NO_TASKS
from ..loop.pace import Pace
from ..peers.long_answers import BYTES_MAX
from .config_admin import BROKER, GROUP, TOPIC

ROW_BYTES: Final = 200
"""A row of a few numbers: 150 for a partition of Metadata."""
_SETTING_BYTES: Final = 600
"""A setting has a text of what it is, and says what each place says of it."""
_CREATED_SETTING_BYTES: Final = 200
_MEMBER_BYTES: Final = 1_000
_TOPIC_SETTINGS: Final = len(list(TopicConfig().describe()))
_NUMBER_BYTES: Final = 40
"""A partition in a list of numbers."""
_METADATA: Final = CommittedOffset._fields.index("metadata")

T = TypeVar("T")


async def answer_size(core: Core, call: Call[Any]) -> int:
    """About how many bytes the answer to a request that is `sized` will take in memory."""
    size = 0
    pace = Pace()
    for some in _SIZES[call.header.api_key](core, call.request):
        size += some
        if size > BYTES_MAX:  # it is made when it is alone
            break
        await pace.step()
    return size


def items_size(request: Message) -> int:
    """The same of an answer with a row for each item of its request, where there may be very many.
    From any thread."""
    return ROW_BYTES * rows_count(request, BYTES_MAX // ROW_BYTES)


def rows_count(message: Message, most: int) -> int:
    """How many rows a message has, in rows too; counted until there are more than `most`."""
    count = 0
    for name in message.__slots__:
        value = getattr(message, name)
        if not isinstance(value, list):
            continue
        count += len(value)
        if value and isinstance(value[0], Message):
            for one in value:
                if count > most:
                    return count
                count += rows_count(one, most - count)
    return count


def _all_partitions(core: Core) -> int:
    return sum(meta.partitions for meta in core.topics.all.values())


def _of_metadata(core: Core, request: MetadataRequest) -> Iterator[int]:
    if not request.topics:  # none, in all versions but the first
        yield 0 if request.topics is not None else ROW_BYTES * _all_partitions(core)
    seen: set[UUID | str] = set()
    topics = core.topics
    for one in request.topics or ():
        meant = one.topic_id if one.name is None or one.topic_id != ZERO_UUID else one.name
        meta = topics.by_id(meant) if isinstance(meant, UUID) else topics.get(meant)
        yield 0 if meta is None or meant in seen else ROW_BYTES * meta.partitions
        seen.add(meant)


def _of_log_dirs(core: Core, request: DescribeLogDirsRequest) -> Iterator[int]:
    if request.topics is None:
        yield ROW_BYTES * _all_partitions(core)


def _of_configs(core: Core, request: DescribeConfigsRequest) -> Iterator[int]:
    kinds = {TOPIC: _TOPIC_SETTINGS, BROKER: 2 * len(core.settings.keys), GROUP: len(GROUP_KEYS)}
    for one in request.resources:
        most = kinds.get(one.resource_type, 1)
        yield _SETTING_BYTES * min(most, len(one.configuration_keys or ()) or most)


def _of_created(core: Core, request: CreateTopicsRequest) -> Iterator[int]:
    yield _CREATED_SETTING_BYTES * _TOPIC_SETTINGS * len(request.topics)


def _of_offsets(core: Core, request: OffsetFetchRequest) -> Iterator[int]:
    yield from _stands(core, request.group_id, request.topics)
    for one in request.groups:
        yield from _stands(core, one.group_id, one.topics)


def _stands(
    core: Core,
    group_id: str,
    topics: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestGroupTopic] | None,
) -> Iterator[int]:
    """Where a group stands, in topics or in all; as it is kept, which is never changed in place: by
    topic its id, and rows by partition with the metadata of the commit."""
    kept = core.topics.manager.committed.get(group_id, {})
    if topics is None:
        for _, rows in kept.values():
            for some in _pieces(rows.values()):
                yield sum(ROW_BYTES + len(row[_METADATA]) for row in some)
        return
    for topic in topics:
        name = topic.name
        if isinstance(topic, OffsetFetchRequestGroupTopic) and topic.topic_id != ZERO_UUID:
            meta = core.topics.by_id(topic.topic_id)
            name = "" if meta is None else meta.name
        _, rows = kept.get(name, (None, {}))
        for indexes in _pieces(dict.fromkeys(topic.partition_indexes)):
            found = (rows.get(str(index)) for index in indexes)
            yield sum(ROW_BYTES + len(row[_METADATA]) for row in found if row is not None)


def _pieces(items: Iterable[T]) -> Iterator[list[T]]:
    """A step of the loop each."""
    rest = iter(items)
    while some := list(islice(rest, 200)):
        yield some


def _of_share_offsets(core: Core, request: DescribeShareGroupOffsetsRequest) -> Iterator[int]:
    content = core.topics.manager.section(SHARES) or {}
    for group_id in dict.fromkeys(one.group_id for one in request.groups if one.topics is None):
        for _, rows in content.get(group_id, {}).values():  # as those of other groups
            yield ROW_BYTES * len(rows)


def _of_group_list(core: Core, request: object) -> Iterator[int]:
    groups = core.groups
    places = [*groups.places(), *groups.share_groups.places(), core.transactions.table.groups]
    for some in _pieces(each_once(places)):
        yield sum(ROW_BYTES + len(name) for name in some if name is not None)


def _of_classic_groups(core: Core, request: DescribeGroupsRequest) -> Iterator[int]:
    for name in dict.fromkeys(request.groups):
        group = core.groups.in_memory(name)
        if isinstance(group, Group):
            for one in tuple(group.members.values()):
                yield _MEMBER_BYTES + 2 * (classic_size(one) + len(one.assignment))


def _member(said: int, names: Iterable[str], *has: Collection[object]) -> int:
    return _MEMBER_BYTES + said + sum(map(len, names)) + _NUMBER_BYTES * sum(map(len, has))


def _of_consumer_groups(core: Core, request: ConsumerGroupDescribeRequest) -> Iterator[int]:
    for name in dict.fromkeys(request.group_ids):
        group = core.groups.in_memory(name)
        if isinstance(group, ConsumerGroup):
            for one in tuple(group.members.values()):
                to_have = group.target.of(one.member_id)
                yield _member(consumer_size(one), one.names, one.assigned, one.revoking, to_have)


def _of_share_groups(core: Core, request: ShareGroupDescribeRequest) -> Iterator[int]:
    for name in dict.fromkeys(request.group_ids):
        if (group := core.groups.share_groups.get(name)) is not None:
            for one in tuple(group.members.values()):
                yield _member(share_size(one), one.names, one.assigned)


def _of_streams_groups(core: Core, request: StreamsGroupDescribeRequest) -> Iterator[int]:
    for name in dict.fromkeys(request.group_ids):
        group = core.groups.in_memory(name)
        if isinstance(group, StreamsGroup):
            yield 0 if group.topology is None else topology_size(group.topology)
            for one in tuple(group.members.values()):
                to_have = group.target.get(one.member_id, NO_TASKS)
                has = (*one.assigned, *to_have)
                yield _member(streams_size(one.said), (), *has)


def _of_transactions(core: Core, request: DescribeTransactionsRequest) -> Iterator[int]:
    for name in dict.fromkeys(request.transactional_ids):
        if (known := core.transactions.table.get(name)) is not None:
            yield _NUMBER_BYTES * sum(map(len, known.partitions.values()))


def _of_producers(core: Core, request: DescribeProducersRequest) -> Iterator[int]:
    for topic in request.topics:
        for index in dict.fromkeys(topic.partition_indexes):
            partition = core.topics.served_partition(topic.name, index)
            yield 0 if partition is None else ROW_BYTES * partition.handler.producers_count


def _of_transaction_list(core: Core, request: object) -> Iterator[int]:
    for some in _pieces(core.transactions.table.all()):
        yield sum(ROW_BYTES + len(known.transactional_id) for known in some)


def _of_resources(core: Core, request: object) -> Iterator[int]:
    yield ROW_BYTES * len(core.topics.all)


def _of_quotas(core: Core, request: object) -> Iterator[int]:
    for some in _pieces(core.all_quotas.rows):
        yield sum(2 * ROW_BYTES + sum(len(name or "") for _, name in entity) for entity in some)


def _of_acls(core: Core, request: object) -> Iterator[int]:
    if core.authorizer is not None:
        for some in _pieces(core.authorizer.rules.acls):
            yield sum(2 * ROW_BYTES + len(acl.resource_name) + len(acl.principal) for acl in some)


_SIZES: Final[dict[int, Callable[[Core, Any], Iterator[int]]]] = {
    ApiKey.METADATA: _of_metadata,
    ApiKey.DESCRIBE_LOG_DIRS: _of_log_dirs,
    ApiKey.DESCRIBE_CONFIGS: _of_configs,
    ApiKey.CREATE_TOPICS: _of_created,
    ApiKey.OFFSET_FETCH: _of_offsets,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _of_share_offsets,
    ApiKey.LIST_GROUPS: _of_group_list,
    ApiKey.DESCRIBE_GROUPS: _of_classic_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _of_consumer_groups,
    ApiKey.SHARE_GROUP_DESCRIBE: _of_share_groups,
    ApiKey.STREAMS_GROUP_DESCRIBE: _of_streams_groups,
    ApiKey.DESCRIBE_TRANSACTIONS: _of_transactions,
    ApiKey.DESCRIBE_PRODUCERS: _of_producers,
    ApiKey.LIST_TRANSACTIONS: _of_transaction_list,
    ApiKey.LIST_CONFIG_RESOURCES: _of_resources,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _of_quotas,
    ApiKey.DESCRIBE_ACLS: _of_acls,
}
SIZED: Final = frozenset(map(int, _SIZES))
"""Requests whose answer may have more rows than they have items."""
