"""Members of consumer groups: they join, read, commit, leave in order, or die without a word.

A member of a classic group is the real client, and so is every second of a KIP-848 group; the
others, who doze, are in consumer_members.py, those of a streams group in streams_members.py.
One that dies says no goodbye, so that its session has to end before somebody else has its
partitions; where sessions are long, members are static, and the next life takes the place of the
last.  What the broker tells and takes is judged on the wire (ledger.py); here each stretch of
reading between two changes of what a member has is a reader of its own in the history.

In calm a group has to stand at the end of every partition, within its sessions and rebalances.
"""

from collections.abc import Callable, Iterator
from typing import Any

import trio

from segbroker.client import AsyncConsumer
from segbroker.client.errors import SegbrokerError

from .clients import BOOTSTRAP
from .consumer_members import ConsumerMember
from .history import History, Key
from .ledger import Ledger
from .lives import live_again
from .network import Network
from .plan import Group, Plan
from .streams_members import StreamsMember
from .world import World


class Groups:
    """All members of all groups of a run."""

    def __init__(
        self, world: World, plan: Plan, history: History, ledger: Ledger, network: Network
    ) -> None:
        self.world = world
        self.network = network
        self.plan = plan
        self.history = history
        self.ledger = ledger
        self.random = world.stream("groups")

    async def run(self, until: Callable[[], bool]) -> None:
        """Everybody, until `until`."""
        async with trio.open_nursery() as nursery:
            for group in self.plan.groups:
                for number in range(group.members):
                    nursery.start_soon(self._member, group, number, until)

    async def _member(self, group: Group, number: int, until: Callable[[], bool]) -> None:
        name = f"{group.name}{number}"

        async def live(life: int, scope: trio.CancelScope, dies: bool) -> None:
            await self._life(group, name, number, life).run(until, scope, dies=dies)

        duration_s, count = self.plan.duration_s, group.lives
        await live_again(
            self.world, self.random, duration_s, name, count, until, live, word="member"
        )

    def _life(
        self, group: Group, who: str, number: int, life: int
    ) -> "_Life | ConsumerMember | StreamsMember":
        name = f"{who}.{life}"
        if group.protocol == "classic" or (group.protocol == "consumer" and number % 2):
            return _Life(self, group, name, who if group.is_static else None)
        parts = (self.world, self.network, self.history, self.ledger, self.random, group, name)
        if group.protocol == "streams":
            return StreamsMember(*parts, number)
        return ConsumerMember(*parts)

    def behind(self, end_of: Callable[[str, int], int | None]) -> Iterator[str]:
        """Where a group does not stand at the end; `end_of` tells that of a partition."""
        for group in self.plan.groups:
            topic = self.plan.topic(group.topic)
            for partition in range(topic.partitions):
                stands = self.ledger.stands.get((group.name, topic.name, partition), 0)
                end = end_of(topic.name, partition)
                if end is None or stands < end:
                    yield f"{group.name} stands at {stands} of {topic.name}-{partition}, not {end}"


class _Life:
    """One life of a member."""

    def __init__(self, groups: Groups, group: Group, name: str, instance_id: str | None) -> None:
        self.world = groups.world
        self.history = groups.history
        self.random = groups.random
        self.group = group
        self.name = name
        self.instance_id = instance_id
        self._stretch = 0

    async def run(self, until: Callable[[], bool], scope: trio.CancelScope, *, dies: bool) -> None:
        """Read and commit until `until`, or until `scope` ends it."""
        of_protocol: Any = {"group_protocol": "consumer"}
        if self.group.protocol == "classic":
            of_protocol = {
                "assignors": self.group.assignors,
                "session_timeout_ms": self.group.session_timeout_ms,
                "heartbeat_interval_ms": max(50, self.group.session_timeout_ms // 5),
            }
        consumer = AsyncConsumer(
            BOOTSTRAP,
            self.group.topic,
            group=self.group.name,
            client_id=self.name,
            instance_id=self.instance_id,
            rebalance_timeout_ms=5_000,
            max_poll_interval_ms=5_000,
            auto_commit=False,
            fetch_wait_ms=200,
            request_timeout_ms=8_000,
            api_timeout_ms=20_000,
            on_gap="skip",
            on_revoked=self._changed,
            on_lost=self._changed,
            **of_protocol,
        )
        if dies:
            consumer._say_goodbye = _silence  # type: ignore[method-assign]
        async with consumer:
            while not until():
                try:
                    records = await consumer.poll(max_records=10, timeout_ms=300)
                    for record in records:
                        self._read((record.topic, record.partition), record.offset, record.value)
                    if (records and self.random.random() < 0.7) or not records:
                        await consumer.commit()
                except SegbrokerError as exc:
                    self.world.trace("member_stumbled", self.name, type(exc).__name__)
                    await trio.sleep(0.05)
                if self.group.pause_s:
                    await trio.sleep(self.random.uniform(0, self.group.pause_s))

    def _changed(self, partitions: Any) -> None:  # noqa: ANN401 - whatever a listener is given
        self._stretch += 1

    def _read(self, key: Key, offset: int, value: bytes | None) -> None:
        assert value is not None, "no tombstones are sent"
        self.world.trace("member_read", self.name, key[1], offset)
        self.history.read(f"{self.name}/{self._stretch}", key, offset, value)


async def _silence(hurried: bool) -> None:
    """Say nothing."""
