"""Members of share groups: they accept, release, reject, keep records for long, leave, and die.

A member is the real client.  It says of every record what it wants at once, later, or never: then
the lock ends.  One that dies says no goodbye; the next life is another member.  What the broker
hands out and takes is judged on the wire (share_ledger.py); here, what a member is told by its
client: what a commit has confirmed was answered on the wire.

In calm all accept whatever they get, and a group has to be done with every record soon; then each
record from its beginning on must be accounted for.  Of a group that works on what is committed:
each record of a committed transaction, and it must have been given no other.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Never, cast

import trio

from segbroker.broker.core import Core
from segbroker.client import AsyncShareConsumer
from segbroker.client.acknowledging import Kind, ShareRecord
from segbroker.client.errors import AcknowledgeFailed, SegbrokerError

from .clients import BOOTSTRAP
from .history import History, Key
from .lives import live_again
from .plan import Plan, ShareGroup
from .share_ledger import Place, ShareLedger
from .world import World

KINDS = {Kind.ACCEPT: 12, Kind.RELEASE: 3, Kind.REJECT: 1, Kind.RENEW: 1, None: 3}
"""What a member says of a record, and how often; None: nothing for now."""
DOZES = 0.03
"""The share of the rounds in which a member works at its records for longer than a lock lasts."""


class Shares:
    """All members of all share groups of a run."""

    def __init__(self, world: World, plan: Plan, history: History, ledger: ShareLedger) -> None:
        self.world = world
        self.plan = plan
        self.history = history
        self.ledger = ledger
        self.random = world.stream("share groups")
        self.is_calm = False
        self.given: dict[tuple[str, Key], dict[int, bytes]] = defaultdict(dict)
        """What the members of each group were given, by offset."""
        for group in plan.share_groups:
            ledger.limits[group.name] = (group.deliveries, group.lock_ms)
            if plan.topic(group.topic).retention:
                ledger.losing.add(group.name)

    async def run(self, until: Callable[[], bool]) -> None:
        """Everybody, until `until`."""
        async with trio.open_nursery() as nursery:
            for group in self.plan.share_groups:
                for number in range(group.members):
                    nursery.start_soon(self._member, group, f"{group.name}{number}", until)

    async def _member(self, group: ShareGroup, name: str, until: Callable[[], bool]) -> None:
        async def live(life: int, _: trio.CancelScope, dies: bool) -> None:
            await _Life(self, group, f"{name}.{life}").run(until, dies=dies)

        duration_s, count = self.plan.duration_s, group.lives
        await live_again(
            self.world, self.random, duration_s, name, count, until, live, word="sharer"
        )

    # In calm

    def behind(self, core: Core) -> Iterator[str]:
        """Where a group is not done with all records."""
        for place, key in self._places(core):
            meta = core.topics.all[key[0]]
            lag = core.shares.lag(place[0], meta, key[1])
            if lag != 0:
                yield f"share group {place[0]} is not done with {lag} of {key[0]}-{key[1]}"

    def judge(self, core: Core, committed: Mapping[Key, Mapping[bytes, int]]) -> None:
        """Nothing was left out; needs the `final` of each partition.

        committed: what is committed of partitions with transactions, and at which offsets.
        """
        for place, key in self._places(core):
            final = self.history.finals[key]
            group = next(group for group in self.plan.share_groups if group.name == place[0])
            # A group that begins at the end has to go on from its first record.
            begin = 0 if group.reset == "earliest" else self.ledger.begins(place)
            if begin is None:
                continue
            offsets = [offset for offset, _ in final.rows]
            if group.isolation == "read_committed":
                offsets = sorted(committed[key].values())
                self._judge_given(group, key, committed[key])
            left_out = self.ledger.left_out(place, begin, offsets)
            if left_out:
                self.world.lapse(
                    f"left out: {left_out[:10]} of {key[0]}-{key[1]} by {group.name}, "
                    f"which began at {begin}; the log is [{final.start}, {final.end})"
                )

    def _judge_given(self, group: ShareGroup, key: Key, committed: Mapping[bytes, int]) -> None:
        for offset, value in self.given[group.name, key].items():
            if committed.get(value) != offset:
                self.world.lapse(
                    f"not committed: {value!r} at {offset} of {key[0]}-{key[1]} was given to "
                    f"a member of {group.name}"
                )

    def _places(self, core: Core) -> Iterator[tuple[Place, tuple[str, int]]]:
        for group in self.plan.share_groups:
            topic_id = core.topics.all[group.topic].topic_id
            for partition in range(self.plan.topic(group.topic).partitions):
                yield (group.name, topic_id, partition), (group.topic, partition)


class _Life:
    """One life of a member."""

    def __init__(self, shares: Shares, group: ShareGroup, name: str) -> None:
        self.shares = shares
        self.world = shares.world
        self.random: Random = shares.random
        self.group = group
        self.name = name
        self._reads = 0
        self._kept: list[ShareRecord] = []
        self._said: dict[tuple[int, int], Kind] = {}
        """What no commit has confirmed yet, by partition and offset."""

    async def run(self, until: Callable[[], bool], *, dies: bool) -> None:
        """Work until `until`."""
        group = self.group
        consumer = AsyncShareConsumer(
            BOOTSTRAP,
            group.topic,
            group=group.name,
            explicit=True,
            on_gap="skip",
            client_id=self.name,
            acquire=group.acquire,
            acquire_count=group.acquire_count,
            max_hold_ms=group.max_hold_ms,
            fetch_wait_ms=200,
            acknowledge_interval_ms=self.random.choice((1, 300)),
            request_timeout_ms=8_000,
            api_timeout_ms=20_000,
        )
        if dies:
            # Who dies says nothing.
            cast(Any, consumer._driver).say_goodbye = _silence
        async with consumer:
            while not until():
                try:
                    await self._work(consumer)
                except AcknowledgeFailed as exc:
                    self._failed(exc)
                except SegbrokerError as exc:
                    self.world.trace("sharer_stumbled", self.name, type(exc).__name__)
                    await trio.sleep(0.05)
                if group.pause_s:
                    await trio.sleep(self.random.uniform(0, 2 * group.pause_s))

    async def _work(self, consumer: AsyncShareConsumer[Never]) -> None:
        records = await consumer.poll(max_records=self.random.choice((1, 5, 50)), timeout_ms=300)
        for record in records:
            assert isinstance(record, ShareRecord)
            self._read(record)
            self._kept.append(record)
        if self.random.random() < DOZES and not self.shares.is_calm:
            self.world.trace("sharer_dozes", self.name)
            await trio.sleep(1.3 * self.group.lock_ms / 1000)
        kept, self._kept = self._kept, []
        for record in kept:
            self._say(consumer, record)
        if self.random.random() < 0.4:
            await self._commit(consumer)

    def _read(self, record: ShareRecord) -> None:
        assert record.value is not None, "no tombstones are sent"
        self._reads += 1
        key = (record.topic, record.partition)
        self.world.trace("shared", self.name, *key[1:], record.offset, record.delivery_count)
        # Each is a reader of its own: there is no order.
        reader = f"{self.name}/{self._reads}"
        self.shares.given[self.group.name, key][record.offset] = record.value
        self.shares.history.read(reader, key, record.offset, record.value)

    def _say(self, consumer: AsyncShareConsumer[Never], record: ShareRecord) -> None:
        kind: Kind | None = Kind.ACCEPT
        if not self.shares.is_calm:
            (kind,) = self.random.choices(list(KINDS), list(KINDS.values()))
        say = {
            Kind.ACCEPT: consumer.accept,
            Kind.RELEASE: consumer.release,
            Kind.REJECT: consumer.reject,
            Kind.RENEW: consumer.renew,
        }
        try:
            if kind is not None:
                say[kind](record)
        except AcknowledgeFailed as exc:
            self._failed(exc)  # its lock has ended
            return
        if kind in (None, Kind.RENEW):
            self._kept.append(record)
        else:
            assert kind is not None
            self._said[record.partition, record.offset] = kind

    def _failed(self, exc: AcknowledgeFailed) -> None:
        for row in exc.failed:
            self.world.trace("unsaid", self.name, row.partition, row.kind, type(row.error).__name__)
            for offset in row.offsets:
                self._said.pop((row.partition, offset), None)

    async def _commit(self, consumer: AsyncShareConsumer[Never]) -> None:
        try:
            await consumer.commit()
        except AcknowledgeFailed as exc:
            self._failed(exc)
        said, self._said = self._said, {}
        for (partition, offset), kind in said.items():
            if not self.shares.ledger.was_taken(self.group.name, partition, offset, kind):
                self.world.lapse(
                    f"told as taken: {kind.word} of record {offset} of {partition} by {self.name}"
                )


async def _silence(*_: object, **__: object) -> None:
    """Say nothing."""
