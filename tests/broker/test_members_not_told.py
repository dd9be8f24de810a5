"""Members of KIP-848 groups that the broker could not tell what they are to let go of.

Their time to do so begins when they are told, and they are told as soon as they can be.
"""

import errno
from functools import partial

import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.groups import classic_members
from segbroker.broker.groups.consumer_members import Beat
from segbroker.broker.groups.group_members import Joining
from segbroker.broker.loop.loop_clock import monotonic_ms
from segbroker.protocol.consumer_protocol import Subscription, encode_subscription
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import ConsumerGroupHeartbeatRequest

from ..support.gated_storage import GatedStorage
from ..support.wire_consumers import beat
from ..support.wire_transactions import until
from .classic_member import ClassicMember
from .conftest import Events
from .obedient_members import Member
from .restarts import broker_on
from .test_consumer_group import REBALANCE_MS, SESSION_MS, TOPICS, Client, answered, group, part
from .test_consumer_restarts import until_described

AT_ONCE_MS = 1
"""The time to let go."""
LONGER_MS = 20


def test_who_could_not_be_told_to_let_go_has_all_its_time_from_when_it_is() -> None:
    shared = group()
    one, two = Client(shared, "one"), Client(shared, "two")
    one.join()
    two.join()
    holding = part("a", 0, 1, 2, 3)
    asked = Beat("one", one.epoch, owned=holding)
    for now_ms in range(0, 3 * REBALANCE_MS, 10_000):
        shared.tick(now_ms)
        two.heartbeat(now_ms)
        told = shared.heartbeat(now_ms, asked, TOPICS)  # what it says is not durable
        assert told.assignment is not None, "as long as it does not know"
    shared.was_told(now_ms, "one", told.assignment)
    last_ms = now_ms + REBALANCE_MS
    for then_ms in range(now_ms, last_ms, 10_000):
        shared.tick(then_ms)
        two.heartbeat(then_ms)
        assert answered(shared, then_ms, asked, TOPICS).assignment is None
        assert not two.reads
    assert shared.due_ms <= last_ms
    shared.tick(last_ms)
    two.heartbeat(last_ms)
    assert two.reads == holding


def test_an_answer_that_waited_tells_nothing_of_what_has_changed_since() -> None:
    shared = group()
    one = Client(shared, "one")
    one.join()
    Client(shared, "two").join()
    late = shared.heartbeat(0, one.question(), TOPICS)
    assert late.assignment is not None
    Client(shared, "three").join()
    Client(shared, "four").join()
    reads = frozenset(late.assignment)
    told = shared.heartbeat(0, Beat("one", one.epoch, owned=reads), TOPICS)
    assert told.assignment is not None
    assert len(told.assignment) < len(late.assignment)
    shared.was_told(0, "one", late.assignment)
    again = shared.heartbeat(SESSION_MS - 1, Beat("one", one.epoch), TOPICS)
    assert again.assignment == told.assignment
    shared.tick(REBALANCE_MS)
    assert "one" in shared.members


def test_a_classic_member_has_its_time_from_when_it_is_told_too() -> None:
    shared = group()
    two = Client(shared, "two")

    def joining(member_id: str, *owned: int) -> Joining:
        subscription = Subscription(("a",), tuple(("a", index) for index in owned), -1)
        protocols = {"range": encode_subscription(subscription)}
        times_ms = (3 * REBALANCE_MS, REBALANCE_MS)
        return Joining(member_id, None, "", "", *times_ms, "consumer", protocols, False, True)

    def new_id(_: str) -> str:
        return "one"

    join = partial(classic_members.join, shared, new_member_id=new_id, topics=TOPICS)
    join(0, joining=joining(""))
    two.join()
    for now_ms in range(0, 3 * REBALANCE_MS, 10_000):  # each is answered that it is not durable
        shared.tick(now_ms)
        two.heartbeat(now_ms)
        joined = join(now_ms, joining=joining("one", 0, 1, 2, 3))
    synced = classic_members.sync(
        shared, now_ms, "one", None, joined.generation, None, None, lambda _: "a"
    )
    assert synced.code == 0
    shared.was_told(now_ms, "one", shared.members["one"].assigned)
    last_ms = now_ms + REBALANCE_MS
    for then_ms in range(now_ms, last_ms, 10_000):
        shared.tick(then_ms)
        two.heartbeat(then_ms)
        join(then_ms, joining=joining("one", 0, 1, 2, 3))
        assert not two.reads
    shared.tick(last_ms)
    two.heartbeat(last_ms)
    assert two.reads == part("a", 0, 1, 2, 3)


async def test_who_is_not_told_while_the_disk_fails_is_not_dropped_for_it() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 2, housekeeping_interval_ms=20) as (_, clients):
        await clients[0].create("t", partitions=2)
        one = Member(clients[0], "one", rebalance_timeout_ms=AT_ONCE_MS)
        two = Member(clients[1], "two")
        await one.join()
        had = dict(one.reads)
        await two.join()
        disk.sync_error = OSError(errno.EIO, "no sync")
        ends_ms = monotonic_ms() + LONGER_MS
        while monotonic_ms() < ends_ms:
            refused = await one.beat()
            assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        disk.sync_error = None

        async def is_told() -> bool:
            reply = await one.beat()
            assert reply.error_code in (0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return not reply.error_code

        await until(is_told)
        assert sorted(map(len, one.reads.values())) == [1], "told of it, though it does not ask"

        async def is_dropped() -> bool:
            one.reads = had  # and does not let go
            return (await one.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID

        await until(is_dropped)

        async def reads_everything() -> bool:
            await two.beat()
            return two.reads == had

        await until(reads_everything)


async def test_who_was_not_told_before_its_broker_ended_is_told_by_the_next() -> None:
    disk = GatedStorage()
    let_go_ms = 250  # the kill comes sooner behind the answer than this
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t", partitions=2)
        one = Member(clients[0], "one", rebalance_timeout_ms=let_go_ms)
        two = Member(clients[1], "two", rebalance_timeout_ms=let_go_ms)
        await one.join()
        await two.join()
        had = dict(one.reads)
        await one.beat()
        image = disk.after_kill()
        one.reads = had  # the answer was lost
    async with broker_on(image, 2) as (_, clients):
        one.client, two.client = clients
        ends_ms = monotonic_ms() + 2 * let_go_ms
        while monotonic_ms() < ends_ms:
            assert (await two.beat()).error_code == 0
            assert not two.reads
        reply = await one.beat()
        assert reply.error_code == 0
        assert reply.assignment is not None, "it does not say that it has let go"


async def test_an_answer_that_finds_nobody_has_told_nobody(events: Events) -> None:
    disk = GatedStorage()
    async with broker_on(disk, 3) as (_, clients):
        await clients[0].create("t", partitions=2)
        one = Member(clients[0], "one", rebalance_timeout_ms=AT_ONCE_MS)
        two = Member(clients[1], "two")
        await one.join()
        await two.join()
        disk.syncs.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.beat)
            await wait_all_tasks_blocked(0.05)  # until it is durable
            nursery.cancel_scope.cancel()
        await clients[0].stream.aclose()

        async def is_closed() -> bool:
            return bool(events.named("connection_closed"))

        await until(is_closed)
        disk.syncs.set()
        await two.join()  # durable, and with it what was under way
        ends_ms = monotonic_ms() + LONGER_MS
        while monotonic_ms() < ends_ms:
            await two.beat()
            assert not two.reads
        one.client = clients[2]
        reply = await one.beat()
        assert reply.error_code == 0
        assert reply.assignment is not None, "it does not say that it has let go"


async def test_what_was_told_by_a_connection_that_broke_is_told_again_by_the_next() -> None:
    """To who repeats itself word for word: at the same epoch, and without what it reads."""
    async with broker_on(None, 3) as (_, clients):
        await clients[0].create("t", partitions=2)
        one, two = Member(clients[0], "one"), Member(clients[2], "two")
        await two.join()
        await one.join()
        await two.beat()  # is told to let go
        await two.beat()  # and does
        alive = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="one", member_epoch=one.epoch, topic_partitions=None
        )
        lost = await beat(clients[0], alive)
        assert lost.assignment is not None
        assert lost.member_epoch == one.epoch
        assert (await beat(clients[0], alive)).assignment is None, "this one was answered by it"
        again = await beat(clients[1], alive)
        assert again.assignment == lost.assignment
        assert (await beat(clients[1], alive)).assignment is None


async def test_who_was_told_and_is_silent_is_dropped_though_nobody_else_is_heard_of() -> None:
    day = {"group_consumer_session_timeout_ms": 86_400_000}
    async with broker_on(GatedStorage(), **day) as (_, (client,)):
        await client.create("t", partitions=2)
        one = Member(client, "one", rebalance_timeout_ms=AT_ONCE_MS)
        await one.join()
        await Member(client, "two").join()
        await one.beat()
        await until_described(client, {"two"})


async def test_a_classic_member_that_never_lets_go_is_dropped() -> None:
    async with broker_on(GatedStorage(), 2) as (_, clients):
        await clients[0].create("t", partitions=2)
        one = ClassicMember(clients[0], rebalance_ms=300)
        await one.join()
        await one.sync({one.member_id: [("t", 0), ("t", 1)]})
        two = Member(clients[1], "two")
        await two.join()

        async def is_dropped() -> bool:
            """Each time it joins again there is time to do so, and all the while it reads."""
            reply = await one.join(("t", 0), ("t", 1))
            return reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID or bool(await one.sync())

        await until(is_dropped)

        async def reads_everything() -> bool:
            await two.beat()
            return list(two.reads.values()) == [[0, 1]]

        await until(reads_everything)
