"""Commits of KIP-848 members whose epoch rose while they were under way, on the wire.

A member learns of its epoch from a heartbeat, and commits beside it.  What it has not let go of in
between nobody else has read: that commit stands (KIP-1251).
"""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

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
from segbroker.segments.disk.memory import MemoryStorage

from ..support.daemon import start
from ..support.wire_client import connect
from ..support.wire_transactions import V2, Tx
from .obedient_members import Member, settled
from .restarts import broker_on, cut_off, killed

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
        older = codes((), ErrorCode.UNSUPPORTED_VERSION)
        assert await committed(one, alone, version=8) == older, "whatever the epoch is"


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


@pytest.mark.parametrize("ended", [killed, cut_off])
async def test_after_its_broker_died_a_member_may_be_late_as_before(
    ended: Callable[[MemoryStorage], MemoryStorage],
) -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t", partitions=4)
        one, two = Member(clients[0], "one"), Member(clients[1], "two")
        await one.join()
        alone = one.epoch
        await two.join()
        await settled(one, two)
        before = one.epoch
        image = ended(disk)
    for _ in range(2):  # and after it died once more
        async with broker_on(image, 2) as (_, clients):
            one.client, two.client = clients
            assert await committed(one, alone) == codes(reads(one), STALE)
            assert await committed(two, alone) == codes((), STALE), "it was not there"
            image = ended(image)
    async with broker_on(image, 2) as (_, clients):
        one.client, two.client = clients
        kept = reads(one)
        assert await two.leave() == 0
        await settled(one)
        assert one.epoch > before
        for earlier in (alone, before):
            assert await committed(one, earlier) == codes(kept, STALE), "the others are two's"
        assert await committed(one, one.epoch) == codes(EVERY, STALE)
        image = ended(image)
    async with broker_on(image) as (_, (client,)):
        one.client = client
        for earlier in (alone, before):
            assert await committed(one, earlier) == codes(kept, STALE), "some longer than others"


async def test_what_is_being_let_go_of_is_committed_late_after_its_broker_died() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t", partitions=4)
        one, two = Member(clients[0], "one"), Member(clients[1], "two")
        await one.join()
        await two.join()
        await settled(one, two)
        await two.leave()
        await settled(one)
        again, late = Member(clients[1], "two"), one.epoch
        await again.join()
        assert (await one.beat()).assignment is not None, "it is told to let go of two"
        wanted = await committed(one, late - 1)
        assert 0 in wanted, "of what it has had longer"
        assert STALE in wanted, "not of what it was given since"
        image = killed(disk)
    async with broker_on(image) as (_, (client,)):
        one.client = client
        assert await committed(one, late) == codes(EVERY, STALE)
        assert await committed(one, late - 1) == wanted


async def test_a_daemon_that_was_killed_takes_a_commit_that_its_epoch_overtook(
    tmp_path: Path,
) -> None:
    daemon = start(tmp_path / "data")
    async with connect(daemon.host_and_port) as client:
        await client.create("t", partitions=4)
        one, two = Member(client, "one"), Member(client, "two")
        await one.join()
        alone = one.epoch
        await two.join()
        await settled(one, two)
        assert one.epoch > alone
    daemon.stop(signal.SIGKILL)
    daemon.again()
    async with connect(daemon.host_and_port) as client:
        one.client = two.client = client
        assert await committed(one, alone) == codes(reads(one), STALE)
        assert await committed(two, alone) == codes((), STALE)
    daemon.stop()
