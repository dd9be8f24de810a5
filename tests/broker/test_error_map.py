"""Every error that storage or a batch can raise has a code on the wire."""

from collections.abc import Iterator

import pytest

from segbroker.broker.error_map import BATCH_FAULTS, STORAGE_ERRORS, wire_error
from segbroker.protocol.batch_layout import BatchFault
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.record_batch import InvalidBatch
from segbroker.segments.errors import OffsetOutOfRange, PartitionReadOnly, StorageError


def subclasses(cls: type[Exception]) -> Iterator[type[Exception]]:
    yield cls
    for below in cls.__subclasses__():
        yield from subclasses(below)


def test_every_storage_error_has_a_row() -> None:
    assert set(STORAGE_ERRORS) == set(subclasses(StorageError))


def test_every_batch_fault_has_a_row() -> None:
    assert set(BATCH_FAULTS) == set(BatchFault) - {BatchFault.NONE}


def test_no_error_is_told_as_a_success() -> None:
    codes = [*STORAGE_ERRORS.values(), *BATCH_FAULTS.values()]
    assert ErrorCode.NONE not in codes


def test_the_sentence_comes_along() -> None:
    code, message = wire_error(OffsetOutOfRange(7, 10, 42))
    assert code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert message == "offset 7 outside [10, 42)"


def test_a_batch_fault_is_told_by_its_fault() -> None:
    code, _ = wire_error(InvalidBatch(BatchFault.UNSUPPORTED_MAGIC, "magic 1"))
    assert code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_a_failed_disk_is_retryable_for_the_client() -> None:
    code, _ = wire_error(PartitionReadOnly("t", 0, OSError("EIO")))
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert code.retryable


def test_a_bug_is_not_translated() -> None:
    with pytest.raises(KeyError):
        wire_error(KeyError("a bug"))
