"""What a coordinator answers to a writer's requests: not yet, never, or what it did before."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from segbroker.client.spoken import Request, VendorRequest
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from segbroker.protocol.messages_transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from segbroker.protocol.schema import Message
from segbroker.protocol.vendor import VendorKey
from segbroker.spark.errors import SourceUnavailable
from segbroker.spark.link import Link
from segbroker.spark.transactions import WHY_OVER

from .test_sink import schema, source, table, task, values
from .topics import Topics

BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
NOT_YET: dict[type[Message], Callable[[], Message]] = {
    FindCoordinatorRequest: lambda: FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponseCoordinator(
                key="",
                node_id=-1,
                host="",
                port=-1,
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                error_message=None,
            )
        ]
    ),
    InitProducerIdRequest: lambda: InitProducerIdResponse(
        error_code=BUSY, producer_id=-1, producer_epoch=-1
    ),
    AddPartitionsToTxnRequest: lambda: AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnResponseTopic(
                name="t",
                results_by_partition=[
                    AddPartitionsToTxnResponsePartition(
                        partition_index=0, partition_error_code=BUSY
                    )
                ],
            )
        ]
    ),
    EndTxnRequest: lambda: EndTxnResponse(error_code=BUSY),
}


@pytest.mark.usefixtures("segbroker_only")
@pytest.mark.parametrize("late", NOT_YET, ids=lambda late: late.__name__)
def test_what_a_coordinator_cannot_do_yet_is_asked_again(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch, late: type[Message]
) -> None:
    """As while it is moved, or as the markers of the transaction before are still written."""
    ask, refused = Link.ask, 0

    def asked(link: Link, message: Request, expected: type[Any]) -> Any:  # noqa: ANN401
        nonlocal refused
        if isinstance(message, late) and not refused:
            refused += 1
            return NOT_YET[late]()
        return ask(link, message, expected)

    monkeypatch.setattr(Link, "ask", asked)
    options = {"topic": topic, "transactionalId": topic, "batchId": "1"}
    writer = source(topics, **options).writer(schema("value"), overwrite=False)
    with task(0, 0):
        writer.abort([writer.write(iter([table(value=["given up"])]))])
    assert refused == 1
    with task(0, 1):
        writer.commit([writer.write(iter([table(value=["kept"])]))])
    assert values(topics.read(topic, 1)) == [b"kept"]


@pytest.mark.usefixtures("segbroker_only")
def test_a_timeout_that_the_broker_does_not_take_is_told(topics: Topics, topic: str) -> None:
    options = {"topic": topic, "kafka.transaction.timeout.ms": "2147483647"}
    writer = source(topics, **options).writer(schema("value"), overwrite=False)
    with pytest.raises(SourceUnavailable, match=r"^asking for a producer id: .* timeout is larger"):
        writer.write(iter([table(value=["x"])]))


@pytest.mark.usefixtures("segbroker_only")
def test_a_commit_that_is_refused_for_another_reason_is_not_told_as_a_transaction_that_is_over(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Link.ask_vendor

    def asked(link: Link, request: VendorRequest) -> Mapping[str, Any]:
        if request.message_key is VendorKey.COMMIT_BATCH:
            return {"error": {"code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "detail": "not you"}}
        return ask(link, request)

    writer = source(topics, topic=topic).writer(schema("value"), overwrite=False)
    written = [writer.write(iter([table(value=["x"])]))]
    with monkeypatch.context() as patch:
        patch.setattr(Link, "ask_vendor", asked)
        with pytest.raises(SourceUnavailable, match="not you") as told:
            writer.commit(written)
    assert WHY_OVER not in str(told.value)
    writer.abort(written)
