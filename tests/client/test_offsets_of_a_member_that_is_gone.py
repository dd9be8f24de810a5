"""Offsets in a transaction by a member that has lost its partitions meanwhile: they are refused.

Also with nothing in hand of the records that they are of: another member may have worked at these.
With something in hand: test_transactions.  A broker takes offsets of whoever names no member.
"""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from segbroker.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    GroupMetadata,
    Producer,
    UnknownMemberId,
)
from segbroker.client.classic_membership import ClassicMembership
from segbroker.client.engine import Ask, Call
from segbroker.client.group_reading import GroupReading
from segbroker.protocol.messages_groups import LeaveGroupRequest, LeaveGroupRequestMember

from ..support.daemon import Daemon
from ..support.waiting import until
from .test_away import OTHER, is_empty

MEMBER: Any = {**OTHER, "auto_commit": False}
LIMITED: Any = {**MEMBER, "max_poll_interval_ms": 1_000}


@pytest.fixture
def filled(daemon: Daemon, topic: str) -> str:
    """A topic of one partition with one record."""
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(daemon.address) as producer:
        producer.send(topic, b"x", partition=0)
    return topic


def stands(address: str, group: str) -> dict[tuple[str, int], int]:
    with Admin(address) as admin:
        return {tp: at.offset for tp, at in admin.committed(group).items()}


def throw_out(address: str, group: str, member_id: str) -> None:
    members = [LeaveGroupRequestMember(member_id=member_id)]

    def asked() -> Call[None]:
        reply = yield Ask(LeaveGroupRequest(group_id=group, members=members))
        assert not reply.error_code
        assert not reply.members[0].error_code

    with Admin(address) as admin:
        admin._driver.call(asked())


@pytest.mark.parametrize("is_back", [False, True], ids=["out", "told so"])
def test_a_member_that_was_away_for_too_long_is_nobody_whose_word_is_taken(
    daemon: Daemon, filled: str, is_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(consumer: Consumer, producer: Producer) -> None:
        with producer.transaction():
            until(lambda: len(consumer.poll(timeout_ms=100)) == 1)
            assert consumer.poll(timeout_ms=0) == []
            until(lambda: is_empty(daemon.address, filled))
            if is_back:
                # It has not joined again by the end of the call.
                monkeypatch.setattr(ClassicMembership, "enter", lambda *_, **__: None)
                assert consumer.poll(timeout_ms=0) == []
            producer.send_offsets({(filled, 0): 1}, consumer.group_metadata)

    with (
        Consumer(daemon.address, filled, group=filled, **LIMITED) as consumer,
        Producer(daemon.address, transactional_id=filled) as producer,
    ):
        with pytest.raises(UnknownMemberId):
            work(consumer, producer)
        assert stands(daemon.address, filled) == {}


def test_a_member_that_lost_all_and_has_it_again_does_not_commit_what_it_was_handed_before(
    daemon: Daemon, filled: str
) -> None:
    def work(consumer: Consumer, producer: Producer) -> None:
        membership = consumer._reading.group.membership
        with producer.transaction():
            until(lambda: len(consumer.poll(timeout_ms=100)) == 1)
            assert consumer.poll(timeout_ms=0) == []
            had = membership.member_id
            throw_out(daemon.address, filled, had)
            until(lambda: membership.member_id not in ("", had) and bool(consumer.assignment))
            producer.send_offsets({(filled, 0): 1}, consumer.group_metadata)

    with (
        Consumer(daemon.address, filled, group=filled, **MEMBER) as consumer,
        Producer(daemon.address, transactional_id=filled) as producer,
    ):
        with pytest.raises(UnknownMemberId):
            work(consumer, producer)
        assert stands(daemon.address, filled) == {}
        # The next transaction is the present member's.
        with producer.transaction():
            until(lambda: len(consumer.poll(timeout_ms=100)) == 1)
            producer.send_offsets({(filled, 0): 1}, consumer.group_metadata)
        assert stands(daemon.address, filled) == {(filled, 0): 1}


def test_who_asks_in_the_middle_of_the_loss_is_nobody_else(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's own thread has left the group, and not dropped what it had there."""
    named: list[GroupMetadata] = []
    lost = GroupReading.lost

    def lose(reading: GroupReading, now_ms: int) -> None:
        named.append(reading.committing.of_in_hand)
        named.append(reading.committing.of_all)
        lost(reading, now_ms)

    monkeypatch.setattr(GroupReading, "lost", lose)
    with Consumer(daemon.address, filled, group=filled, **MEMBER) as consumer:
        until(lambda: len(consumer.poll(timeout_ms=100)) == 1)
        had = consumer.group_metadata
        throw_out(daemon.address, filled, had.member_id)
        until(lambda: len(named) == 2)
    assert named == [had, had]


def test_an_async_member_that_was_away_for_too_long_is_nobody_whose_word_is_taken(
    daemon: Daemon, filled: str, run: Callable[..., object]
) -> None:
    async def work(consumer: AsyncConsumer, producer: AsyncProducer) -> None:
        async with producer.transaction():
            assert len(await consumer.poll(timeout_ms=60_000)) == 1
            assert await consumer.poll(timeout_ms=0) == []
            await anyio.to_thread.run_sync(until, lambda: is_empty(daemon.address, filled))
            await producer.send_offsets({(filled, 0): 1}, consumer.group_metadata)

    async def main() -> None:
        async with (
            AsyncConsumer(daemon.address, filled, group=filled, **LIMITED) as consumer,
            AsyncProducer(daemon.address, transactional_id=filled) as producer,
        ):
            with pytest.raises(UnknownMemberId):
                await work(consumer, producer)

    run(main)
    assert stands(daemon.address, filled) == {}
