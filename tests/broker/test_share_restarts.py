"""Share groups over the end of their broker: what was acknowledged never comes again, nothing is
left out, and counts of deliveries do not fall behind what was written down."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from random import Random

import pytest

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
from .test_group_restarts import broker_on, cut_off, killed

GROUP = "g"
PARTITIONS = 2
LIVES = 6
STEPS = 25
WAIT_MS = 20_000


class Life:
    """Some members on one broker, and what is known of all records since the first."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.sent: set[bytes] = set()
        self.done: set[bytes] = set()
        """Of which an acknowledgement was answered."""
        self.deliveries: dict[bytes, int] = {}
        """As they were when that was last written down."""
        self.mine: dict[Sharing, dict[tuple[int, int], Given]] = {}

    def take(self, member: Sharing, given: list[Given]) -> None:
        for one in given:
            assert one.value is not None
            assert one.value not in self.done, f"{one.value!r} comes again"
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
            await member.fetch(epoch=FINAL)  # what it has is written down beside
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
            if kind != RELEASE or one.deliveries == 5:
                self.done.add(one.value)


@pytest.mark.parametrize("ended", [killed, cut_off])
@pytest.mark.parametrize("seed", range(6))
async def test_what_is_done_never_comes_again_and_nothing_is_left_out(
    seed: int, ended: Callable[[MemoryStorage], MemoryStorage]
) -> None:
    random = Random(seed)
    disk = MemoryStorage()
    life = Life(random)
    async with broker_on(disk) as (_, (client,)):
        await client.create("t", PARTITIONS)
        await set_on_group(client, GROUP, share_auto_offset_reset="earliest")
    for _ in range(LIVES):
        async with broker_on(disk) as (broker, _), AsyncExitStack() as stack:
            members = []
            for _ in range(3):
                client = await stack.enter_async_context(connect(broker.address))
                members.append(Sharing(client, GROUP, await topic_id(client, "t")))
            life.mine = {member: {} for member in members}
            for _ in range(STEPS):
                await life.step(members)
            after = ended(disk)
        disk = after
    async with broker_on(disk) as (broker, (client,)):
        member = Sharing(client, GROUP, await topic_id(client, "t"))
        life.mine = {member: {}}
        given = await member.fetch(*range(PARTITIONS))
        while life.sent != life.done:
            life.take(member, given)
            said = {
                index: [(g.offset, g.offset, [ACCEPT]) for g in given if g.partition == index]
                for index in {g.partition for g in given}
            }
            code, codes = await member.say(said)
            assert not code
            assert not any(codes.values())
            life.done.update(g.value for g in given if g.value is not None)
            if life.sent == life.done:
                break
            given = await member.fetch(wait_ms=WAIT_MS)
            assert given, f"left out: {sorted(life.sent - life.done)}"
        for partition in range(PARTITIONS):
            served = broker.core.topics.served_partition("t", partition)
            assert served is not None
            start = broker.core.shares.start_offset(GROUP, member.topic, partition)
            assert start == served.handler.high_watermark
