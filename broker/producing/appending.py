"""What a batch must satisfy before a partition takes it: the same for every shape of request.

| the batch, or its request                        | answer                            |
|--------------------------------------------------|-----------------------------------|
| Produce 0 to 2: message sets                     | 43 UNSUPPORTED_FOR_MESSAGE_FORMAT |
| no such partition                                | 3 UNKNOWN_TOPIC_OR_PARTITION      |
| it exists but could not be opened                | 56 KAFKA_STORAGE_ERROR, and why   |
| it was made since it was looked for              | 6 NOT_LEADER_OR_FOLLOWER          |
| acks is none of 0, 1, -1                         | 21 INVALID_REQUIRED_ACKS          |
| the disk is too far behind (ingest.py)           | 19 NOT_ENOUGH_REPLICAS            |
| no bytes                                         | 87 INVALID_RECORD                 |
| what check_batch finds                           | InvalidBatch, see error_map       |
| the partition is read-only                       | 56 KAFKA_STORAGE_ERROR, and why   |
| transactional, but not of its producer's open transaction           | 47, 48, 49, 19, 120 |
| of transaction version 2, the first here, its sequence is not 0     | 45                  |
| zstd before Produce 7                            | 76 UNSUPPORTED_COMPRESSION_TYPE   |
| log append time for a topic of create time       | 32 INVALID_TIMESTAMP              |
| it overtook a batch that was refused (refusals.py) | 45 OUT_OF_ORDER_SEQUENCE_NUMBER |

Most batches have no attribute set (no codec, no transaction, create time): they pass the rows
about attributes with one comparison.
"""

from typing import Final

from segbroker.protocol.batch_layout import HEADER_SIZE
from segbroker.protocol.compression import Codec
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.record_batch import BatchHeader, check_batch, read_header
from segbroker.segments.errors import LogClosed, OutOfOrderSequence, PartitionReadOnly
from segbroker.segments.partition.handler import AppendResult
from segbroker.segments.settings.topic_config import TimestampType

from ..core import Core
from ..partitions.partition import Partition
from ..refused import Refused

NOT_YET_DURABLE: Final = "appended, and not durable within the timeout: it may become so yet"
_ACKS: Final = (-1, 1, 0)
# zstd came with this version; older clients could not read what they are asked to store.
ZSTD_SINCE: Final = 7
# Version 2 of transactions (KIP-890): every transaction has an epoch, numbered from 0.
_EPOCH_EACH_SINCE: Final = 12
# Clients of this version know a code for "this transaction can only be aborted".
_ABORTABLE_SINCE: Final = 11
# Refusals that pass by themselves: the same batch will come again (refusals.py).
_PASSING: Final = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS)
# The same of a partition that was to be part of the transaction: the last one was being ended then,
# and may not be any more.
_PASSING_UNADDED: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
# Earlier versions are served to be refused by name (librdkafka wants them advertised).
_RECORD_BATCHES_SINCE: Final = 3


def append_batch(
    core: Core,
    api_version: int,
    acks: int,
    name: str,
    index: int,
    records: object,
    now_ms: int,
    *,
    transactional_id: str | None = None,
    unadded: ErrorCode = ErrorCode.NONE,
    is_anew: bool,
) -> tuple[Partition, AppendResult]:
    """Append one batch of a produce request.

    unadded: why partitions that its transaction did not have were not added to it.  is_anew: the
    broker has made it so (remaking.py); who sent it did not.

    Raises:
        Refused, InvalidBatch, StorageError, OSError: it was not appended.
    """
    try:
        partition = partition_to_append(core, api_version, acks, name, index)
        if not isinstance(records, memoryview) or not records:
            raise Refused(ErrorCode.INVALID_RECORD, "no record batch")
        batch = check_batch(records)
        if (failure := partition.handler.read_only) is not None:
            # Before its order is asked: told that it is out of order, librdkafka begins another
            # epoch, and what the log has of the one before is stored twice.
            raise failure.with_traceback(None)
        if batch.attributes or transactional_id is not None:
            _check_attributes(batch, partition, api_version, is_anew=is_anew)
            if batch.is_transactional or transactional_id is not None:
                _check_transaction(core, batch, partition, api_version, transactional_id, unadded)
        if core.refusals.lowest:
            core.refusals.check(name, index, batch)
        result = partition.append(records, batch, now_ms)
    except Refused as exc:
        if exc.code in _PASSING:
            _note_refusal(core, name, index, records)
        raise
    except (PartitionReadOnly, LogClosed, OSError):
        _note_refusal(core, name, index, records)
        raise
    if not result.duplicate:
        core.counters.produced_bytes += len(records)
        partition.produced_bytes += len(records)
    return partition, result


def partition_to_append(
    core: Core, api_version: int, acks: int, name: str, index: int
) -> Partition:
    """Where such a request may append to, whatever it brings.

    Raises:
        Refused: nowhere, or not now.
    """
    if api_version < _RECORD_BATCHES_SINCE:
        raise Refused(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"Produce {api_version} carries message sets; {_RECORD_BATCHES_SINCE} is needed",
        )
    partition = core.topics.served_partition(name, index)
    if partition is None:
        raise Refused(*core.topics.why_unopened(name, index))
    if acks not in _ACKS:
        raise Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {acks} is not 0, 1 or -1")
    ingest = core.ingest
    if ingest.throttle_time_ms:
        raise Refused(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{ingest.unsynced_bytes} bytes wait for the disk, limit {ingest.bound}: "
            f"not appended, try again in {ingest.throttle_time_ms} ms",
        )
    return partition


def _note_refusal(core: Core, name: str, index: int, records: object) -> None:
    if isinstance(records, memoryview) and len(records) >= HEADER_SIZE:
        core.refusals.note(name, index, read_header(records))


def _check_transaction(
    core: Core,
    batch: BatchHeader,
    partition: Partition,
    api_version: int,
    transactional_id: str | None,
    unadded: ErrorCode,
) -> None:
    """A batch of a transaction belongs to one that is open and has this partition."""
    if transactional_id is None or not batch.is_transactional:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            "a transactional batch and a transactional id go together",
        )
    code = core.transactions.check_produce(
        transactional_id, batch, partition.topic, partition.index
    )
    is_passing = code is ErrorCode.CONCURRENT_TRANSACTIONS or (
        code is ErrorCode.INVALID_TXN_STATE and unadded in _PASSING_UNADDED
    )
    if is_passing:
        code = ErrorCode.NOT_ENOUGH_REPLICAS  # clients send it again
    elif code is ErrorCode.INVALID_TXN_STATE and api_version >= _ABORTABLE_SINCE:
        code = ErrorCode.TRANSACTION_ABORTABLE
    if code:
        raise Refused(
            code,
            f"{transactional_id}: producer {batch.producer_id} in epoch {batch.producer_epoch} "
            f"has no transaction open with {partition.topic}-{partition.index}",
        )
    begins = batch.base_sequence == 0 or api_version < _EPOCH_EACH_SINCE
    if not begins and partition.handler.producer(batch.producer_id) is None:
        # What came before it is not here: refused, or in a topic of this name that was deleted.
        raise OutOfOrderSequence(batch.producer_id, batch.base_sequence, 0)


def _check_attributes(
    batch: BatchHeader, partition: Partition, api_version: int, *, is_anew: bool
) -> None:
    if batch.codec is Codec.ZSTD and api_version < ZSTD_SINCE and not is_anew:
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce {ZSTD_SINCE}, this is {api_version}",
        )
    create_time = partition.handler.config.message_timestamp_type is TimestampType.CREATE_TIME
    if batch.is_log_append_time and create_time:
        raise Refused(
            ErrorCode.INVALID_TIMESTAMP, "log append time in a batch for a topic of create time"
        )
