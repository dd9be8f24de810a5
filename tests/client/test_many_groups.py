"""Many groups asked about together: the same answers as one by one, by a few requests."""

from collections.abc import Iterator

import anyio
import pytest
import trio

from segbroker.client import Admin, AsyncAdmin, Consumer, Producer, many_groups
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

from ..support import share_members
from ..support.daemon import Daemon
from ..support.waiting import until
from ..support.wire_client import connect
from ..support.wire_streams import beat, joining, subtopology

COUNT = 230


@pytest.fixture
def names(daemon: Daemon, topic: str) -> Iterator[list[str]]:
    """Groups of every kind with a member, many without, and one that is not there."""

    async def join() -> None:
        async with connect(daemon.host_and_port) as client:
            streams = joining("m", subtopology("0", topic), group_id=f"{topic}-streams")
            assert (await beat(client, streams)).error_code == 0
            request = ConsumerGroupHeartbeatRequest(
                group_id=f"{topic}-consumer",
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[topic],
                topic_partitions=[],
            )
            assert (await client.ask(request, ConsumerGroupHeartbeatResponse, 1)).error_code == 0

    kinds = [f"{topic}-{kind}" for kind in ("classic", "consumer", "share", "streams")]
    empty = [f"{topic}-{n}" for n in range(COUNT)]
    with (
        Admin(daemon.address) as admin,
        Producer(daemon.address) as producer,
    ):
        admin.create_topic(topic, partitions=2)
        for n in range(20):
            producer.send(topic, b"v", partition=n % 2)
        producer.flush()
        for n, name in enumerate(empty):
            admin.commit(name, {(topic, n % 2): n % 10})
        members = share_members.join(daemon.address, kinds[2], topic, count=2)
        # A delay that is over between two questions makes two answers.
        admin.alter_group_config(kinds[3], {"streams.initial.rebalance.delay.ms": 0})
        trio.run(join)
        until(lambda: admin.describe_group(kinds[3]).state != "Assigning")
        with Consumer(daemon.address, topic, group=kinds[0], start="start") as consumer:
            next(iter(consumer))
            consumer.commit()
            yield [*kinds, *empty, f"{topic}-none"]
        share_members.leave(daemon.address, kinds[2], members)


def requests_of(admin: Admin) -> int:
    count = admin.broker_status()["counters"]["requests"]
    assert isinstance(count, int)
    return count


def test_groups_are_the_same_asked_about_together(daemon: Daemon, names: list[str]) -> None:
    with Admin(daemon.address) as admin:
        before = requests_of(admin)
        described = admin.describe_groups(names)
        committed = admin.committed_of(names)
        shares = admin.share_offsets_of(names)
        assert requests_of(admin) - before < COUNT
        assert list(described) == list(committed) == list(shares) == names
        for name in names:
            assert described[name] == admin.describe_group(name)
            assert committed[name] == admin.committed(name)
            assert shares[name] == admin.share_offsets(name)
        kinds = {one.group_type for one in described.values() if one.members}
        assert kinds == {"classic", "consumer", "share", "streams"}
        assert described[names[-1]].state == "Dead"
        assert sum(map(len, committed.values())) > COUNT

    async def asked_by_a_coroutine() -> None:
        async with AsyncAdmin(daemon.address) as admin:
            assert await admin.describe_groups(names) == described
            assert await admin.committed_of(names) == committed
            assert await admin.share_offsets_of(names) == shares

    anyio.run(asked_by_a_coroutine, backend="trio")


def test_of_a_broker_that_answers_about_one_group_only_each_is_asked_about_alone(
    daemon: Daemon, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [*names[:6], names[-1]]
    with Admin(daemon.address) as admin:
        together = admin.describe_groups(few), admin.committed_of(few), admin.share_offsets_of(few)

        def no_answer(to: object, request: object) -> Iterator[None]:
            return
            yield

        monkeypatch.setattr(many_groups, "_maybe", no_answer)
        assert admin.describe_groups(few) == together[0]
        assert admin.committed_of(few) == together[1]
        assert admin.share_offsets_of(few) == together[2]
