"""Rights to produce and to transactions: what comes and goes, what is told of what is refused."""

from typing import Any, cast

import pytest

from segbroker.broker.access import authorizer as authorizer_module
from segbroker.broker.recording import recorded
from segbroker.broker.server import Broker
from segbroker.protocol import messages_admin as admin
from segbroker.protocol import messages_transactions as transactions
from segbroker.protocol.acls import PatternType, Permission
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.metadata.acls import Acl

from ..support.wire_client import WireClient
from ..support.wire_transactions import Tx
from .authorization_case import (
    ALTER,
    C31,
    CREATE,
    DESCRIBE,
    OF_CLUSTER,
    READ,
    T29,
    TOPIC,
    TXN,
    WRITE,
    X53,
    codes,
)
from .conftest import Events
from .guarded import ALICE, BOB, allow, connect_from, filled, guarded, rule


async def take_away(broker: Broker, gone: Acl) -> None:
    """As a super user would."""
    authorizer = broker.core.authorizer
    assert authorizer is not None
    assert await recorded(lambda done: authorizer.delete([gone], done)) is None


async def producer_id_code(client: WireClient, name: str | None = None) -> int:
    request = transactions.InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=60_000
    )
    reply = await client.ask(request, transactions.InitProducerIdResponse, 2)
    assert not reply.error_code or (reply.producer_id, reply.producer_epoch) == (-1, -1)
    return reply.error_code


async def test_a_right_to_some_topic_goes_as_it_came() -> None:
    right = rule(WRITE, TOPIC, "t", pattern=PatternType.PREFIXED)
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        for _ in range(2):
            assert await producer_id_code(alice) == C31
            await allow(broker, right)
            assert await producer_id_code(alice) == 0
            await take_away(broker, right)


async def test_a_super_user_produces_whatever_is_denied_to_everybody() -> None:
    nobody = rule(WRITE, TOPIC, "*", host="*", principal="User:*", permission=Permission.DENY)
    async with (
        guarded(super_users="User:ANONYMOUS") as broker,
        connect_from(ALICE, broker) as alice,
    ):
        await allow(broker, nobody)
        assert await producer_id_code(alice) == 0
        await filled(broker)
        assert (await alice.produce("t", b"x")).error_code == 0


async def test_decisions_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those about some topic are one for each address."""
    monkeypatch.setattr(authorizer_module, "DECISIONS_MAX", 10)
    async with guarded() as broker:
        access = broker.core.authorizer
        assert access is not None
        for number in range(2, 27):
            async with connect_from(f"127.0.0.{number}", broker) as client:
                assert await producer_id_code(client) == C31
                assert (await client.fetch(f"t{number}", 0)).error_code == T29
        assert 0 < len(access._cache) <= 10
        assert 0 < len(access._some_topic) <= 10


async def test_beside_a_refused_topic_the_others_take_no_part() -> None:
    rows = [
        transactions.AddPartitionsToTxnRequestTopic(name=name, partitions=some)
        for name, some in (("t", [0, 0, 1]), ("u", [0, 0]), ("none", [0]))
    ]
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        topics = broker.core.topics
        for name in ("t", "u"):
            await topics.create(name, 1, topics.topic_config({}))
        # To read it is not enough, nor to describe it.
        await allow(broker, rule(WRITE, TXN, "x"), rule(WRITE, TOPIC, "t"), rule(READ, TOPIC, "u"))
        await allow(broker, rule(WRITE, TOPIC, "none"))
        producer = Tx(alice, "x")
        assert await producer.init() == 0
        request = transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=rows,
        )
        reply = await alice.ask(request, transactions.AddPartitionsToTxnResponse, 3)
        found = {
            row.name: [(one.partition_index, one.partition_error_code) for one in some]
            for row in reply.results_by_topic_v3_and_below
            for some in (row.results_by_partition,)
        }
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found == {
            "t": [(0, ErrorCode.OPERATION_NOT_ATTEMPTED), (1, missing)],
            "u": [(0, T29)],
            "none": [(0, missing)],
        }
        known = broker.core.transactions.table.get("x")
        assert known is not None
        assert not known.partitions


async def test_of_transactions_is_told_what_may_be_described(events: Events) -> None:
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        topics = broker.core.topics
        for name in ("t", "u"):
            await topics.create(name, 1, topics.topic_config({}))
        await allow(broker, *(rule(WRITE, kind, "*") for kind in (TOPIC, TXN)))
        for name in ("x", "y"):
            producer = Tx(alice, name)
            assert await producer.init() == 0
            for topic in ("t", "u"):
                assert await producer.add(topic, 0) == [0]
        seen = (rule(DESCRIBE, TXN, "x", host=BOB), rule(DESCRIBE, TOPIC, "t", host=BOB))
        await allow(broker, *seen)
        async with connect_from(BOB, broker) as bob:
            listed = await bob.ask(
                transactions.ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
                transactions.ListTransactionsResponse,
                0,
            )
            assert [row.transactional_id for row in listed.transaction_states] == ["x"]
            assert not events.named("access_denied"), "nothing was asked for that is refused"
            request = transactions.DescribeTransactionsRequest(transactional_ids=["x", "y"])
            told = await bob.ask(request, transactions.DescribeTransactionsResponse, 0)
        mine, other = told.transaction_states
        assert (mine.transactional_id, mine.error_code) == ("x", 0)
        assert [one.topic for one in mine.topics] == ["t"]
        found = (other.transactional_id, other.error_code, other.producer_id, other.producer_epoch)
        assert found == ("y", X53, -1, -1)
        assert (other.transaction_state, other.topics) == ("", [])


@pytest.mark.parametrize("key", [VendorKey.COMMIT_BATCH, VendorKey.FORGET_TRANSACTIONS])
async def test_a_query_is_its_own_beside_the_transactions_of_a_batch(key: VendorKey) -> None:
    rows = [{"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}]
    body = {"query": "q", "batch": 1, "transactions": rows, "transactional_ids": ["x"]}
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await allow(broker, rule(DESCRIBE, TXN, "*"))  # which is not enough
        for name in ("x", "q"):
            reply = cast(Any, await alice.ask_vendor(key, dict(body)))
            assert reply["error"]["code"] == X53
            await allow(broker, rule(WRITE, TXN, name))
        reply = cast(Any, await alice.ask_vendor(key, dict(body)))
        assert reply.get("error", {}).get("code") != X53


async def test_who_may_not_describe_the_cluster_is_told_no_rights_to_it() -> None:
    """As by Kafka, also where there are some."""
    request = admin.DescribeClusterRequest(include_cluster_authorized_operations=True)
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        for right, bits in ((CREATE, 0), (ALTER, 1 << CREATE | 1 << ALTER | 1 << DESCRIBE)):
            await allow(broker, rule(right, *OF_CLUSTER))
            reply = await alice.ask(request, admin.DescribeClusterResponse, 0)
            assert codes(reply) == {0}
            assert reply.cluster_authorized_operations == bits
