"""Share groups on a disk that is full now and then: what could not be written down is not done
with, and what was written behind it holds."""

import errno
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.server import Broker
from segbroker.broker.share_fetching.acknowledging import Acknowledging
from segbroker.protocol.errors import ErrorCode
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.metadata_log import Done
from segbroker.segments.wal.journal import Wal

from ..support.wire_client import WireClient
from ..support.wire_shares import (
    ACCEPT,
    FINAL,
    RELEASE,
    VERSION,
    Given,
    Said,
    Sharing,
    set_on_group,
)
from ..support.wire_shares import topic_id as id_of
from .restarts import broker_on, killed

GROUP = "g"
COUNT = 10
RARELY = {"housekeeping_interval_ms": 3_600_000}
"""Housekeeping writes again what could not be written: only at the word of the test."""
GONE_WELL, FAILED = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE
NO_FILE = OSError(errno.ENOSPC, "no room for another file")


class Full:
    """A write-ahead log that has no file for some events, and one for those behind them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._waiting: list[tuple[Wal, bytes, Done]] = []
        self._is_held = False
        self._writes = Wal.control_soon
        patch.setattr(Wal, "control_soon", lambda *event: self._take(*event))

    def _take(self, journal: Wal, payload: bytes, done: Done) -> None:
        if self._is_held:
            self._waiting.append((journal, payload, done))
        else:
            self._writes(journal, payload, done)

    async def fails(self, *asked: Callable[[], Awaitable[object]], count: int) -> None:
        """All is asked, one behind the other, before the first event is written; then the first
        `count` events fail, and the others do not."""
        self._is_held = True
        async with trio.open_nursery() as nursery:
            for ask in asked:
                nursery.start_soon(ask)
                await wait_all_tasks_blocked(0.05)
            self._is_held = False
            waiting, self._waiting = self._waiting, []
            assert len(waiting) >= count
            for place, (journal, payload, done) in enumerate(waiting):
                if place < count:
                    done(NO_FILE)
                else:
                    self._writes(journal, payload, done)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Full:
    return Full(monkeypatch)


async def begun(*clients: WireClient) -> list[Sharing]:
    """Members of a group that begins at the beginning of ten records."""
    await clients[0].create("t", retention_ms="-1")
    await clients[0].produce("t", *(b"%d" % n for n in range(COUNT)))
    await set_on_group(clients[0], GROUP, share_auto_offset_reset="earliest")
    topic = await id_of(clients[0], "t")
    return [Sharing(client, GROUP, topic) for client in clients]


def saying(
    answers: list[ErrorCode], member: Sharing, *said: Said
) -> Callable[[], Awaitable[object]]:
    """Have a member acknowledge; the answer is put behind the others."""

    async def say() -> None:
        answers.append((await member.say({0: said}))[1][0])

    return say


def settled(broker: Broker, disk: MemoryStorage) -> MemoryStorage:
    """The disk of a broker that is killed, with a snapshot that has no event that failed."""
    manager = broker.core.topics.manager
    manager.keep_house_now(broker.core.now_ms() + 120_000)
    assert manager.is_settled
    return killed(disk)


async def all_there_is(disk: MemoryStorage, member: Sharing) -> list[tuple[int, int]]:
    """What a group is given after the restart: offsets, and how often they were."""
    async with broker_on(disk) as (_, (client,)):
        given: list[Given] = await Sharing(client, GROUP, member.topic).fetch(0)
        return [(one.offset, one.deliveries) for one in given]


async def test_what_was_not_written_down_comes_again_though_what_is_behind_it_is_done(
    full: Full,
) -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2, **RARELY) as (broker, clients):
        one, two = await begun(*clients)
        assert len(await one.fetch(0, max_records=5, strict=True)) == 5
        assert len(await two.fetch(0)) == 5
        codes: list[ErrorCode] = []
        await full.fails(
            saying(codes, one, (0, 4, [ACCEPT])), saying(codes, two, (5, 9, [ACCEPT])), count=1
        )
        assert codes == [FAILED, GONE_WELL]
        after = settled(broker, disk)
    assert await all_there_is(after, one) == [(n, 1) for n in range(5)]


async def test_what_was_done_since_is_not_taken_back_by_what_could_not_be_written_before(
    full: Full,
) -> None:
    """A release that failed is written down later, when the records were given to somebody else,
    who is done with some of them."""
    disk = MemoryStorage()
    async with broker_on(disk, 3, **RARELY) as (broker, clients):
        one, two, three = await begun(*clients)
        assert len(await one.fetch(0, max_records=5, strict=True)) == 5
        codes: list[ErrorCode] = []

        async def released() -> None:
            await one.fetch(epoch=FINAL)

        async def given() -> None:
            assert len(await two.fetch(0, max_records=5, strict=True)) == 5

        await full.fails(released, given, saying(codes, two, (2, 3, [ACCEPT])), count=1)
        assert codes == [GONE_WELL]
        assert [one.offset for one in await three.fetch(0)] == [5, 6, 7, 8, 9]
        assert (await three.say({0: [(5, 9, [ACCEPT])]}))[1] == {0: GONE_WELL}
        after = settled(broker, disk)
    assert await all_there_is(after, one) == [(0, 2), (1, 2), (4, 2)]


@pytest.mark.parametrize("by", ["who says more", "the broker itself"])
async def test_of_two_events_that_fail_behind_each_other_nothing_is_forgotten(
    full: Full, by: str
) -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2, **RARELY) as (broker, clients):
        one, two = await begun(*clients)
        assert len(await one.fetch(0)) == COUNT

        async def released() -> None:
            await one.fetch(epoch=FINAL)

        await full.fails(released, count=1)
        assert len(await two.fetch(0, max_records=4, strict=True)) == 4
        codes: list[ErrorCode] = []
        await full.fails(saying(codes, two, (0, 0, [ACCEPT])), count=1)
        assert codes == [FAILED]
        if by == "who says more":
            assert (await two.say({0: [(1, 1, [RELEASE])]}))[1] == {0: GONE_WELL}
        else:
            broker.core.shares.keep_house()
            await wait_all_tasks_blocked(0.05)
        after = settled(broker, disk)
    often = {1: 3} if by == "who says more" else {}
    assert await all_there_is(after, one) == [(n, often.get(n, 2)) for n in range(COUNT)]


async def test_a_record_whose_last_delivery_ended_is_not_given_again_though_that_was_not_written(
    full: Full,
) -> None:
    """With the record the start went on, and nobody is left who fetches from the partition."""
    disk = MemoryStorage()
    async with broker_on(disk, 3, **RARELY) as (broker, clients):
        one, two, three = await begun(*clients)
        await set_on_group(clients[0], GROUP, share_delivery_count_limit="2")
        for member, said in ((one, [RELEASE]), (two, [])):
            (record,) = await member.fetch(0, max_records=1, strict=True)
            assert record.offset == 0
            if said:
                assert (await member.say({0: [(0, 0, said)]}))[1] == {0: GONE_WELL}

        async def ended() -> None:
            await one.fetch(epoch=FINAL)
            await two.fetch(epoch=FINAL)

        await full.fails(ended, count=1)
        left = [(record.offset, record.deliveries) for record in await three.fetch(0)]
        assert left == [(n, 1) for n in range(1, COUNT)]
        await three.fetch(epoch=FINAL)
        broker.core.shares.keep_house()
        await wait_all_tasks_blocked(0.05)
        after = settled(broker, disk)
    assert await all_there_is(after, one) == [(n, 2) for n in range(1, COUNT)]


async def test_what_was_said_in_vain_is_taken_back_where_its_session_has_ended_meanwhile(
    full: Full,
) -> None:
    async with broker_on(MemoryStorage(), 2, **RARELY) as (broker, clients):
        one, two = await begun(*clients)
        assert len(await one.fetch(0)) == COUNT

        async def say() -> None:
            await one.client.send(one.saying({0: [(0, COUNT - 1, [ACCEPT])]}), VERSION)

        await full.fails(say, one.client.stream.aclose, count=1)
        given = await two.fetch(0, wait_ms=20_000)
        assert [(each.offset, each.deliveries) for each in given] == [(n, 2) for n in range(COUNT)]
        assert len(broker.core.shares.sessions) == 1


async def test_acknowledgements_that_meet_a_bug_end_their_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are answered by a task, which nobody waits for but the client."""

    async def broken(_: Acknowledging) -> None:
        raise ZeroDivisionError("planted")

    async with broker_on(MemoryStorage(), 2) as (_, clients):
        one, two = await begun(*clients)
        assert len(await one.fetch(0)) == COUNT
        monkeypatch.setattr(Acknowledging, "settle", broken)
        await one.client.send(one.saying({0: [(0, COUNT - 1, [ACCEPT])]}), VERSION)
        with trio.fail_after(60):
            assert await one.client.is_closed()
        assert await two.fetch(0) == []  # others are served
