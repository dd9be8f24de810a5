"""What clients make up is part of every snapshot of the metadata, and that is bounded."""

import pytest

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import OffsetCommitResponse
from segbroker.protocol.messages_transactions import InitProducerIdRequest, InitProducerIdResponse
from segbroker.segments.metadata import metadata

from ..support.wire_client import connect
from ..support.wire_groups import commit_of
from ..support.wire_transactions import Tx
from .conftest import serving


async def test_where_the_metadata_is_full_groups_go_on_and_no_new_names_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = ErrorCode.POLICY_VIOLATION
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)

        async def commit(group: str, partition: int, text: str = "m") -> int:
            request = commit_of(partition, metadata=text)
            request.group_id = group
            reply = await client.ask(request, OffsetCommitResponse, 8)
            return reply.topics[0].partitions[0].error_code

        async def begin(name: str) -> int:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            return (await client.ask(request, InitProducerIdResponse, 2)).error_code

        assert await commit("g", 0) == 0
        assert await begin("known") == 0
        # As the newest snapshot says: a broker saves one every minute.
        broker.core.topics.manager.keep_house_now(broker.core.now_ms() + 120_000)
        monkeypatch.setattr(metadata, "SNAPSHOT_SIZE_FULL", 1)
        assert await commit("g", 0) == 0
        assert await commit("g", 0, "longer") == refused
        assert await commit("g", 1) == refused
        assert await commit("g", 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit("other", 0) == refused
        assert await begin("new") == refused
        assert await begin("known") == 0
        transaction = Tx(client, "known")
        assert await transaction.init() == 0
        assert await transaction.stage("g", "t", 5) == 0
        assert await transaction.stage("other", "t", 5) == refused
        assert await transaction.end(commit=True) == 0
        monkeypatch.undo()
        assert await commit("other", 0) == 0
        assert await begin("new") == 0
