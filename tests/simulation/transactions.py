"""Producers of transactions that commit, abort, or are broken off; readers of what is committed.

    attempt n   some records over all partitions of the topics; for some, a group's offset n + 1
                then: committed | aborted | unknown (the answer to the commit never came)

| broken when | |
|---|---|
| lost-commit | a record of a committed transaction is not there in the end, in whatever class |
| aborted-read | one of an aborted transaction is seen, then or in the end |
| torn-transaction | of one whose outcome is unknown a part is there |
| dirty-read | a reader of committed records got one that is not committed |
| nonmonotonic-poll | it got an offset at or below one that it had |
| group-moved | the group does not stand behind the last committed transaction that moved it |

Everything is asked of the real clients over the wire, at the moment itself and in calm.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from segbroker.client import AsyncAdmin, AsyncConsumer, AsyncProducer
from segbroker.client.errors import SegbrokerError
from segbroker.client.group_offsets import GroupMetadata

from .clients import BOOTSTRAP, raise_others, value_of
from .history import History, Key
from .plan import Plan, Transactor
from .world import World

ABORTED, UNKNOWN, COMMITTED = "aborted", "unknown", "committed"
VALUE_BYTES = 40
LIVES_MAX = 20


class _Aborts(Exception):
    """The application changes its mind."""


@dataclass
class Attempt:
    """One transaction; as long as nobody asked to commit it, it is an aborted one."""

    number: int
    outcome: str = ABORTED
    places: list[tuple[Key, bytes]] = field(default_factory=list)


class Transactions:
    """All transactions of a run."""

    def __init__(self, world: World, plan: Plan, history: History) -> None:
        self.world = world
        self.plan = plan
        self.history = history
        self.random = world.stream("transactions")
        self.attempts: dict[str, list[Attempt]] = defaultdict(list)
        self.seen: dict[Key, list[tuple[int, bytes]]] = defaultdict(list)
        self.final: dict[Key, dict[bytes, int]] = {}
        """What is committed of each partition in the end: values, and their offsets."""

    @property
    def keys(self) -> list[Key]:
        """All partitions that transactions write to."""
        topics = [topic for topic in self.plan.topics if topic.use == "transactions"]
        return [(t.name, partition) for t in topics for partition in range(t.partitions)]

    async def transact(self, spec: Transactor) -> None:
        """All lives of one producer."""
        give_up = self.plan.duration_s + 20
        for life in range(LIVES_MAX):
            begun = len(self.attempts[spec.name])
            if begun >= spec.transactions or trio.current_time() > give_up:
                return
            with trio.CancelScope() as scope:
                if life + 1 < spec.lives:
                    scope.deadline = trio.current_time() + self.random.uniform(0.1, 1.5)
                try:
                    await self._life(spec, life)
                except SegbrokerError as exc:
                    self.world.trace("transactor_ended", spec.name, type(exc).__name__)
                except BaseExceptionGroup as group:
                    raise_others(group)
            await trio.sleep(0.05)

    async def _life(self, spec: Transactor, life: int) -> None:
        attempts = self.attempts[spec.name]
        async with _producer(spec) as producer:
            while len(attempts) < spec.transactions:
                await self._one(producer, spec, life)
                await trio.sleep(self.random.uniform(0, 2 * spec.pause_s))

    async def _one(self, producer: AsyncProducer, spec: Transactor, life: int) -> None:
        number = len(self.attempts[spec.name])
        attempt = Attempt(number)
        self.attempts[spec.name].append(attempt)
        name = f"{spec.name}.{life}"
        keys = [key for key in self.keys if key[0] in spec.topics]
        try:
            async with producer.transaction():
                for position in range(self.random.randint(1, 4)):
                    key = self.random.choice(keys)
                    value = value_of(name, key[1], 10 * number + position, VALUE_BYTES)
                    self.history.sent(name, key, value)
                    attempt.places.append((key, value))
                    await producer.send(key[0], value, partition=key[1])
                    await trio.sleep(self.random.uniform(0, spec.pause_s))
                if spec.moves_group:
                    await producer.send_offsets({keys[0]: number + 1}, _group(spec))
                if self.random.random() < 0.3:
                    raise _Aborts
                attempt.outcome = UNKNOWN
            attempt.outcome = COMMITTED
        except _Aborts:
            pass
        finally:
            self.world.trace("transaction", name, number, attempt.outcome)

    async def read(self, until: Callable[[], bool]) -> None:
        """Read what is committed, all the time."""
        if not self.keys:
            return
        while not until():
            try:
                async with AsyncConsumer(
                    BOOTSTRAP,
                    client_id="committed",
                    on_gap="skip",
                    request_timeout_ms=6_000,
                    api_timeout_ms=20_000,
                    metadata_max_age_ms=3_000,
                ) as consumer:
                    for key in self.keys:
                        seen = self.seen[key]
                        start = seen[-1][0] + 1 if seen else "start"
                        consumer.assign([*consumer.assignment, key], start=start)
                    while not until():
                        for record in await consumer.poll(max_records=20, timeout_ms=500):
                            self._saw((record.topic, record.partition), record.offset, record.value)
            except SegbrokerError as exc:
                self.world.trace("committed_failed", type(exc).__name__)
                await trio.sleep(0.05)
            except BaseExceptionGroup as group:
                raise_others(group)

    def _saw(self, key: Key, offset: int, value: bytes | None) -> None:
        assert value is not None, "no tombstones are sent"
        seen = self.seen[key]
        if seen and offset <= seen[-1][0]:
            self.world.lapse(f"nonmonotonic-poll in {key}: {offset} after {seen[-1][0]}")
        seen.append((offset, value))
        self.world.trace("saw", *key, offset, value[:20])

    # In calm

    async def judge(self, limit_s: float) -> None:
        """End what is open, read what is committed, and compare."""
        if not self.plan.transactors:
            return
        final = self.final
        stands: dict[str, int] = {}
        try:
            with trio.fail_after(limit_s):
                for spec in self.plan.transactors:
                    async with _producer(spec) as producer:
                        await producer.init_transactions()
                for key in self.keys:
                    final[key] = await _read_committed(key)
                async with AsyncAdmin(BOOTSTRAP) as admin:
                    for spec in self.plan.transactors:
                        rows = await admin.committed(_group(spec).group_id)
                        stands[spec.name] = max([row.offset for row in rows.values()], default=0)
        except (SegbrokerError, BaseExceptionGroup, trio.TooSlowError) as exc:
            self.world.violation(f"in calm transactions do not come to an end: {exc!r}")
            return
        for spec in self.plan.transactors:
            self._judge(spec, final, stands[spec.name])
        ours = {v for attempts in self.attempts.values() for a in attempts for _, v in a.places}
        for key, seen in self.seen.items():
            for offset, value in seen:
                if value in ours and final[key].get(value) != offset:
                    self.world.lapse(
                        f"dirty-read in {key}: {value!r} at {offset} is not committed there"
                    )

    def _judge(self, spec: Transactor, final: dict[Key, dict[bytes, int]], stands: int) -> None:
        moved = 0
        for attempt in self.attempts[spec.name]:
            there = [value in final[key] for key, value in attempt.places]
            what = f"transaction {attempt.number} of {spec.name} ({attempt.outcome}): {there}"
            if attempt.outcome == COMMITTED and not all(there):
                self.world.lapse(f"lost-commit: {what}")
            elif attempt.outcome == ABORTED and any(there):
                self.world.lapse(f"aborted-read: {what}")
            elif any(there) and not all(there):
                self.world.lapse(f"torn-transaction: {what}")
            if spec.moves_group and attempt.places and all(there):
                moved = attempt.number + 1
        if stands != moved:
            self.world.lapse(
                f"group-moved: that of {spec.name} stands at {stands}, "
                f"the last committed transaction moved it to {moved}"
            )


def _producer(spec: Transactor) -> AsyncProducer:
    return AsyncProducer(
        BOOTSTRAP,
        client_id=spec.name,
        transactional_id=spec.name,
        transaction_timeout_ms=spec.timeout_ms,
        linger_ms=0,
        delivery_timeout_ms=15_000,
        request_timeout_ms=5_000,
    )


def _group(spec: Transactor) -> GroupMetadata:
    return GroupMetadata(f"of-{spec.name}")


async def _read_committed(key: Key) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    async with AsyncConsumer(BOOTSTRAP, stop_at_end=True, on_gap="skip") as consumer:
        consumer.assign([key], start="start")
        async for record in consumer:
            found[record.value or b""] = record.offset
    return found
