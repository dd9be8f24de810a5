"""Share groups over the end of their broker: what was acknowledged never comes again, nothing is
left out, and counts of deliveries do not fall behind what was written down.

A record whose last delivery ends with its member's session is archived, as in Kafka.  That is
written down beside: after a kill it either holds, or the record is given once more.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from random import Random
from uuid import UUID

import pytest

from segbroker.broker.server import Broker
from segbroker.segments.disk.memory import MemoryStorage

from ..support.wire_client import connect
from ..support.wire_shares import (
    ACCEPT,
    FINAL,
    REJECT,
    RELEASE,
    Given,
    Sharing,
    set_on_group,
    topic_id,
)
from .restarts import broker_on, cut_off, killed

GROUP = "g"
PARTITIONS = 2
LIVES = 6
STEPS = 25
WAIT_MS = 20_000
DELIVERIES = 5
LOCK_MS = 600_000
"""No lock ends by time, however slow the machine is."""


class Life:
    """Some members on one broker, and what is known of all records since the first."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.sent: set[bytes] = set()
        self.done: set[bytes] = set()
        """Of which an acknowledgement was answered."""
        self.deliveries: dict[bytes, int] = {}
        """As they were when that was last written down."""
        self.archived: set[bytes] = set()
        """Whose last delivery ended with a session of this life."""
        self.archived_perhaps: set[bytes] = set()
        """Likewise in an earlier life."""
        self.mine: dict[Sharing, dict[tuple[int, int], Given]] = {}

    def begin(self, members: list[Sharing]) -> None:
        """On a new broker."""
        self.archived_perhaps |= self.archived
        self.archived.clear()
        self.mine = {member: {} for member in members}

    def take(self, member: Sharing, given: list[Given]) -> None:
        for one in given:
            assert one.value is not None
            assert one.value not in self.done | self.archived, f"{one.value!r} comes again"
            self.archived_perhaps.discard(one.value)  # that it was archived was not written down
            assert one.deliveries > self.deliveries.get(one.value, 0), one.value
            self.mine[member][one.partition, one.offset] = one

    async def step(self, members: list[Sharing]) -> None:
        member = self.random.choice(members)
        mine = self.mine[member]
        what = self.random.random()
        if what < 0.3:
            partition = self.random.randrange(PARTITIONS)
            values = [b"%d" % (len(self.sent) + n) for n in range(self.random.randint(1, 5))]
            assert not (await member.client.produce("t", *values, partition=partition)).error_code
            self.sent.update(values)
        elif what < 0.6 or not mine:
            asked = () if member.epoch else range(PARTITIONS)
            self.take(member, await member.fetch(*asked, max_records=self.random.randint(1, 8)))
        elif what < 0.95:
            await self.acknowledge(member)
        else:
            await member.fetch(epoch=FINAL)
            for one in mine.values():
                if one.deliveries == DELIVERIES:
                    assert one.value is not None
                    self.archived.add(one.value)
            mine.clear()
            member.epoch = 0

    async def acknowledge(self, member: Sharing) -> None:
        mine = self.mine[member]
        some = sorted(self.random.sample(sorted(mine), self.random.randint(1, len(mine))))
        types = {place: self.random.choice((ACCEPT, ACCEPT, RELEASE, REJECT)) for place in some}
        said = {
            partition: [(o, o, [kind]) for (p, o), kind in types.items() if p == partition]
            for partition in {p for p, _ in some}
        }
        code, codes = await member.say(said)
        assert not code
        assert not any(codes.values()), codes
        for place, kind in types.items():
            one = mine.pop(place)
            assert one.value is not None
            self.deliveries[one.value] = one.deliveries
            if kind != RELEASE or one.deliveries == DELIVERIES:
                self.done.add(one.value)


@pytest.mark.parametrize("ended", [killed, cut_off])
@pytest.mark.parametrize("seed", [*range(6), 20])  # in 20 sessions end with last deliveries
async def test_what_is_done_never_comes_again_and_nothing_is_left_out(
    seed: int, ended: Callable[[MemoryStorage], MemoryStorage]
) -> None:
    random = Random(seed)
    disk = MemoryStorage()
    life = Life(random)
    async with broker_on(disk) as (_, (client,)):
        await client.create("t", PARTITIONS)
        await set_on_group(client, GROUP, share_auto_offset_reset="earliest")
    locks = {"group_share_record_lock_duration_ms": LOCK_MS}
    for _ in range(LIVES):
        async with broker_on(disk, **locks) as (broker, _), AsyncExitStack() as stack:
            members = []
            for _ in range(3):
                client = await stack.enter_async_context(connect(broker.address))
                members.append(Sharing(client, GROUP, await topic_id(client, "t")))
            life.begin(members)
            for _ in range(STEPS):
                await life.step(members)
            after = ended(disk)
        disk = after
    async with broker_on(disk, **locks) as (broker, (client,)):
        member = Sharing(client, GROUP, await topic_id(client, "t"))
        life.begin([member])
        given = await member.fetch(*range(PARTITIONS))
        while True:
            life.take(member, given)
            said = {
                index: [(g.offset, g.offset, [ACCEPT]) for g in given if g.partition == index]
                for index in {g.partition for g in given}
            }
            code, codes = await member.say(said)
            assert not code
            assert not any(codes.values())
            life.done.update(g.value for g in given if g.value is not None)
            if is_done_with_all(broker, member.topic):
                break
            given = await member.fetch(wait_ms=WAIT_MS)
            assert given, f"not given: {sorted(life.sent - life.done)}"
    left_out = life.sent - life.done
    assert left_out <= life.archived_perhaps, sorted(left_out - life.archived_perhaps)


def is_done_with_all(broker: Broker, topic: UUID) -> bool:
    """Whether the group has nothing left to do, as its broker says."""
    for partition in range(PARTITIONS):
        served = broker.core.topics.served_partition("t", partition)
        assert served is not None
        if (
            broker.core.shares.start_offset(GROUP, topic, partition)
            != served.handler.high_watermark
        ):
            return False
    return True
