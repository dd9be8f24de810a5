"""The one place where errors of segments/ and of record batches become error codes of the wire.

Every subclass of StorageError and every BatchFault has a row (a test checks both).  A subclass
without a row of its own would get the row of its parent.  StorageError itself is
KAFKA_STORAGE_ERROR, the only code that makes clients retry without blaming the request.  An OSError
that storage passes on (a full disk while a topic is created) gets the same code.
"""

from typing import Final

from segbroker.protocol.batch_layout import BatchFault
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import ProduceResponseRecordError
from segbroker.protocol.record_batch import InvalidBatch
from segbroker.segments import errors as storage

STORAGE_ERRORS: Final[dict[type[Exception], ErrorCode]] = {
    storage.StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    storage.BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    storage.TimestampOutOfBounds: ErrorCode.INVALID_TIMESTAMP,
    storage.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    storage.InvalidConfig: ErrorCode.INVALID_CONFIG,
    storage.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    storage.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    storage.TopicCollides: ErrorCode.INVALID_TOPIC_EXCEPTION,
    storage.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    storage.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    storage.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    storage.TransactionOpen: ErrorCode.INVALID_TXN_STATE,
    storage.PartitionReadOnly: ErrorCode.KAFKA_STORAGE_ERROR,
    # Refused for good until somebody makes room: a retriable code would hide it from the sender
    # until its delivery timeout (decision 0062).
    storage.PartitionFull: ErrorCode.POLICY_VIOLATION,
    # With the places of the records beside it, see record_errors.
    storage.KeylessRecords: ErrorCode.INVALID_RECORD,
    storage.DiskFull: ErrorCode.KAFKA_STORAGE_ERROR,
    # The topic's on.corruption says so: a retry would wait for an operator.
    storage.PartitionDamaged: ErrorCode.POLICY_VIOLATION,
    storage.PartitionRefused: ErrorCode.POLICY_VIOLATION,
    # As Kafka's of a directory that failed: it may be back (a disk that was not mounted).
    storage.PartitionMissing: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.PartitionForeign: ErrorCode.KAFKA_STORAGE_ERROR,
    # A fetch answers with nothing and is asked again; who cannot, retries.
    storage.SegmentReplaced: ErrorCode.KAFKA_STORAGE_ERROR,
    # As Kafka says it: the consumer must hear of it, a retried storage error would hide it.
    storage.CorruptSegment: ErrorCode.CORRUPT_MESSAGE,
    storage.CorruptMetadata: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.DataDirectoryLocked: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.DataDirectoryGone: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.NotADataDirectory: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.UnsupportedFormat: ErrorCode.KAFKA_STORAGE_ERROR,
    # Closed by its owner: the broker is draining, or the topic is going away.
    storage.LogClosed: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    # Of the log as a library; a broker's partitions take batches, not streams.
    storage.LogReserved: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.LogInUse: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.QueueFull: ErrorCode.NOT_ENOUGH_REPLICAS,
    storage.NotWritten: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.StreamFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.StreamTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    storage.StreamCutShort: ErrorCode.INVALID_RECORD,
}

BATCH_FAULTS: Final[dict[BatchFault, ErrorCode]] = {
    BatchFault.TRUNCATED: ErrorCode.INVALID_RECORD,
    BatchFault.CORRUPT: ErrorCode.CORRUPT_MESSAGE,
    BatchFault.UNSUPPORTED_MAGIC: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    BatchFault.MORE_THAN_ONE_BATCH: ErrorCode.INVALID_RECORD,
    BatchFault.UNSUPPORTED_CODEC: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    BatchFault.CONTROL_BATCH: ErrorCode.INVALID_RECORD,
    BatchFault.INVALID_COUNT: ErrorCode.INVALID_RECORD,
    BatchFault.INVALID_PRODUCER: ErrorCode.INVALID_RECORD,
    BatchFault.INVALID_RECORD: ErrorCode.INVALID_RECORD,
    BatchFault.WRONG_MAX_TIMESTAMP: ErrorCode.INVALID_TIMESTAMP,
    BatchFault.INVALID_COMPRESSION: ErrorCode.INVALID_RECORD,
    BatchFault.TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
}


# What a call into segments/ may raise that is not a bug.
STORAGE_FAILURES: Final = (storage.StorageError, OSError)


RECORD_ERRORS_MAX: Final = 1_000
"""Records of a refused batch that are named one by one."""


def record_errors(error: Exception) -> list[ProduceResponseRecordError]:
    """Which records of a batch were refused, where it was for single ones."""
    if isinstance(error, storage.KeylessRecords):
        message = "a compacted topic takes no record without a key"
    elif isinstance(error, storage.TimestampOutOfBounds):
        message = f"the timestamp is beyond {error.setting}={error.limit_ms}"
    else:
        return []
    return [
        ProduceResponseRecordError(batch_index=index, batch_index_error_message=message)
        for index in error.indexes[:RECORD_ERRORS_MAX]
    ]


def wire_error(error: Exception) -> tuple[ErrorCode, str]:
    """The code and the sentence for a client.

    Raises:
        Exception: `error` itself, when it is none that is expected: a bug, for the connection's
            own handler to log.
    """
    if isinstance(error, InvalidBatch):
        return BATCH_FAULTS[error.fault], str(error)
    if isinstance(error, OSError):
        return ErrorCode.KAFKA_STORAGE_ERROR, str(error)
    for cls in type(error).__mro__:
        if (code := STORAGE_ERRORS.get(cls)) is not None:
            return code, str(error)
    raise error
