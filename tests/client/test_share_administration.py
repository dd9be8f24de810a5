"""Share groups as an admin client sees them: described, listed, put elsewhere, forgotten."""

from collections.abc import Callable

import pytest

from segbroker.client import Admin, AsyncAdmin, Producer, ShareOffset, TopicPartition
from segbroker.client.errors import GroupIdNotFound, NonEmptyGroup, UnknownTopicOrPartition

from ..support import share_members
from ..support.daemon import Daemon


@pytest.fixture
def filled(daemon: Daemon, topic: str) -> str:
    """A topic of two partitions with ten records in the first."""
    with Admin(daemon.address) as admin, Producer(daemon.address) as producer:
        admin.create_topic(topic, partitions=2)
        for n in range(10):
            producer.send(topic, b"%d" % n, partition=0)
    return topic


def offsets_of(admin: Admin, group: str) -> dict[TopicPartition, tuple[int, int | None]]:
    return {tp: (at.offset, at.lag) for tp, at in admin.share_offsets(group).items()}


def test_a_share_group_is_put_somewhere_described_and_forgets(daemon: Daemon, filled: str) -> None:
    first, second = TopicPartition(filled, 0), TopicPartition(filled, 1)
    with Admin(daemon.address) as admin:
        assert admin.share_offsets(filled) == {}
        assert admin.describe_group(filled).state == "Dead"
        admin.alter_share_offsets(filled, {first: 4, (filled, 1): 0})
        assert offsets_of(admin, filled) == {first: (4, 6), second: (0, 0)}
        described = admin.describe_group(filled)
        assert (described.state, described.group_type) == ("Empty", "share")
        assert (described.protocol_type, described.members) == ("share", ())
        (row,) = [row for row in admin.list_groups() if row.group_id == filled]
        assert (row.state, row.group_type, row.protocol_type) == ("Empty", "share", "share")
        assert admin.committed(filled) == {}
        admin.delete_share_offsets(filled, filled)
        assert admin.share_offsets(filled) == {}


def test_the_members_of_a_share_group_may_read_one_partition(daemon: Daemon, filled: str) -> None:
    members = share_members.join(daemon.address, filled, filled, count=3)
    with Admin(daemon.address) as admin:
        described = admin.describe_group(filled)
        assert (described.state, described.protocol) == ("Stable", "simple")
        assert {member.member_id for member in described.members} == set(members)
        read = [tp for member in described.members for tp in member.partitions]
        assert len(read) >= 3
        assert set(read) == {TopicPartition(filled, 0), TopicPartition(filled, 1)}
        with pytest.raises(NonEmptyGroup):
            admin.alter_share_offsets(filled, {(filled, 0): 0})
        with pytest.raises(NonEmptyGroup):
            admin.delete_share_offsets(filled, filled)
        with pytest.raises(NonEmptyGroup):
            admin.delete_group(filled)
        share_members.leave(daemon.address, filled, members)
        admin.alter_share_offsets(filled, {(filled, 0): 0})
        admin.delete_group(filled)
        assert admin.describe_group(filled).state == "Dead"
        assert admin.share_offsets(filled) == {}


def test_what_cannot_be_is_said(daemon: Daemon, filled: str) -> None:
    other = f"{filled}-consumers"
    with Admin(daemon.address) as admin:
        admin.commit(other, {(filled, 0): 1})
        with pytest.raises(GroupIdNotFound, match="not a share group"):
            admin.alter_share_offsets(other, {(filled, 0): 0})
        with pytest.raises(GroupIdNotFound):
            admin.delete_share_offsets(other, filled)
        with pytest.raises(UnknownTopicOrPartition, match=f"{filled}-7"):
            admin.alter_share_offsets(filled, {(filled, 7): 0})
        with pytest.raises(ValueError, match="below 0"):
            admin.alter_share_offsets(filled, {(filled, 0): -1})
        admin.alter_share_offsets(filled, {(filled, 0): 0})
        with pytest.raises(UnknownTopicOrPartition, match="absent"):
            admin.delete_share_offsets(filled, "absent")


def test_the_same_asynchronously(run: Callable[..., object], daemon: Daemon, filled: str) -> None:
    async def main() -> None:
        async with AsyncAdmin(daemon.address) as admin:
            await admin.alter_share_offsets(filled, {(filled, 0): 9})
            at = (await admin.share_offsets(filled))[TopicPartition(filled, 0)]
            assert isinstance(at, ShareOffset)
            assert (at.offset, at.lag) == (9, 1)
            await admin.delete_share_offsets(filled, filled)
            assert await admin.share_offsets(filled) == {}

    run(main)
