"""Commits of KIP-848 members whose epoch rose while they were under way, on the wire.

A member learns of its epoch from a heartbeat, and commits beside it.  What it has not let go of in
between nobody else has read: that commit stands (KIP-1251).
"""

from collections.abc import Sequence

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from segbroker.protocol.messages_transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from segbroker.segments.memory import MemoryStorage

from ..support.wire_transactions import V2, Tx
from .obedient_members import Member, settled
from .test_group_restarts import broker_on, killed

STALE = ErrorCode.STALE_MEMBER_EPOCH
EVERY = (0, 1, 2, 3)


async def committed(member: Member, epoch: int, version: int = 9) -> list[int]:
    """The codes of a commit of all partitions of "t"."""
    rows = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=7, committed_metadata=None
        )
        for index in EVERY
    ]
    request = OffsetCommitRequest(
        group_id="g",
        member_id=member.name,
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name="t", partitions=rows)],
    )
    reply = await member.client.ask(request, OffsetCommitResponse, version)
    return [row.error_code for row in reply.topics[0].partitions]


async def staged(member: Member, epoch: int, tx: Tx) -> list[int]:
    """The codes of a commit of all partitions of "t" in a transaction."""
    rows = [
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=8, committed_metadata=None
        )
        for index in EVERY
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=tx.name,
        group_id="g",
        producer_id=tx.producer_id,
        producer_epoch=tx.epoch,
        generation_id=epoch,
        member_id=member.name,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=rows)],
    )
    reply = await member.client.ask(request, TxnOffsetCommitResponse, 5)
    return [row.error_code for row in reply.topics[0].partitions]


def codes(taken: Sequence[int], otherwise: ErrorCode) -> list[int]:
    return [0 if index in taken else otherwise for index in EVERY]


def reads(member: Member) -> list[int]:
    (indexes,) = member.reads.values()
    return indexes


async def test_the_partitions_that_a_member_kept_are_committed_at_its_epoch_of_before() -> None:
    async with broker_on(MemoryStorage(), 2) as (_, clients):
        await clients[0].create("t", partitions=4)
        one, two = Member(clients[0], "one"), Member(clients[1], "two")
        await one.join()
        alone = one.epoch
        await two.join()
        assert await committed(one, alone) == codes(EVERY, STALE), "it has let go of nothing yet"
        await settled(one, two)
        assert one.epoch > alone
        assert len(reads(one)) == 2
        assert await committed(one, alone) == codes(reads(one), STALE)
        assert await committed(one, one.epoch + 1) == codes((), STALE)
        assert await committed(two, alone) == codes((), STALE), "it was not there"
        assert await committed(one, alone, version=8) == codes((), STALE)


async def test_so_are_those_of_a_transaction() -> None:
    async with broker_on(MemoryStorage(), 2) as (_, clients):
        await clients[0].create("t", partitions=4)
        one, two = Member(clients[0], "one"), Member(clients[1], "two")
        await one.join()
        alone = one.epoch
        await two.join()
        await settled(one, two)
        tx = Tx(clients[0], "tx", V2)
        await tx.init()
        refused = ErrorCode.ILLEGAL_GENERATION
        assert await staged(one, alone, tx) == codes(reads(one), refused)
        assert await staged(two, alone, tx) == codes((), refused)
        assert await tx.end(commit=True) == 0


async def test_after_a_restart_from_the_epoch_on_that_it_had_then() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t", partitions=4)
        one, two = Member(clients[0], "one"), Member(clients[1], "two")
        await one.join()
        alone = one.epoch
        await two.join()
        await settled(one, two)
        before = one.epoch
        image = killed(disk)
    async with broker_on(image, 2) as (_, clients):
        one.client, two.client = clients
        assert await committed(one, alone) == codes((), STALE), "since when it had them is not kept"
        kept = reads(one)
        assert await two.leave() == 0
        await settled(one)
        assert one.epoch > before
        assert await committed(one, before) == codes(kept, STALE)
        assert await committed(one, one.epoch) == codes(EVERY, STALE)
