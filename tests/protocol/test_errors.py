from typing import Any

import pytest
from kafka import errors as theirs_untyped

from segbroker.protocol.errors import ErrorCode, ProtocolError, RemoteProtocolError

theirs: Any = theirs_untyped

# Where kafka-python keeps older names.
RENAMED = {
    "NO_ERROR": "NONE",
    "UNKNOWN": "UNKNOWN_SERVER_ERROR",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
    "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
}


def test_every_code_has_the_number_that_kafka_python_gives_its_name() -> None:
    classes: list[Any] = list(vars(theirs).values())
    by_number = {
        cls.errno: cls.message for cls in classes if getattr(cls, "errno", None) is not None
    }
    common = by_number.keys() & {int(row) for row in ErrorCode}
    assert len(common) > 80
    for number in common:
        name = by_number[number]
        assert ErrorCode(number).name == RENAMED.get(name, name)


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        (ErrorCode.NONE, False),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (ErrorCode.CORRUPT_MESSAGE, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
        (ErrorCode.CONCURRENT_TRANSACTIONS, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, True),
    ],
)
def test_a_code_says_whether_trying_again_may_help(code: ErrorCode, retryable: bool) -> None:
    assert code.retryable is retryable


def test_a_code_says_what_it_means() -> None:
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode(3).description == "There is no such topic or partition here"


def test_a_code_that_is_newer_than_the_table_is_an_unknown_error() -> None:
    assert ErrorCode.of(99) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(1000) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(36) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_the_peers_fault_is_a_protocol_error() -> None:
    assert issubclass(RemoteProtocolError, ProtocolError)
