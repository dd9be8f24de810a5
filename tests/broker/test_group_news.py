"""What groups tell of themselves for the log: who came and went, and why a rebalance began."""

import pytest
from structlog.typing import EventDict

from segbroker.broker import limited_lines
from segbroker.broker.groups import group_news
from segbroker.broker.groups.consumer_group import ConsumerGroup
from segbroker.broker.groups.consumer_members import Beat
from segbroker.broker.groups.group import Group
from segbroker.broker.groups.group_lines import GroupLines
from segbroker.broker.groups.group_news import News, Who
from segbroker.broker.groups.member_epochs import LEAVE_FOR_A_WHILE
from segbroker.broker.groups.share_group import ShareGroup
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
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

from ..support.wire_client import connect
from ..support.wire_groups import WireMember
from ..support.wire_transactions import Tx
from . import test_consumer_group as consumers
from . import test_group as classics
from . import test_mixed_group as mixed
from . import test_share_group as shares
from .conftest import Events, serving
from .group_topics import topics_of

# Event, reason, member: as far as a test of a state machine looks.
Line = tuple[str, str, str]


def listening(group: Group | ConsumerGroup | ShareGroup) -> list[News]:
    """What a group tells from now on."""
    heard: list[News] = []
    group.tell = heard.append
    return heard


def lines(heard: list[News]) -> list[Line]:
    """And nothing of it again."""
    found = [(one.event, one.reason, one.who.member_id if one.who else "") for one in heard]
    heard.clear()
    return found


def test_a_classic_group_tells_who_joined_and_when_it_is_stable() -> None:
    shared = classics.group()
    heard = listening(shared)
    one, two = classics.Client(shared), classics.Client(shared)
    classics.stable(one)
    first = one.member_id
    assert heard[-1] == News("group_stable", 1, 1)
    assert lines(heard) == [
        ("group_member_joined", "", first),
        ("group_rebalance_began", "member joined", first),
        ("group_stable", "", ""),
    ]
    two.join(1)
    one.join(2)
    second = two.member_id
    assert heard[1] == News(
        "group_rebalance_began", 1, 2, "member joined", Who(second, None, "client", "host")
    )
    assert [event for event, _, _ in lines(heard)] == [
        "group_member_joined",
        "group_rebalance_began",
    ]
    one.heartbeat(3)
    one.sync(4)
    assert heard == [News("group_stable", 2, 2)], "nothing for a heartbeat"


@pytest.mark.parametrize(
    ("named", "by", "why"),
    [
        (True, "client", "left"),
        (True, "adminclient-1", "removed by an administrator"),
        (False, "client", "removed by an administrator"),  # a member knows its id
    ],
)
def test_a_classic_group_tells_who_left_from_whom_an_administrator_removed(
    *, named: bool, by: str, why: str
) -> None:
    shared = classics.group()
    one = classics.Client(shared, instance="i")
    classics.stable(one)
    heard = listening(shared)
    shared.leave(1, one.member_id if named else "", "i", "it hangs", by)
    assert heard[0].said == "it hangs"
    assert lines(heard) == [("group_member_removed", why, one.member_id), ("group_empty", "", "")]


async def test_a_member_that_another_client_removes_is_told_as_such(events: Events) -> None:
    async with (
        serving() as broker,
        connect(broker.address, client_id="app-7") as client,
        connect(broker.address, client_id="adminclient-1") as admin,
    ):
        member = WireMember(client)
        await member.join()
        await member.deal()
        leaving = LeaveGroupRequestMember(member_id=member.member_id)
        request = LeaveGroupRequest(group_id=member.group, members=[leaving])
        reply = await admin.ask(request, LeaveGroupResponse, 5)
        assert [one.error_code for one in reply.members] == [0]
    (line,) = events.named("group_member_removed")
    assert line["reason"] == "removed by an administrator"


def test_a_classic_group_tells_why_a_member_is_gone() -> None:
    shared = classics.group()
    one, two, three = (classics.Client(shared) for _ in range(3))
    classics.stable(one, two, three)
    heard = listening(shared)
    shared.leave(1, three.member_id, None, "the consumer is being closed")
    assert {news.said for news in heard} == {"the consumer is being closed"}
    assert lines(heard) == [
        ("group_member_removed", "left", three.member_id),
        ("group_rebalance_began", "left", three.member_id),
    ]
    one.join(2)
    one.heartbeat(classics.SESSION_MS)
    shared.tick(classics.SESSION_MS)
    assert lines(heard) == [("group_member_removed", "session ended", two.member_id)]
    now = 3 * classics.SESSION_MS + classics.REBALANCE_MS
    shared.tick(now)
    assert ("group_empty", "", "") in lines(heard)


def test_a_classic_group_tells_who_was_too_slow_in_a_rebalance() -> None:
    shared = classics.group()
    one, two = classics.Client(shared), classics.Client(shared)
    classics.stable(one)
    heard = listening(shared)
    two.join(0)
    for now in range(0, classics.REBALANCE_MS, 3000):
        one.heartbeat(now)
        shared.tick(now)
    shared.tick(classics.REBALANCE_MS)
    assert lines(heard)[2:] == [("group_member_removed", "did not join in time", one.member_id)]
    for now in range(classics.REBALANCE_MS, 2 * classics.REBALANCE_MS, 3000):
        two.heartbeat(now)
        shared.tick(now)
    shared.tick(2 * classics.REBALANCE_MS)
    assert lines(heard) == [
        ("group_member_removed", "did not sync in time", two.member_id),
        ("group_empty", "", ""),
    ]


def test_a_disk_that_hangs_is_not_laid_to_members_that_have_synced() -> None:
    disk = classics.Disk()
    shared = classics.group(record=disk.record)
    one = classics.Client(shared)
    one.join(0)
    one.sync(1)
    heard = listening(shared)
    shared.tick(classics.REBALANCE_MS)
    assert lines(heard) == [("group_rebalance_began", "generation could not be recorded", "")]


def test_a_classic_group_tells_that_a_static_member_was_replaced_or_joined_again() -> None:
    shared = classics.group()
    old, new = classics.Client(shared, "a"), classics.Client(shared, "a")
    classics.stable(old)
    heard = listening(shared)
    new.join(1)
    assert lines(heard) == [
        ("group_member_removed", "replaced by the same static member", old.member_id),
        ("group_member_joined", "", new.member_id),
    ]
    new.join(2)
    assert lines(heard) == [("group_rebalance_began", "member joined again", new.member_id)]
    new.sync(3, {})
    heard.clear()
    new.join(4, {"range": b"other"})
    assert lines(heard) == [("group_rebalance_began", "subscription changed", new.member_id)]


def test_a_consumer_group_tells_each_rise_of_its_epoch_and_when_all_have_followed() -> None:
    some = consumers.group()
    heard = listening(some)
    one, two = consumers.Client(some, "one"), consumers.Client(some, "two")
    one.join()
    assert lines(heard) == [
        ("group_member_joined", "", "one"),
        ("group_rebalance_began", "member joined", "one"),
        ("group_stable", "", ""),
    ]
    two.join()
    consumers.settle(one, two)
    assert heard[-1] == News("group_stable", 2, 2)
    assert [event for event, _, _ in lines(heard)] == [
        "group_member_joined",
        "group_rebalance_began",
        "group_stable",
    ]
    one.topics = two.topics = topics_of(a=6, b=2)
    consumers.settle(one, two)
    one.beat = one.beat._replace(names=frozenset("b"))
    one.heartbeat(full=True)
    assert [reason for _, reason, _ in lines(heard)] == [
        "topics changed",
        "",
        "subscription changed",
    ]


def test_a_consumer_group_tells_why_a_member_is_gone() -> None:
    some = consumers.group()
    slow, other = consumers.Client(some, "slow"), consumers.Client(some, "other")
    slow.join()
    other.join()
    slow.heartbeat()  # told to let go
    heard = listening(some)
    for now in range(0, consumers.REBALANCE_MS, 10_000):
        some.heartbeat(now, Beat("slow", slow.epoch), consumers.TOPICS)
        other.heartbeat(now)
        some.tick(now)
    other.heartbeat(consumers.REBALANCE_MS)
    some.tick(consumers.REBALANCE_MS)
    why = "did not let go of partitions in time"
    assert lines(heard) == [
        ("group_member_removed", why, "slow"),
        ("group_rebalance_began", why, "slow"),
    ]
    slow.join(consumers.REBALANCE_MS)
    heard.clear()
    some.expel(consumers.REBALANCE_MS, "slow", None, "it hangs")
    assert [(one.reason, one.said) for one in heard] == [
        ("removed by an administrator", "it hangs")
    ] * 2
    heard.clear()
    some.tick(10 * consumers.REBALANCE_MS)
    assert lines(heard) == [
        ("group_member_removed", "session ended", "other"),
        ("group_empty", "", ""),
    ]


def test_a_group_that_turned_tells_that_a_classic_member_did_not_join_again() -> None:
    one = mixed.Classic(cooperative=True)
    life, _, _ = mixed.one_and_a_consumer(one)
    life.turn_back_and_again()
    heard = listening(life.group)
    while life.now_ms < consumers.REBALANCE_MS:
        life.step(one, heard=False)
        life.beat(life.clients[0], heard=True)
        life.now_ms += 10_000
    assert one.next == "beat", "it was not told that it is to join"
    life.group.tick(life.now_ms)
    assert lines(heard)[0] == ("group_member_removed", "did not join in time", one.member_id)


def test_a_consumer_group_tells_that_a_static_member_is_away_and_back() -> None:
    some = consumers.group()
    old = consumers.Client(some, "old", instance="a")
    new = consumers.Client(some, "new", instance="a")
    old.join()
    heard = listening(some)
    old.leave(epoch=LEAVE_FOR_A_WHILE)
    new.join()
    assert lines(heard) == [
        ("group_member_away", "", "old"),
        ("group_member_removed", "replaced by the same static member", "old"),
        ("group_member_joined", "", "new"),
    ]


def test_a_share_group_tells_who_joined_and_why_a_member_is_gone() -> None:
    some = shares.group()
    heard = listening(some)
    shares.join(some, "m")
    shares.join(some, "n", now_ms=1)
    assert lines(heard) == [
        ("group_member_joined", "", "m"),
        ("group_rebalance_began", "member joined", "m"),
        ("group_member_joined", "", "n"),
        ("group_rebalance_began", "member joined", "n"),
    ]
    some.tick(shares.SESSION_MS)
    some.heartbeat(shares.SESSION_MS, Beat("n", -1), shares.TOPICS)
    assert lines(heard) == [
        ("group_member_removed", "session ended", "m"),
        ("group_rebalance_began", "session ended", "m"),
        ("group_member_removed", "left", "n"),
        ("group_empty", "", ""),
    ]


def test_lines_are_so_many_a_minute_for_one_group_and_for_all(events: Events) -> None:
    told = GroupLines()
    news = News(group_news.STABLE, 1, 1)
    for _ in range(limited_lines.OF_ONE_MAX + 5):
        told.of("noisy", "classic")(news)
    told.of("calm", "consumer")(news)
    assert [line["group"] for line in events] == ["noisy"] * limited_lines.OF_ONE_MAX + ["calm"]
    for number in range(limited_lines.LINES_MAX):
        told.of(f"group {number}", "share")(news)
    assert len(events) == limited_lines.LINES_MAX
    events.clear()
    told.keep_house(limited_lines.WINDOW_S)
    omitted = 5 + limited_lines.OF_ONE_MAX + 1
    assert events == [
        {"event": "group_lines_omitted", "level": "info", "group_stable_count": omitted}
    ]
    told.of("noisy", "classic")(news)
    assert events[1:] == [
        {
            "event": "group_stable",
            "level": "info",
            "group": "noisy",
            "type": "classic",
            "generation": 1,
            "members": 1,
        }
    ]


async def test_the_log_names_the_client_and_its_reason_and_no_more_of_them_than_fits(
    events: Events,
) -> None:
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address, client_id="app-7") as client,
    ):
        joining = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            group_instance_id="i-1",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            reason="because " * 1_000,
        )
        joined = await client.ask(joining, JoinGroupResponse, 8)
        share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
        syncing = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=joined.member_id,
            group_instance_id="i-1",
            protocol_type="consumer",
            protocol_name="range",
            assignments=[share],
        )
        await client.ask(syncing, SyncGroupResponse, 5)
        leaving = LeaveGroupRequest(
            group_id="g",
            members=[
                LeaveGroupRequestMember(
                    member_id=joined.member_id, group_instance_id="i-1", reason="done"
                )
            ],
        )
        await client.ask(leaving, LeaveGroupResponse, 5)
        await client.ask(DeleteGroupsRequest(groups_names=["g"]), DeleteGroupsResponse, 2)
    heard = [line for line in events if line["event"].startswith("group_")]
    assert [line["event"] for line in heard] == [
        "group_member_joined",
        "group_rebalance_began",
        "group_stable",
        "group_member_removed",
        "group_empty",
        "group_deleted",
    ]
    named: EventDict = {
        "member": joined.member_id,
        "instance": "i-1",
        "client_id": "app-7",
        "host": "127.0.0.1",
    }
    assert all(heard[1][key] == value for key, value in named.items())
    assert heard[1]["client_reason"] == ("because " * 32) + "…"
    assert heard[5]["asked_by"] == "User:ANONYMOUS"
    assert heard[5]["asked_from"] == "127.0.0.1"
    assert heard[3] == {
        "event": "group_member_removed",
        "level": "info",
        "group": "g",
        "type": "classic",
        "generation": 1,
        "members": 0,
        "reason": "left",
        "client_reason": "done",
        **named,
    }


async def test_a_producer_that_another_one_fences_is_told_once(events: Events) -> None:
    async with (
        serving() as broker,
        connect(broker.address, client_id="first") as first,
        connect(broker.address, client_id="second") as second,
    ):
        await first.create("t")
        old, new = Tx(first, "tx"), Tx(second, "tx")
        assert await old.init() == 0
        assert await old.init(producer_id=old.producer_id, producer_epoch=old.epoch) == 0
        assert not events.named("producer_fenced"), "it went on anew itself"
        await old.add("t", 0)
        assert await new.init() == 0
        (line,) = events.named("producer_fenced")
        assert line == {
            "event": "producer_fenced",
            "level": "info",
            "transactional_id": "tx",
            "producer_id": old.producer_id,
            "epoch": old.epoch,
            "partitions": 1,
            "aborts": True,
            "client_id": "second",
            "host": "127.0.0.1",
        }
        assert await new.init() == 0
        assert [one["aborts"] for one in events.named("producer_fenced")] == [True, False]
