"""What members of all groups say takes bounded memory, whether they are still there or not."""

import gc
import tracemalloc
from collections.abc import Sequence

import pytest

from segbroker.broker.groups import member_room
from segbroker.broker.groups.classic_members import METADATA_MAX
from segbroker.broker.groups.member_room import SMALL_MAX, MemberRoom
from segbroker.broker.groups.member_sizes import NAME_SIZE, names_size
from segbroker.broker.loop.loop_clock import monotonic_ms
from segbroker.broker.refused import Refused
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.limits import STRING_SIZE_MAX
from segbroker.protocol.messages_consumer_groups import ConsumerGroupHeartbeatRequest
from segbroker.protocol.messages_groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from segbroker.protocol.messages_streams_groups import StreamsGroupKeyValue
from segbroker.segments.disk.memory import MemoryStorage

from ..support.wire_client import WireClient, connect
from ..support.wire_consumers import beat as consumer_beat
from ..support.wire_consumers import joining as consumer_joining
from ..support.wire_shares import beat as share_beat
from ..support.wire_shares import sharing
from ..support.wire_streams import beat as streams_beat
from ..support.wire_streams import beating, internal, subtopology
from ..support.wire_streams import joining as streams_joining
from ..support.wire_transactions import until
from .conftest import Events, serving
from .restarts import broker_on
from .traced_memory import comes_below

FULL = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NO_SYNC = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""The Java client knows no FULL as an answer to a SyncGroup, and gives up."""
BUDGET = 4 * METADATA_MAX + SMALL_MAX


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gone is looked for whenever there is no room."""
    monkeypatch.setattr(member_room, "LOOK_MS", 0)
    monkeypatch.setattr(member_room, "ALL_MAX", BUDGET)


async def join(
    client: WireClient,
    group_id: str,
    size: int,
    *,
    member_id: str = "",
    instance: str | None = None,
    names: Sequence[str] = ("p",),
) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=600_000,
        rebalance_timeout_ms=600_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=name, metadata=bytes(size)) for name in names],
    )
    version = 3 if instance is None else 5  # without an id first
    return await client.ask(request, JoinGroupResponse, version)


async def sync(client: WireClient, group_id: str, joined: JoinGroupResponse, *sizes: int) -> int:
    request = SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[
            SyncGroupRequestAssignment(
                member_id="x" if n else joined.member_id, assignment=bytes(size)
            )
            for n, size in enumerate(sizes)
        ],
    )
    return (await client.ask(request, SyncGroupResponse, 3)).error_code


async def test_members_whose_connections_are_gone_take_bounded_memory() -> None:
    """Of each a MiB stays until its session ends."""
    async with serving(group_initial_rebalance_delay_ms=0) as broker:
        codes = []
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(12):
                async with connect(broker.address) as client:
                    codes.append((await join(client, f"g{number}", METADATA_MAX)).error_code)
            await comes_below(2 * BUDGET)
        finally:
            tracemalloc.stop()
        assert codes == [0] * 4 + [FULL] * 8
        async with connect(broker.address) as client:
            assert (await join(client, "small", SMALL_MAX // 2)).error_code == 0


@pytest.mark.parametrize("what", ["names", "client id", "instance"])
async def test_all_that_members_say_takes_bounded_memory(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only the metadata of protocols: 100 names of 32 KiB each are as much."""
    monkeypatch.setattr(member_room, "ALL_MAX", BUDGET // 4)
    long = "x" * (STRING_SIZE_MAX - 10)
    names = [f"{n}{long}" for n in range(10)] if what == "names" else ["p"]
    async with serving(group_initial_rebalance_delay_ms=0) as broker:
        codes = []
        gc.collect()
        tracemalloc.start()
        try:
            for n in range(100):
                instance = f"{n}{long}" if what == "instance" else None
                async with connect(broker.address) as client:
                    if what == "client id":
                        client.client_id = f"{n}{long}"
                    reply = await join(client, f"g{n}", 0, instance=instance, names=names)
                    codes.append(reply.error_code)
            await comes_below(BUDGET // 2)
        finally:
            tracemalloc.stop()
        assert {*codes} == {0, FULL}


@pytest.mark.parametrize("kind", ["classic", "consumer", "share", "streams"])
async def test_the_names_of_groups_count_and_those_that_nobody_is_in_give_way(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand may have 32 KiB each."""
    size = 20 * SMALL_MAX
    monkeypatch.setattr(member_room, "ALL_MAX", 5 * size // 2)
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as client,
    ):
        members = {}

        async def joins(name: str) -> int:
            group_id = name * size
            if kind == "classic":
                joined = await join(client, group_id, 0)
                members[name] = joined.member_id
                return joined.error_code
            if kind == "consumer":
                said = consumer_joining("m", group_id=group_id)
                return (await consumer_beat(client, said)).error_code
            if kind == "share":
                return (await share_beat(client, sharing("m", group_id=group_id))).error_code
            streams = streams_joining("m", group_id=group_id)
            return (await streams_beat(client, streams)).error_code

        async def leaves(name: str) -> int:
            group_id = name * size
            if kind == "classic":
                who = [LeaveGroupRequestMember(member_id=members[name])]
                leave = LeaveGroupRequest(group_id=group_id, members=who)
                return (await client.ask(leave, LeaveGroupResponse, 3)).error_code
            if kind == "consumer":
                said = consumer_joining("m", group_id=group_id, member_epoch=-1)
                return (await consumer_beat(client, said)).error_code
            if kind == "share":
                return (await share_beat(client, sharing("m", -1, group_id=group_id))).error_code
            streams = beating("m", -1, group_id=group_id)
            return (await streams_beat(client, streams)).error_code

        assert [await joins(name) for name in "abc"] == [0, 0, FULL]
        assert await leaves("a") == 0
        assert room_of(broker) == 2 * size

        async def has_given_way() -> bool:  # when it is written down that nobody is in it
            return await joins("c") == 0

        await until(has_given_way)
        assert room_of(broker) == 2 * size
        assert [await joins(name) for name in "ad"] == [FULL, FULL]
        assert await leaves("b") == 0
        assert await joins("b") == 0


async def test_the_name_of_a_group_too_many_does_not_count() -> None:
    names = [name * 20 * SMALL_MAX for name in "abcd"]
    async with (
        serving(groups_max=1, group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as client,
    ):
        codes = [(await join(client, name, 0)).error_code for name in names]
        assert codes == [0, *[ErrorCode.GROUP_MAX_SIZE_REACHED] * 3]
        assert room_of(broker) == len(names[0])


async def test_a_static_member_that_comes_back_without_its_id_says_no_more_than_before() -> None:
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as client,
    ):
        first = await join(client, "g0", METADATA_MAX, instance="one")
        for n in range(1, 4):
            assert (await join(client, f"g{n}", METADATA_MAX)).error_code == 0
        held = room_of(broker)
        for _ in range(3):
            again = await join(client, "g0", METADATA_MAX, instance="one")
            assert again.error_code == 0
            assert again.member_id != first.member_id
            assert room_of(broker) == held
        assert (await join(client, "other", METADATA_MAX)).error_code == FULL


async def test_a_static_member_of_kip_848_that_is_back_says_no_more_than_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its id is another one in each life; its session is not over in any."""
    size = 20 * SMALL_MAX
    monkeypatch.setattr(member_room, "ALL_MAX", 5 * size // 2)
    async with serving() as broker, connect(broker.address) as client:
        client.client_id = "x" * size

        async def join_as(member: str, instance: str | None = None) -> int:
            said = consumer_joining(member, instance_id=instance)
            return (await consumer_beat(client, said)).error_code

        assert [await join_as("one", "i"), await join_as("oth")] == [0, 0]
        held = room_of(broker)
        last = "one"
        for member in ("two", "thr"):
            away = ConsumerGroupHeartbeatRequest(
                group_id="g", member_id=last, member_epoch=-2, instance_id="i"
            )
            assert (await consumer_beat(client, away)).error_code == 0
            assert await join_as(member, "i") == 0
            assert room_of(broker) == held
            last = member
        assert await join_as("new") == FULL


@pytest.mark.parametrize("kind", ["consumer", "instance", "share", "streams"])
async def test_what_a_member_says_piece_by_piece_counts_together(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each heartbeat something else, no more than before at a time."""
    size, count = 20 * SMALL_MAX, 4
    monkeypatch.setattr(member_room, "ALL_MAX", (count + 1) * (size + SMALL_MAX))
    async with serving() as broker, connect(broker.address) as client:

        async def says(member: str, epoch: int, **more: object) -> tuple[int, int]:
            if kind == "streams":
                streams = streams_joining(member) if epoch == 0 else beating(member, epoch)
                if more:
                    tags = [StreamsGroupKeyValue(key=f"{n}", value="x" * 250) for n in range(82)]
                    streams.client_tags = tags
                streams_reply = await streams_beat(client, streams)
                return streams_reply.error_code, streams_reply.member_epoch
            if kind == "share":
                reply = await share_beat(client, sharing(member, epoch, **more))
                return reply.error_code, reply.member_epoch
            said = consumer_joining(member, member_epoch=epoch, **more)
            if epoch:
                said.topic_partitions, said.rebalance_timeout_ms = None, -1
            consumer_reply = await consumer_beat(client, said)
            return consumer_reply.error_code, consumer_reply.member_epoch

        epochs = {}
        for member in map(str, range(count)):
            long = {"instance_id" if kind == "instance" else "rack_id": member + "x" * size}
            code, epochs[member] = await says(member, 0, **long)
            assert code == 0
        held = room_of(broker)
        assert held >= count * size
        client.client_id = "y" * size
        codes = [(await says(member, epoch))[0] for member, epoch in epochs.items()]
        assert codes == [0, *[FULL] * (count - 1)]
        client.client_id = "test"
        for member, epoch in epochs.items():
            assert (await says(member, epoch))[0] == 0
        assert room_of(broker) == held


async def test_who_is_there_goes_on_and_who_is_gone_makes_room() -> None:
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as client,
    ):
        joined = [await join(client, f"g{n}", METADATA_MAX) for n in range(4)]
        again = await join(client, "g0", METADATA_MAX, member_id=joined[0].member_id)
        assert again.error_code == 0
        assert await sync(client, "g0", again, 100) == 0
        assert (await join(client, "other", 2 * SMALL_MAX)).error_code == FULL
        group = broker.core.groups.get("g1")
        assert group is not None
        group.tick(monotonic_ms() + 600_001)
        assert not group.members
        assert (await join(client, "other", 2 * SMALL_MAX)).error_code == 0


async def test_assignments_of_a_group_count() -> None:
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as client,
    ):
        one, two = [await join(client, name, 10) for name in ("one", "two")]
        assert await sync(client, "one", one, BUDGET + 1) == NO_SYNC
        assert await sync(client, "one", one, BUDGET - 2 * SMALL_MAX, 10) == 0
        assert await sync(client, "two", two, 4 * SMALL_MAX) == NO_SYNC
        assert await sync(client, "two", two, SMALL_MAX) == 0
        again = await join(client, "one", 10, member_id=one.member_id)
        assert await sync(client, "one", again, 100) == 0, "it has much less now"
        again = await join(client, "two", 10, member_id=two.member_id)
        assert await sync(client, "two", again, 4 * SMALL_MAX) == 0


async def subscribe(client: WireClient, member: str, *names: str) -> tuple[int, int]:
    said = consumer_joining(member, subscribed_topic_names=list(names))
    shares = sharing(member, group_id="s", subscribed_topic_names=list(names))
    return (
        (await consumer_beat(client, said)).error_code,
        (await share_beat(client, shares)).error_code,
    )


async def test_what_many_subscribe_to_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_room, "ALL_MAX", 5 * 60 * (1_000 + NAME_SIZE))
    names = [f"{n:01000}" for n in range(100)]
    async with serving() as broker, connect(broker.address) as client:
        for member in ("a", "b", "c", "d"):
            assert await subscribe(client, member, *names[:60]) == (0, 0)
        assert await subscribe(client, "e", *names[:61]) == (0, 0)
        assert await subscribe(client, "f", *names[:62]) == (FULL, FULL)
        assert await subscribe(client, "f", *names[:60]) == (0, 0)
        held = room_of(broker)
        assert await subscribe(client, "e", *names[:60]) == (0, 0)
        assert await subscribe(client, "f", *names[:59]) == (0, 0), "nobody says the 61 any more"
        assert room_of(broker) <= held


def room_of(broker: Broker) -> int:
    return broker.core.groups.room.size


async def test_topologies_of_groups_count(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{n:0200}" for n in range(100)]
    monkeypatch.setattr(member_room, "ALL_MAX", 2 * names_size([*names, "0"]))
    async with serving() as broker, connect(broker.address) as client:
        codes = []
        for group_id in ("a", "b", "c"):
            said = streams_joining("m", subtopology("0", *names), group_id=group_id)
            codes.append((await streams_beat(client, said)).error_code)
        assert codes == [0, 0, FULL]
        said = streams_joining("n", subtopology("0", *names), group_id="a")
        assert (await streams_beat(client, said)).error_code == 0, "its group has it"
        assert broker.core.groups.get_streams("c") is None


async def test_the_settings_in_topologies_count(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 100_000
    monkeypatch.setattr(member_room, "ALL_MAX", 5 * size // 2)
    kept = internal("app-changelog", **{f"k{n}": "v" * (size // 4) for n in range(4)})
    async with serving() as broker, connect(broker.address) as client:
        codes = []
        for group_id in ("a", "b", "c"):
            said = streams_joining("m", subtopology("0", "t", keeps=[kept]), group_id=group_id)
            codes.append((await streams_beat(client, said)).error_code)
        assert codes == [0, 0, FULL]


async def test_what_a_start_finds_counts() -> None:
    """Others could fill the room before it is said again, and groups that there are ended then."""
    names = [f"{n:01000}" for n in range(100)]
    disk = MemoryStorage()
    async with broker_on(disk) as (broker, (client,)):
        classic = await join(client, "classic", METADATA_MAX // 2)
        assert await sync(client, "classic", classic, 2 * SMALL_MAX) == 0
        said = consumer_joining("m", subscribed_topic_names=names)
        told = await consumer_beat(client, said)
        assert told.error_code == 0
        tasks = subtopology("0", *(f"{n:0200}" for n in range(20)))
        application = streams_joining("m", tasks, group_id="streams")
        assert (await streams_beat(client, application)).error_code == 0
        counted = room_of(broker)
    async with broker_on(disk) as (broker, (client,)):
        found = room_of(broker)
        codes = [(await join(client, f"g{n}", METADATA_MAX)).error_code for n in range(5)]
        assert codes[-1] == FULL
        again = await join(client, "classic", METADATA_MAX // 2, member_id=classic.member_id)
        assert again.error_code == 0
        assert await sync(client, "classic", again, 2 * SMALL_MAX) == 0
        said.member_epoch = told.member_epoch
        assert (await consumer_beat(client, said)).error_code == 0
        assert found == counted


async def test_a_full_room_is_looked_over_a_little_at_a_time(
    monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    """A hundred thousand groups at once would hold the loop, each time that somebody is refused."""
    monkeypatch.setattr(member_room, "ALL_MAX", 300 * 100 * 2 * SMALL_MAX)
    asked: list[str] = []
    there = {f"g{group}": {f"m{member}" for member in range(100)} for group in range(300)}

    def keys(group_id: str) -> set[str | int]:
        asked.append(group_id)
        return set(there[group_id])

    room = MemberRoom(keys, gives_way=lambda _: None)
    for group_id, members in there.items():
        for member in members:
            room.put(group_id, member, 2 * SMALL_MAX)

    def is_refused() -> bool:
        asked.clear()
        try:
            room.check("new", "m", 2 * SMALL_MAX)
        except Refused:
            assert len(asked) < 10
            return True
        return False

    for _ in range(70):
        assert is_refused()
    assert len(events.named("group_members_too_large")) == 1, "once a second, of all that there is"
    there["g150"].clear()
    refused = 0
    while is_refused():
        refused += 1
        assert refused < 70
    room.put("new", "m", 2 * SMALL_MAX)
    assert room.size <= 300 * 100 * 2 * SMALL_MAX
