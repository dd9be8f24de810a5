"""Administration of topics: create, delete, grow, delete records. One row of answer per topic.

| CreateTopics                              | code                               |
|-------------------------------------------|------------------------------------|
| the same name twice, or the log of KRaft  | 42 INVALID_REQUEST                 |
| partitions 0, below -1 or over the limit  | 37 INVALID_PARTITIONS              |
| replication factor other than 1 and -1    | 38 INVALID_REPLICATION_FACTOR      |
| an assignment to any broker but us        | 39 INVALID_REPLICA_ASSIGNMENT      |
| an unknown key or a bad value             | 40 INVALID_CONFIG                  |
| an illegal name                           | 17 INVALID_TOPIC_EXCEPTION         |
| a name that exists                        | 36 TOPIC_ALREADY_EXISTS            |
| one that differs from it in . and _ only  | 17 INVALID_TOPIC_EXCEPTION         |
| more partitions than PARTITIONS_ASKED_MAX | 44 POLICY_VIOLATION, each of them  |
| a quota of changes is used up (quotas.py) | 89 THROTTLING_QUOTA_EXCEEDED       |

89 is told by CreateTopics 6, DeleteTopics 5 and CreatePartitions 3 on; in older versions it is done
all the same, and the client is not read until its quota is paid.

Names that differ in . and _ only, both new in one request: the first is made (Kafka makes both).

DeleteTopics: what is named twice, by name or id or both, and a row that has both or neither, is 42
INVALID_REQUEST, and nothing that is meant by it is deleted.

`validate_only` does all of this and creates nothing.  -1 partitions: the broker's default.
DeleteRecords of a topic that is compacted and no more: 44 POLICY_VIOLATION, as in Kafka.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_admin import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseTopic,
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
    DeleteTopicsResponseTopic,
)
from segbroker.segments.directory.manager import NewTopic, Outcome
from segbroker.segments.errors import StorageError, TopicCollides, UnknownTopic
from segbroker.segments.metadata.alike import folded
from segbroker.segments.settings.topic_config import TopicConfig

from ..access.quota_rules import MUTATIONS
from ..call import Call
from ..core import Core
from ..error_map import STORAGE_FAILURES, wire_error
from ..loop.pace import Pace
from ..refused import Refused, invalid_request
from .config_rows import created_configs

log = structlog.get_logger()

_DEFAULT: Final = -1
TOPICS_TOLD_MAX: Final = 10
"""Topics that a line names."""
PARTITIONS_ASKED_MAX: Final = 10_000
"""Partitions of all topics of one request, as in Kafka; or what one topic may have, if that is
more.  Of each topic the answer has some forty settings, also where nothing is created."""
EXCESSIVE: Final = "Excessively large number of partitions per request."
# From these versions on there is a code for it.
_KNOWS_DISABLED: Final = 3
_CREATE_STRICT_SINCE: Final = 6
_DELETE_STRICT_SINCE: Final = 5
_GROW_STRICT_SINCE: Final = 3
# A topic of this name would be taken for the log of Kafka's controllers.
_OF_KRAFT: Final = "__cluster_metadata"
# What DeleteTopics says in Kafka.
_NEITHER: Final = "Neither topic name nor id were specified."
_BOTH: Final = "You may not specify both topic name and topic id."
_NAME_TWICE: Final = "Duplicate topic name."
_ID_TWICE: Final = "Duplicate topic id."
_SAME: Final = "The provided topic name maps to an ID that was already supplied."

_Doomed: TypeAlias = dict[str, DeleteTopicsResponseTopic]
"""The topics that are to be deleted, by name, and their rows of the answer."""


async def create_topics(core: Core, call: Call[CreateTopicsRequest]) -> CreateTopicsResponse:
    """Create the topics of one request, together."""
    request = call.request
    counts = Counter(topic.name for topic in request.topics)
    rows: dict[str, CreateTopicsResponseTopic] = {}
    wanted: list[NewTopic] = []
    alike: dict[str, str] = {}
    pace = Pace()
    count = 0
    for asked in request.topics:
        count += _count_asked(core, asked)
        await pace.step()
    is_excessive = count > max(PARTITIONS_ASKED_MAX, core.config.partitions_max)
    for asked in request.topics:
        await pace.step()
        row = CreateTopicsResponseTopic(name=asked.name, error_message=None)
        rows[asked.name] = row
        try:
            if is_excessive:
                raise Refused(ErrorCode.POLICY_VIOLATION, EXCESSIVE)
            if counts[asked.name] > 1:
                raise invalid_request(f"{asked.name!r} is asked for twice")
            new = new_topic(core, asked)
            first = alike.setdefault(folded(new.name), new.name)
            if first != new.name:
                raise TopicCollides(new.name, first)
            _charge(core, call, new.partitions, _CREATE_STRICT_SINCE)
            wanted.append(new)
        except Refused as exc:
            row.error_code, row.error_message = exc.code, exc.message
        except STORAGE_FAILURES as exc:
            row.error_code, row.error_message = wire_error(exc)
    outcomes: Sequence[Outcome | None] = [None] * len(wanted)
    if wanted and not request.validate_only:
        outcomes = await core.topics.create_all(wanted, call.peer.asker)
    for new, outcome in zip(wanted, outcomes, strict=True):
        await pace.step()
        row = rows[new.name]
        if isinstance(outcome, StorageError):
            row.error_code, row.error_message = wire_error(outcome)
            continue
        if outcome is not None:
            row.topic_id = outcome.topic_id
        row.num_partitions = new.partitions
        row.replication_factor = 1
        row.configs = created_configs(core, new.config)
    return CreateTopicsResponse(topics=list(rows.values()))


def _charge(core: Core, call: Call[Any], partitions: int, strict_since: int) -> None:
    """What is asked for changes so many partitions.  Raises Refused: it may not."""
    if core.quotas is None:
        return
    is_strict = call.version >= strict_since
    owed = core.quotas.mutates(call.peer, partitions, is_strict=is_strict)
    if owed:
        call.peer.mute(owed)
    if owed and is_strict:
        told = f"the quota {MUTATIONS} is used up: ask again in {owed:.1f} s"
        raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, told)


def _count_asked(core: Core, asked: CreateTopicsRequestTopic) -> int:
    """How many partitions a topic would have; 0: it cannot have so many, and is refused for it."""
    count = len(asked.assignments) or asked.num_partitions
    if count == _DEFAULT:
        count = core.config.partitions_by_default
    return count if 0 < count <= core.config.partitions_max else 0


def new_topic(core: Core, asked: CreateTopicsRequestTopic) -> NewTopic:
    """Raises Refused, and what creating it would raise.

    Of several errors Kafka's first one is told: of the name, the settings, the partitions.
    """
    if asked.name == _OF_KRAFT:
        told = f"Creation of internal topic {_OF_KRAFT} is prohibited."
        raise invalid_request(told)
    core.topics.check_new(asked.name, 1)
    config = _config(core, asked)
    partitions = _partitions(core, asked)
    core.topics.check_new(asked.name, partitions)
    return NewTopic(asked.name, partitions, config)


def _partitions(core: Core, asked: CreateTopicsRequestTopic) -> int:
    if asked.assignments:
        if asked.num_partitions != _DEFAULT or asked.replication_factor != _DEFAULT:
            raise invalid_request("both an assignment and a count of partitions")
        indexes = sorted(one.partition_index for one in asked.assignments)
        if indexes != list(range(len(indexes))):
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partitions {indexes} are not 0, 1, 2 ..."
            )
        for one in asked.assignments:
            _check_assignment(core, one.broker_ids)
        return _bounded(core, len(indexes))
    count, replicas = asked.num_partitions, asked.replication_factor
    can_be = replicas > 0 or replicas == _DEFAULT
    if can_be:
        count = core.config.partitions_by_default if count == _DEFAULT else _bounded(core, count)
    if replicas not in (1, _DEFAULT):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replicas}, there is one broker",
        )
    return count


def _check_assignment(core: Core, broker_ids: list[int]) -> None:
    if broker_ids != [core.config.broker_id]:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"assigned to brokers {broker_ids}, there is only {core.config.broker_id}",
        )


def _bounded(core: Core, count: int) -> int:
    if not 1 <= count <= core.config.partitions_max:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"{count} partitions, allowed are 1 to {core.config.partitions_max}",
        )
    return count


def _config(core: Core, asked: CreateTopicsRequestTopic) -> TopicConfig:
    if empty := [one.name for one in asked.configs if one.value is None]:
        told = f"Null value not supported for topic configs: {', '.join(empty)}"
        raise Refused(ErrorCode.INVALID_CONFIG, told)
    return core.topics.topic_config({one.name: one.value or "" for one in asked.configs})


async def delete_topics(core: Core, call: Call[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    """Delete the topics of one request, by name or (v6+) by id, together."""
    request = call.request
    if not core.config.delete_topics:
        return _deletion_disabled(call)
    pace = Pace()
    rows, doomed, ids = await _meant_to_go(core, request, pace)
    if core.quotas is not None:
        await _charge_deletions(core, call, doomed, pace)
    outcomes = await core.topics.delete_all(doomed, ids, call.peer.asker)
    for name, row in doomed.items():
        outcome = outcomes[name]
        if isinstance(outcome, UnknownTopic) and name in ids:  # meanwhile, and maybe made anew
            row.name, row.error_code, row.error_message = None, *_no_such_id(ids[name])
        elif isinstance(outcome, StorageError):
            row.error_code, row.error_message = wire_error(outcome)
        await pace.step()
    return DeleteTopicsResponse(responses=rows)


async def _meant_to_go(
    core: Core, request: DeleteTopicsRequest, pace: Pace
) -> tuple[list[DeleteTopicsResponseTopic], _Doomed, dict[str, UUID]]:
    """Which topics a request means: all rows of its answer, those of topics that are to go by name,
    and by name the ids that these were asked for by."""
    by_name = [
        DeleteTopicsRequestTopic(name=name, topic_id=ZERO_UUID) for name in request.topic_names
    ]
    asked_for = [*request.topics, *by_name]
    counts: Counter[str | UUID | None] = Counter()
    for asked in asked_for:
        counts[_meant(asked)] += 1
        await pace.step()
    rows = []
    told: set[str | UUID] = set()
    doomed: _Doomed = {}
    ids: dict[str, UUID] = {}
    for asked in asked_for:
        await pace.step()
        meant = _meant(asked)
        if meant in told:
            continue
        row = DeleteTopicsResponseTopic(name=asked.name, topic_id=asked.topic_id)
        try:
            if meant is None:
                raise invalid_request(_BOTH if asked.name is not None else _NEITHER)
            told.add(meant)
            if counts[meant] > 1:
                raise invalid_request(_ID_TWICE if isinstance(meant, UUID) else _NAME_TWICE)
            meta = core.topics.by_id(meant) if isinstance(meant, UUID) else core.topics.get(meant)
            if meta is not None:
                row.name, row.topic_id = meta.name, meta.topic_id
            elif isinstance(meant, UUID):
                raise Refused(*_no_such_id(meant))
            assert row.name is not None, "it was given, or is that of the id"
            if (other := doomed.pop(row.name, None)) is not None:
                other.error_code, other.error_message = ErrorCode.INVALID_REQUEST, _SAME
                continue  # told in one row
            doomed[row.name] = row
            if isinstance(meant, UUID):
                ids[row.name] = meant
        except Refused as exc:
            row.error_code, row.error_message = exc.code, exc.message
        rows.append(row)
    return rows, doomed, ids


async def _charge_deletions(
    core: Core, call: Call[DeleteTopicsRequest], doomed: _Doomed, pace: Pace
) -> None:
    """Those that a quota does not let go are doomed no more; their rows say why."""
    for name, row in tuple(doomed.items()):
        await pace.step()
        meta = core.topics.get(name)
        if meta is None:
            continue
        try:
            _charge(core, call, meta.partitions, _DELETE_STRICT_SINCE)
        except Refused as exc:
            row.error_code, row.error_message = exc.code, exc.message
            del doomed[name]


def _deletion_disabled(call: Call[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    """As Kafka: of nothing that is asked for is said whether it is there."""
    code = ErrorCode.TOPIC_DELETION_DISABLED
    if call.version < _KNOWS_DISABLED:
        code = ErrorCode.INVALID_REQUEST
    rows = [
        DeleteTopicsResponseTopic(name=one.name, topic_id=one.topic_id, error_code=code)
        for one in call.request.topics
    ]
    rows += [
        DeleteTopicsResponseTopic(name=name, error_code=code) for name in call.request.topic_names
    ]
    return DeleteTopicsResponse(responses=rows)


def _meant(asked: DeleteTopicsRequestTopic) -> str | UUID | None:
    """The name or the id that is asked for; None: both, or neither."""
    if asked.name is None:
        return None if asked.topic_id == ZERO_UUID else asked.topic_id
    return asked.name if asked.topic_id == ZERO_UUID else None


def _no_such_id(topic_id: UUID) -> tuple[ErrorCode, str]:
    return ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}"


async def create_partitions(
    core: Core, call: Call[CreatePartitionsRequest]
) -> CreatePartitionsResponse:
    """Let topics grow; never shrink."""
    request = call.request
    counts = Counter(topic.name for topic in request.topics)
    rows = {}
    wanted: dict[str, int] = {}
    pace = Pace()
    for asked in request.topics:
        await pace.step()
        row = rows[asked.name] = CreatePartitionsResponseTopic(name=asked.name)
        try:
            if counts[asked.name] > 1:
                raise invalid_request(f"{asked.name!r} is asked for twice")
            _check_growth(core, call, asked)
            wanted[asked.name] = asked.count
        except Refused as exc:
            row.error_code, row.error_message = exc.code, exc.message
    outcomes = {}
    if not request.validate_only:
        outcomes = await core.topics.grow_all(wanted, call.peer.asker)
    for name, outcome in outcomes.items():
        if isinstance(outcome, StorageError):
            rows[name].error_code, rows[name].error_message = wire_error(outcome)
    return CreatePartitionsResponse(results=list(rows.values()))


def _check_growth(
    core: Core, call: Call[CreatePartitionsRequest], asked: CreatePartitionsRequestTopic
) -> None:
    """Raises Refused; what may be is charged."""
    meta = core.topics.get(asked.name)
    if meta is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.name!r}")
    if asked.count <= meta.partitions:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic has {meta.partitions} partitions; their number can only grow, not become"
            f" {asked.count}",
        )
    _bounded(core, asked.count)
    if asked.assignments is not None:
        if len(asked.assignments) != asked.count - meta.partitions:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{len(asked.assignments)} assignments for {asked.count - meta.partitions} "
                "further partitions",
            )
        for one in asked.assignments:
            _check_assignment(core, one.broker_ids)
    _charge(core, call, asked.count - meta.partitions, _GROW_STRICT_SINCE)


async def delete_records(core: Core, call: Call[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    """Move log starts up; what is before them is gone for readers at once."""
    await core.topics.open_all(
        (topic.name, one.partition_index)
        for topic in call.request.topics
        for one in topic.partitions
    )
    pace = Pace()
    response = DeleteRecordsResponse(topics=[])
    wanted: list[tuple[str, int, DeleteRecordsResponsePartition]] = []
    for topic in call.request.topics:
        rows = DeleteRecordsResponseTopic(name=topic.name, partitions=[])
        response.topics.append(rows)
        for one in topic.partitions:
            row = DeleteRecordsResponsePartition(
                partition_index=one.partition_index, low_watermark=-1
            )
            rows.partitions.append(row)
            wanted.append((topic.name, one.offset, row))
            await pace.step()
        await pace.step()
    rest = iter(wanted)
    deleted: Counter[str] = Counter()

    async def work() -> None:
        pace = Pace()
        for name, offset, row in rest:
            if await _delete_before(core, name, offset, row):
                deleted[name] += 1
            await pace.step()

    try:
        async with trio.open_nursery() as nursery:
            for _ in range(min(core.topics.lanes_at_once, len(wanted))):
                nursery.start_soon(work)
    finally:  # what is deleted is told, also where nobody waits for the answer any more
        if partitions := deleted.total():
            topics = sorted(deleted)[:TOPICS_TOLD_MAX]
            log.info("records_deleted", topics=topics, partitions=partitions, **call.peer.asker)
    return response


async def _delete_before(
    core: Core, name: str, offset: int, row: DeleteRecordsResponsePartition
) -> bool:
    """Fills in its row; whether records went."""
    try:
        partition = core.topics.served_partition(name, row.partition_index)
        if partition is None:
            row.error_code, _ = core.topics.why_unopened(name, row.partition_index)
            return False
        handler = partition.handler
        if handler.config.compacts and not handler.config.deletes:
            row.error_code = ErrorCode.POLICY_VIOLATION
            return False
        before = handler.log_start_offset
        row.low_watermark = await core.lanes.run(handler.delete_records_before, offset)
    except STORAGE_FAILURES as exc:
        row.error_code, _ = wire_error(exc)
        return False
    return row.low_watermark > before
