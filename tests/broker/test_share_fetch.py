"""Share groups on the wire: records are handed out, acknowledged, taken back; sessions, limits."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.shares import beginnings
from segbroker.broker.shares import shares as shares_module
from segbroker.broker.shares.offset_reset import first_offsets
from segbroker.broker.shares.share_session import Place
from segbroker.broker.shares.shares import LOCKS_WHERE_FULL
from segbroker.protocol.acls import Operation, ResourceType
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from segbroker.protocol.messages_share_groups import (
    AcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareRequestPartition,
    ShareRequestTopic,
)
from segbroker.segments.disk.memory import MemoryStorage

from ..support.patient_clock import passes
from ..support.waiting import becomes
from ..support.wire_client import WireClient, connect
from ..support.wire_shares import (
    ACCEPT,
    FINAL,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    VERSION,
    Given,
    Said,
    Sharing,
    delete,
    listed,
    set_on_group,
    topic_id,
)
from ..support.wire_transactions import V2, Tx
from .classic_member import ClassicMember
from .conftest import Events, serving
from .guarded import ALICE, allow, connect_from, filled, guarded, rule
from .restarts import broker_on, cut_off, killed

GROUP = "g"
WAIT = 30_000
"""For what comes at once, or as soon as something is durable."""


async def sharing(client: WireClient, topic: str = "t", **settings: str) -> Sharing:
    """A member, in a group that begins at the beginning."""
    await set_on_group(client, GROUP, share_auto_offset_reset="earliest", **settings)
    return Sharing(client, GROUP, await topic_id(client, topic))


def offsets(given: list[Given]) -> list[int]:
    return [one.offset for one in given]


async def test_records_are_handed_out_once_and_are_done_with_when_accepted() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", 2)
        for n in range(3):
            await client.produce("t", b"a%d" % n, b"b%d" % n)
        one = await sharing(client)
        given = await one.fetch(0, 1)
        assert [g.value for g in given] == [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]
        assert {g.deliveries for g in given} == {1}
        assert one.reply is not None
        assert one.reply.acquisition_lock_timeout_ms == 30_000
        assert sorted(one.rows) == [0, 1], "the first answer has them all"

        assert await one.fetch(said={0: [(0, 3, [ACCEPT]), (4, 5, [ACCEPT, ACCEPT])]}) == []
        assert one.rows[0].acknowledge_error_code == 0
        assert broker.core.shares.start_offset(GROUP, one.topic, 0) == 6
        await client.produce("t", b"later")
        assert [g.value for g in await one.fetch()] == [b"later"]


@pytest.mark.parametrize("asked", [{"max_records": 0}, {"max_bytes": 0}, {"forgotten": [0]}])
async def test_what_asks_for_no_records_is_answered_at_once(asked: dict[str, Any]) -> None:
    # It tells of what became of records, or of partitions that are forgotten.
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        one = await sharing(client)
        await one.fetch(0)
        with trio.fail_after(WAIT / 2_000):
            assert await one.fetch(wait_ms=WAIT, **asked) == []


async def test_two_members_share_a_partition() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        await client.create("t")
        for n in range(4):
            await client.produce("t", b"%d" % n)
        one = await sharing(client)
        two = Sharing(other, GROUP, one.topic)
        assert offsets(await one.fetch(0, max_records=2)) == [0, 1]
        assert offsets(await two.fetch(0, max_records=2)) == [2, 3]
        assert await two.say({0: [(1, 1, [ACCEPT])]}) == (
            ErrorCode.NONE,
            {0: ErrorCode.INVALID_RECORD_STATE},
        ), "it is the other's"
        assert await one.say({0: [(0, 0, [RELEASE]), (1, 1, [REJECT])]}) == (
            ErrorCode.NONE,
            {0: ErrorCode.NONE},
        )
        assert [(g.offset, g.deliveries) for g in await two.fetch()] == [(0, 2)]


async def test_no_answer_sends_a_client_to_another_broker() -> None:
    # franz-go goes to whom it is told of beside an error, and fetched from the partition no more.
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"a", b"b")
        one = await sharing(client)
        await one.fetch(0)
        asked = one.saying({0: [(0, 0, [ACCEPT])], 1: [(0, 0, [ACCEPT])]})
        said = await client.ask(asked, ShareAcknowledgeResponse, VERSION)
        one.epoch += 1
        await one.fetch(1, said={0: [(1, 1, [RELEASE])]})
        told = [(row.error_code, row.current_leader) for row in said.responses[0].partitions]
        told += [(one.rows[n].error_code, one.rows[n].current_leader) for n in range(2)]
        assert [(ErrorCode.of(code), leader.leader_id) for code, leader in told] == [
            (ErrorCode.NONE, -1),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ] * 2


async def test_what_is_released_comes_again_and_is_archived_after_the_last_delivery() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"poison", b"b")
        one = await sharing(client, share_delivery_count_limit="3")
        assert offsets(await one.fetch(0)) == [0, 1]
        assert offsets(await one.fetch(said={0: [(0, 1, [RELEASE, ACCEPT])]}, wait_ms=WAIT)) == [0]
        again = await one.fetch(said={0: [(0, 0, [RELEASE])]}, wait_ms=WAIT)
        assert [(g.offset, g.deliveries) for g in again] == [(0, 3)]
        assert await one.fetch(said={0: [(0, 0, [RELEASE])]}) == []
        assert broker.core.shares.start_offset(GROUP, one.topic, 0) == 2


async def test_a_lower_limit_of_deliveries_is_that_of_what_was_released_before() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"poison", b"b")
        one = await sharing(client, share_delivery_count_limit="4")
        assert offsets(await one.fetch(0)) == [0, 1]
        for _ in range(2):
            again = await one.fetch(said={0: [(0, 0, [RELEASE])]}, wait_ms=WAIT)
        assert [(g.offset, g.deliveries) for g in again] == [(0, 3)]
        assert await one.say({0: [(0, 0, [RELEASE]), (1, 1, [ACCEPT])]}) == (
            ErrorCode.NONE,
            {0: ErrorCode.NONE},
        )
        assert broker.core.shares.start_offset(GROUP, one.topic, 0) == 0, "it is to come again"
        await set_on_group(client, GROUP, share_delivery_count_limit="3")
        await client.produce("t", b"later")
        assert offsets(await one.fetch(wait_ms=WAIT)) == [2]
        assert broker.core.shares.start_offset(GROUP, one.topic, 0) == 2


async def test_who_was_delivered_often_comes_with_fewer_others_and_at_last_alone() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", *(b"%d" % n for n in range(8)))
        one = await sharing(client, share_delivery_count_limit="4")
        given = await one.fetch(0)
        counts = [len(given)]
        for _ in range(3):
            first, last = given[0].offset, given[-1].offset
            await one.say({0: [(first, last, [RELEASE])]})
            given = await one.fetch()
            counts.append(len(given))
        assert counts == [8, 8, 4, 1]
        assert [(g.offset, g.deliveries) for g in given] == [(0, 4)]


async def test_a_lock_ends_and_a_renewal_makes_it_last() -> None:
    async with (
        serving(group_share_record_lock_duration_ms=20_000) as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        await client.create("t")
        await client.produce("t", b"a", b"b")
        one = await sharing(client)
        two = Sharing(other, GROUP, one.topic)
        assert offsets(await one.fetch(0)) == [0, 1]
        await two.begin(0, wait_ms=600_000)
        for _ in range(3):
            await passes(12)
            renewed = await one.say({0: [(0, 0, [RENEW])]}, renew=True)
            assert renewed == (ErrorCode.NONE, {0: ErrorCode.NONE})
        assert [(g.offset, g.deliveries) for g in await two.end()] == [(1, 2)]
        done = await one.say({0: [(0, 0, [ACCEPT])]})
        assert done == (ErrorCode.NONE, {0: ErrorCode.NONE})
        lost = await one.say({0: [(1, 1, [ACCEPT])]})
        assert lost == (ErrorCode.NONE, {0: ErrorCode.INVALID_RECORD_STATE})


async def test_who_waits_hears_of_new_records() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        await client.create("t")
        one = await sharing(client)
        await one.begin(0, wait_ms=30_000)
        await other.produce("t", b"new")
        assert [g.value for g in await one.end()] == [b"new"]


@pytest.mark.parametrize("how", ["final fetch", "final acknowledge", "disconnect"])
async def test_the_end_of_a_session_gives_back_what_its_member_has(how: str) -> None:
    async with serving() as broker, connect(broker.address) as other:
        await other.create("t")
        await other.produce("t", b"a", b"b", b"c")
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(connect(broker.address))
            one = await sharing(client)
            assert offsets(await one.fetch(0)) == [0, 1, 2]
            two = Sharing(other, GROUP, one.topic)
            await two.begin(0, wait_ms=30_000)
            if how == "final fetch":
                assert await one.fetch(said={0: [(0, 0, [ACCEPT])]}, epoch=FINAL) == []
            elif how == "final acknowledge":
                assert await one.say({0: [(0, 0, [ACCEPT])]}, epoch=FINAL) == (
                    ErrorCode.NONE,
                    {0: ErrorCode.NONE},
                )
            else:
                await one.say({0: [(0, 0, [ACCEPT])]})
                await stack.aclose()
            assert [(g.offset, g.deliveries) for g in await two.end()] == [(1, 2), (2, 2)]
        assert len(broker.core.shares.sessions) >= 1


async def test_who_begins_its_session_anew_keeps_what_it_has() -> None:
    async with serving() as broker, connect(broker.address) as other:
        await other.create("t")
        await other.produce("t", b"a", b"b")
        async with connect(broker.address) as client:
            one = await sharing(client)
            assert offsets(await one.fetch(0)) == [0, 1]
            one.epoch = 0
            assert await one.fetch(0) == []
            assert (await one.say({0: [(0, 0, [ACCEPT])]}))[1] == {0: ErrorCode.NONE}
            two = Sharing(other, GROUP, one.topic)
            await two.begin(0, wait_ms=WAIT)
        assert offsets(await two.end()) == [1], "it is gone now"


@pytest.mark.parametrize("ended", [killed, cut_off])
async def test_what_was_acknowledged_is_so_after_a_crash_and_what_was_not_comes_again(
    ended: Callable[[MemoryStorage], MemoryStorage],
) -> None:
    storage = MemoryStorage()
    async with broker_on(storage) as (broker, (client,)):
        await client.create("t")
        for n in range(6):
            await client.produce("t", b"%d" % n)
        one = await sharing(client)
        assert offsets(await one.fetch(0)) == [0, 1, 2, 3, 4, 5]
        await one.say({0: [(0, 4, [ACCEPT, RELEASE, ACCEPT, REJECT, GAP])]})
        topic = one.topic
        after = ended(storage)
    async with broker_on(after) as (broker, (client,)):
        assert broker.core.shares.start_offset(GROUP, topic, 0) == 1
        two = Sharing(client, GROUP, topic)
        given = await two.fetch(0)
        assert [(g.offset, g.deliveries) for g in given] == [(1, 2), (5, 1)]


@pytest.mark.parametrize("ended", [killed, cut_off])
async def test_a_group_begins_where_it_began_though_nothing_was_acknowledged(
    ended: Callable[[MemoryStorage], MemoryStorage],
) -> None:
    storage = MemoryStorage()
    async with broker_on(storage) as (_, (client,)):
        await client.create("t")
        await client.produce("t", b"before")
        one = Sharing(client, GROUP, await topic_id(client, "t"))
        assert await one.fetch(0) == []
        await client.produce("t", b"behind")
        after = ended(storage)
    async with broker_on(after) as (_, (client,)):
        two = Sharing(client, GROUP, await topic_id(client, "t"))
        assert [g.value for g in await two.fetch(0)] == [b"behind"]


async def test_what_was_deleted_is_passed_over_and_told(events: Events) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for n in range(4):
            await client.produce("t", b"%d" % n)
        one = await sharing(client)
        assert offsets(await one.fetch(0, max_records=1)) == [0]
        await delete_before(client, "t", 2)
        assert offsets(await one.fetch()) == [2, 3]
        (told,) = events.named("share_records_deleted")
        assert (told["level"], told["offset"], told["offsets"]) == ("warning", 2, 2)
        said = await one.say({0: [(0, 3, [ACCEPT])]})
        assert said == (ErrorCode.NONE, {0: ErrorCode.NONE}), "what is deleted is done with"
        assert broker.core.shares.start_offset(GROUP, one.topic, 0) == 4


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [("read_committed", [b"a", b"c"]), ("read_uncommitted", [b"a", b"b", b"c", b"open"])],
)
async def test_aborted_records_and_markers_are_nobodys_work(
    isolation: str, expected: list[bytes]
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "x", V2)
        await tx.init()
        for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
            assert not await tx.send("t", value)
            assert not await tx.end(commit=commit)
        assert not await tx.send("t", b"open")
        one = await sharing(client, share_isolation_level=isolation)
        given = await one.fetch(0)
        assert [g.value for g in given] == expected
        await one.say({0: [(g.offset, g.offset, [ACCEPT]) for g in given]})
        if isolation == "read_committed":
            await one.begin(wait_ms=WAIT)
            async with connect(broker.address) as other:
                assert not await Tx(other, "x", V2, tx.producer_id, tx.epoch).end(commit=True)
            assert [g.value for g in await one.end()] == [b"open"]
            await one.say({0: [(6, 6, [ACCEPT])]})
            await one.fetch()
            assert broker.core.shares.start_offset(GROUP, one.topic, 0) == 8


async def test_strictly_so_many_records_and_batches_that_are_told_apart() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for _ in range(3):
            await client.produce("t", *(b"%d" % n for n in range(10)))
        one = await sharing(client)
        assert offsets(await one.fetch(0, max_records=4, strict=True)) == [0, 1, 2, 3]
        assert offsets(await one.fetch(max_records=4)) == [4, 5, 6, 7, 8, 9], "the whole batch"
        await one.fetch(batch_size=10)
        acquired = [(a.first_offset, a.last_offset) for a in one.rows[0].acquired_records]
        assert acquired == [(10, 19), (20, 29)]


async def test_there_are_so_many_locks_and_no_more() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for _ in range(5):
            await client.produce("t", *(b"%d" % n for n in range(50)))
        one = await sharing(client, share_partition_max_record_locks="100")
        assert offsets(await one.fetch(0)) == list(range(100))
        assert await one.fetch() == []
        more = await one.fetch(said={0: [(0, 9, [ACCEPT])]}, wait_ms=WAIT)
        assert offsets(more) == list(range(100, 150))


async def test_sessions_go_by_their_epochs() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        one = await sharing(client)
        await one.fetch(0, epoch=1)
        assert one.code() == ErrorCode.SHARE_SESSION_NOT_FOUND
        await one.fetch(0)
        for epoch in (5, -2):
            await one.fetch(epoch=epoch)
            assert one.code() == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        await one.fetch(said={0: [(0, 0, [ACCEPT])]}, epoch=0)
        assert one.code() == ErrorCode.INVALID_REQUEST
        assert (await one.say({0: []}, epoch=0))[0] == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert (await one.say({0: []}, epoch=9))[0] == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        stranger = Sharing(client, "other", one.topic)
        assert (await stranger.say({0: []}, epoch=1))[0] == ErrorCode.SHARE_SESSION_NOT_FOUND
        await one.fetch(epoch=FINAL)
        assert one.code() == ErrorCode.NONE
        assert len(broker.core.shares.sessions) == 0


async def test_there_are_so_many_sessions_and_no_more() -> None:
    async with (
        serving(group_share_max_share_sessions=1) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        one = await sharing(client)
        await one.fetch(0)
        two = Sharing(client, GROUP, one.topic)
        await two.fetch(0)
        assert two.code() == ErrorCode.SHARE_SESSION_LIMIT_REACHED


async def test_acknowledgements_that_contradict_themselves_change_nothing() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"a", b"b", b"c")
        one = await sharing(client)
        await one.fetch(0)
        cases: list[list[Said]] = [
            [(1, 0, [ACCEPT])],
            [(1, 1, [ACCEPT]), (0, 0, [ACCEPT])],
            [(0, 0, [])],
            [(0, 2, [ACCEPT, ACCEPT])],
            [(0, 0, [7])],
            [(0, 0, [RENEW])],
            [(0, 3, [ACCEPT])],
        ]
        for said in cases:
            code = (await one.say({0: said}))[1][0]
            assert code == ErrorCode.INVALID_REQUEST, said
        assert (await one.say({0: [(0, 2, [ACCEPT])]}))[1] == {0: ErrorCode.NONE}
        assert (await one.say({0: [(0, 2, [ACCEPT])]}))[1] == {0: ErrorCode.NONE}, "done with"
        beyond = {0: [(3, 3, [ACCEPT])]}
        assert (await one.say(beyond))[1] == {0: ErrorCode.INVALID_RECORD_STATE}, "nothing is held"
        assert (await one.say({1: [(0, 2, [ACCEPT])]}))[1] == {
            1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }


@pytest.mark.parametrize("how", ["fetch", "acknowledge"])
async def test_of_a_partition_that_is_named_twice_the_last_is_heard_and_answered_once(
    how: str,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", *(b"%d" % n for n in range(4)))
        one = await sharing(client)
        assert offsets(await one.fetch(0)) == [0, 1, 2, 3]
        rows = [
            ShareRequestPartition(
                partition_index=0,
                acknowledgement_batches=[
                    AcknowledgementBatch(
                        first_offset=first, last_offset=first + 1, acknowledge_types=[ACCEPT]
                    )
                ],
            )
            for first in (2, 0)
        ]
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=one.member,
            share_session_epoch=one.epoch,
            topics=[ShareRequestTopic(topic_id=one.topic, partitions=rows)],
        )
        if how == "fetch":
            fetch = ShareFetchRequest(
                group_id=GROUP,
                member_id=one.member,
                share_session_epoch=one.epoch,
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=0,
                batch_size=1,
                topics=[
                    ShareRequestTopic(
                        topic_id=one.topic,
                        partitions=[
                            ShareRequestPartition(
                                partition_index=0,
                                acknowledgement_batches=[
                                    AcknowledgementBatch(
                                        first_offset=batch.first_offset,
                                        last_offset=batch.last_offset,
                                        acknowledge_types=[ACCEPT],
                                    )
                                    for batch in row.acknowledgement_batches
                                ],
                            )
                            for row in rows
                        ],
                    )
                ],
                forgotten_topics_data=[],
            )
            fetched = await client.ask(fetch, ShareFetchResponse, VERSION)
            codes = [p.acknowledge_error_code for t in fetched.responses for p in t.partitions]
        else:
            said = await client.ask(request, ShareAcknowledgeResponse, VERSION)
            codes = [p.error_code for t in said.responses for p in t.partitions]
        assert codes == [0]
        assert broker.core.shares.start_offset(GROUP, one.topic, 0) == 2


@pytest.mark.parametrize("has_begun", [False, True])
async def test_who_deletes_a_group_that_begins_in_a_partition_gives_its_name_to_no_other(
    has_begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a new group then, of the same kind."""
    is_open = trio.Event()
    asked = trio.Event()

    async def held_up(*args: Any) -> Sequence[int | Exception]:  # noqa: ANN401
        asked.set()
        await is_open.wait()
        return await first_offsets(*args)

    async with broker_on(None, 2) as (_, (client, other)):
        await client.create("t", partitions=2)
        await client.produce("t", b"v")
        member = await sharing(client)
        if has_begun:
            await member.fetch(1)
        monkeypatch.setattr(beginnings, "first_offsets", held_up)
        await member.begin(0)
        await asked.wait()
        assert await delete(other) == 0
        refused = await ClassicMember(other).join()
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        is_open.set()
        assert offsets(await member.end()) == [0]
        assert await listed(other) == [(GROUP, "share", "Empty", "share")]


async def test_a_topic_that_is_deleted_ends_what_was_done_with_it() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        await client.create("t")
        await client.produce("t", b"a")
        one = await sharing(client)
        assert offsets(await one.fetch(0)) == [0]
        await one.begin(wait_ms=30_000)
        await broker.core.topics.delete_all(["t"])
        await one.end()
        await one.fetch(said={0: [(0, 0, [ACCEPT])]})
        assert one.rows[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert one.rows[0].acknowledge_error_code == ErrorCode.UNKNOWN_TOPIC_ID
        await other.create("t")
        await other.produce("t", b"b")
        two = Sharing(other, GROUP, await topic_id(other, "t"))
        assert [g.value for g in await two.fetch(0)] == [b"b"]
        assert broker.core.shares.find(GROUP, Place(one.topic, 0)) is None, "it left memory"


async def test_what_nobody_reads_any_more_leaves_memory() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", 2)
        await client.produce("t", b"a", partition=1)
        one = await sharing(client)
        shares, places = broker.core.shares, [Place(one.topic, 0), Place(one.topic, 1)]
        async with connect(broker.address) as other:
            two = Sharing(other, GROUP, one.topic)
            assert offsets(await two.fetch(0, 1)) == [0]
            assert await two.fetch(forgotten=[0, 1]) == []
            shares.keep_house()
            assert [shares.find(GROUP, place) is None for place in places] == [True, False]
            assert (await two.say({1: [(0, 0, [ACCEPT])]}))[1] == {1: ErrorCode.NONE}
            await two.fetch(0, 1)
            await two.begin(wait_ms=30_000)
            await wait_all_tasks_blocked(0.05)
            assert all(shares.find(GROUP, place) for place in places)
        with trio.fail_after(60):  # it is cut off while it waits
            while any(shares.find(GROUP, place) for place in places):
                await trio.lowlevel.checkpoint()


async def test_behind_what_nobody_gets_the_other_partitions_are_looked_at() -> None:
    """The first answer has room for the records of one partition, which were aborted."""
    async with (
        serving() as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        await client.create("t", 3)
        tx = Tx(client, "x", V2)
        await tx.init()
        assert not await tx.send("t", b"aborted" * 100)
        assert not await tx.end(commit=False)
        for partition in (1, 2):
            await client.produce("t", b"b" * 100, partition=partition)
        one = await sharing(client, share_isolation_level="read_committed")
        asked: dict[str, Any] = {"max_bytes": 300, "max_records": 1, "wait_ms": WAIT}
        assert [g.partition for g in await one.fetch(0, 1, 2, **asked)] == [1]
        assert [g.partition for g in await one.fetch(**asked)] == [2]
        await one.begin(**asked)
        await wait_all_tasks_blocked(0.05)
        await other.produce("t", b"later", partition=2)
        assert [g.value for g in await one.end()] == [b"later"]


async def test_all_groups_together_work_on_so_many_records_and_each_goes_on_with_a_few(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares_module, "OFFSETS_MAX", 60)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", 3)
        for partition in range(3):
            await client.produce("t", *(b"%d" % n for n in range(40)), partition=partition)
        one = await sharing(client)
        counts = [len(await one.fetch(n)) for n in range(3)]
        assert counts == [40, 40, LOCKS_WHERE_FULL]
        assert await one.fetch() == []
        assert len(events.named("share_groups_full")) == 1
        await one.say({2: [(0, 9, [ACCEPT])]})
        assert len(await one.fetch()) == 10
        await one.say({0: [(0, 39, [ACCEPT])]})
        assert len(await one.fetch()) == 14, "all that are left"
        assert len(events.named("share_groups_full")) == 1


async def test_a_broker_that_ends_answers_who_waits() -> None:
    async with AsyncExitStack() as stack:
        async with serving() as broker:
            client = await stack.enter_async_context(connect(broker.address))
            await client.create("t")
            one = await sharing(client)
            await one.fetch(0)
            await one.begin(wait_ms=600_000)
            await wait_all_tasks_blocked()
        assert await one.end() == []


async def delete_before(client: WireClient, topic: str, offset: int) -> None:
    row = DeleteRecordsRequestPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequestTopic(name=topic, partitions=[row])], timeout_ms=10_000
    )
    reply = await client.ask(request, DeleteRecordsResponse, 2)
    assert reply.topics[0].partitions[0].error_code == 0


async def test_who_may_not_read_its_group_any_more_gets_nothing_though_it_waits() -> None:
    async with guarded() as broker:
        await filled(broker)
        reads = rule(Operation.READ, ResourceType.GROUP, GROUP)
        await allow(broker, reads, rule(Operation.ALL, ResourceType.TOPIC, "t"))
        async with connect_from(ALICE, broker) as alice, connect_from(ALICE, broker) as producer:
            meta = broker.core.topics.get("t")
            assert meta is not None
            one = Sharing(alice, GROUP, meta.topic_id)
            await one.fetch(0)
            await one.begin(wait_ms=600_000)
            (session,) = broker.core.shares.sessions._sessions.values()
            await becomes(lambda: bool(session.waiters))
            assert broker.core.authorizer is not None
            done = trio.Event()
            broker.core.authorizer.delete([reads], lambda error: done.set())
            await done.wait()
            assert (await producer.produce("t", b"secret")).error_code == 0
            with trio.fail_after(60):
                assert await one.end() == []
            assert await one.fetch() == []
            assert one.code() == ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_who_may_not_read_a_topic_gets_nothing_of_it() -> None:
    async with guarded() as broker:
        await filled(broker)
        await allow(broker, rule(Operation.READ, ResourceType.GROUP, GROUP))
        async with connect_from(ALICE, broker) as alice:
            meta = broker.core.topics.get("t")
            assert meta is not None
            one = Sharing(alice, GROUP, meta.topic_id)
            await one.fetch(0)
            assert one.rows[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            said = await one.say({0: [(0, 0, [ACCEPT])]})
            assert said == (ErrorCode.NONE, {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
            await allow(broker, rule(Operation.READ, ResourceType.TOPIC, "t"))
            assert await one.fetch() == []
            assert 0 not in one.rows
