"""Who writes into the topics while these are changed, and what of it has to be there at the end.

| a record that was acknowledged | is there, but for |
|---|---|
| in class `fsync`, or before the topic became of it | nothing |
| in class `disk`, `memory` | a power cut since |
| in class `ephemeral` | any end of the broker since |
| of a key, where the topic was compacted since | a later one of the key |
| below an offset up to which somebody has deleted | that |

Of topics whose settings take records away nothing has to be there.  In every topic: no record that
was written to another one, of its name or not; none but what was sent; none twice; at an
acknowledged offset no other record than that which was acknowledged there; none below a start that
was answered to who deleted records.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast
from uuid import UUID

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from segbroker.protocol.record_batch import decode_batch, encode_batch, iter_batches, read_header

from ..simulation.process import Process
from ..support.wire_client import WireClient
from .belief import Difference
from .subject import Lives, answered
from .topics import State, Topic

CLASSES: Final = ("fsync", "disk", "memory", "ephemeral")
"""From the safest on."""
PROBE: Final = b"%"
BY_ID: Final = 13
BY_NAME: Final = 9
KEYS: Final = 4
PARTITIONS: Final = 5


@dataclass(slots=True)
class Kept:
    """A record that was acknowledged."""

    topic_id: UUID
    partition: int
    offset: int
    key: bytes
    value: bytes
    weakest: str
    """The class that promises least of those that the topic may have had."""
    at: float
    """s of virtual time."""


class Records:
    """See the module."""

    def __init__(self, lives: Lives) -> None:
        self.lives = lives
        self.world = lives.world
        self.random = self.world.stream("records")
        self.kept: list[Kept] = []
        self.sent: dict[bytes, str] = {}
        """The name of the topic by value."""
        self.deleted: dict[tuple[str, int], int] = {}
        """Up to where somebody wanted records deleted, whatever was answered."""
        self.starts: dict[tuple[UUID, int], int] = {}
        """Below it they are, as was answered."""
        self.ends: list[tuple[float, bool]] = []
        """When the broker has ended, and whether the power was cut."""
        self.number = 0
        self.is_over = False

    # Writing

    async def write(self, topic: Topic, pause_s: float) -> None:
        """Batches into a topic, by its name or by one of its ids, until it is over."""
        while not self.is_over:
            process = await self.lives.serving()
            async with (
                self.lives.within(process),
                self.lives.client(process, "writer") as client,
            ):
                while not self.is_over:
                    await trio.sleep(self.random.uniform(0, 2 * pause_s))
                    if self.random.random() < 0.02:
                        await answered(self._delete(topic, client), "DeleteRecords")
                    else:
                        await answered(self._write(topic, client), "Produce")
            await trio.sleep(0.01)

    async def _write(self, topic: Topic, client: WireClient) -> None:
        random = self.random
        topic_id = None
        if topic.ids and random.random() < 0.8:
            topic_id = topic.ids[-1] if random.random() < 0.85 else random.choice(topic.ids)
        self.number += 1
        number = self.number
        known = "" if topic_id is None else topic_id.hex
        values = [
            f"{topic.name}/{known}/{number}/{place}/{'.' * random.choice((0, 100, 400))}".encode()
            for place in range(random.choice((1, 1, 2, 4)))
        ]
        keys = [f"k{random.randrange(KEYS)}".encode() for _ in values]
        self.sent |= dict.fromkeys(values, topic.name)
        partition = random.choice((0, 0, 1, random.randrange(PARTITIONS)))
        records = encode_batch(values, keys=keys, timestamps_ms=self.world.wall_ms())
        row = ProduceRequestPartition(index=partition, records=records)
        asked = ProduceRequestTopic(name=topic.name, partition_data=[row])
        if topic_id is not None:
            asked.topic_id = topic_id
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[asked])
        place = len(topic.states) - 1
        reply = await client.ask(request, ProduceResponse, BY_NAME if topic_id is None else BY_ID)
        told = reply.responses[0].partition_responses[0]
        if told.error_code:
            self.world.trace("refused", topic.name, partition, told.error_code)
            return
        states = [one for some in topic.states[place:] for one in some if one.topic_id is not None]
        topic_id = topic_id or _only_id(states)
        if topic_id is None:
            return  # to which of them nobody can say
        weakest = _weakest(states, topic_id)
        self.world.trace("acked", topic.name, partition, told.base_offset, weakest)
        now = self.world.now()
        for offset, (key, value) in enumerate(zip(keys, values, strict=True), told.base_offset):
            self.kept.append(Kept(topic_id, partition, offset, key, value, weakest, now))

    async def _delete(self, topic: Topic, client: WireClient) -> None:
        partition, offset = self.random.randrange(2), self.random.randint(1, 30)
        self.deleted[topic.name, partition] = max(
            offset, self.deleted.get((topic.name, partition), 0)
        )
        one = DeleteRecordsRequestPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsRequestTopic(name=topic.name, partitions=[one])], timeout_ms=1000
        )
        place = len(topic.states) - 1
        reply = await client.ask(request, DeleteRecordsResponse, 2)
        row = reply.topics[0].partitions[0]
        topic_id = _only_id(one for some in topic.states[place:] for one in some)
        if topic_id is not None and not row.error_code:
            key = topic_id, partition
            self.starts[key] = max(row.low_watermark, self.starts.get(key, 0))
        self.world.trace("deleted", topic.name, partition, offset, row.low_watermark)

    def hardened(self, topic_id: UUID, until: float) -> None:
        """What was acknowledged by then is safe: the topic has become of class fsync."""
        for one in self.kept:
            if one.topic_id == topic_id and one.at <= until and not self._may_be_lost(one):
                one.weakest = CLASSES[0]

    # Judging

    def _may_be_lost(self, one: Kept) -> bool:
        ends = [is_power for at, is_power in self.ends if at >= one.at]
        match one.weakest:
            case "fsync":
                return False
            case "disk" | "memory":
                return any(ends)
            case _:
                return bool(ends)

    async def judge(self, topic: Topic, process: Process) -> None:
        """Read all of a topic as it is, by its id.  Raises Difference."""
        state = topic.belief.states[0]
        if state.topic_id is None:
            return
        assert isinstance(state.topic_id, UUID), "it was looked at"
        async with self.lives.client(process, "reader") as client:
            for partition in range(state.partitions):
                rows = await self._read(client, state.topic_id, partition)
                self._judge(topic, state.topic_id, partition, rows)

    async def _read(
        self, client: WireClient, topic_id: UUID, partition: int
    ) -> list[tuple[int, bytes | None, bytes]]:
        """(offset, key, value) of all records."""
        rows: list[tuple[int, bytes | None, bytes]] = []
        offset, end = 0, -1
        while end < 0 or offset < end:
            one = FetchRequestPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
            )
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=1 << 20,
                topics=[FetchRequestTopic(topic_id=topic_id, partitions=[one])],
            )
            reply = await client.ask(request, FetchResponse, BY_ID)
            row = reply.responses[0].partitions[0]
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and offset < row.log_start_offset:
                offset = row.log_start_offset
                continue
            if row.error_code:
                raise Difference(f"{topic_id}-{partition} from {offset}: error {row.error_code}")
            end, before = row.high_watermark, offset
            for batch in iter_batches(cast(bytes, row.records or b"")):
                header = read_header(batch)
                if not header.is_control:
                    decoded = decode_batch(batch)
                    columns = zip(decoded.offsets(), decoded.keys(), decoded.values(), strict=True)
                    rows += [(at, key, value or b"") for at, key, value in columns if at >= offset]
                offset = max(offset, header.next_offset)
            if offset == before and offset < end:
                raise Difference(f"{topic_id}-{partition} ends at {offset}, not at {end}")
        return rows

    def _judge(
        self,
        topic: Topic,
        topic_id: UUID,
        partition: int,
        rows: Iterable[tuple[int, bytes | None, bytes]],
    ) -> None:
        where = f"{topic.name}-{partition} ({topic_id})"
        found = {offset: (key, value) for offset, key, value in rows}
        start = self.starts.get((topic_id, partition), 0)
        if any(offset < start for offset in found):
            raise Difference(f"{where}: deleted below {start}, there is {sorted(found)}")
        values = [value for _, value in found.values() if not value.startswith(PROBE)]
        for value in values:
            name, known, _ = value.decode().split("/", 2)
            if self.sent.get(value) != topic.name or name != topic.name:
                raise Difference(f"{where}: nobody has sent {value!r}")
            if known and known != topic_id.hex:
                raise Difference(f"{where}: {value!r} was written to the topic before")
        if len(set(values)) < len(values):
            raise Difference(f"{where}: a record is there twice")
        last: dict[bytes | None, int] = {key: offset for offset, (key, _) in found.items()}
        mine = [k for k in self.kept if k.topic_id == topic_id and k.partition == partition]
        self.world.trace("judged", where, len(found), len(mine))
        for one in mine:
            if one.offset in found:
                if found[one.offset][1] != one.value:
                    raise Difference(f"{where}: {found[one.offset]} in the place of {one}")
                continue
            is_deleted = one.offset < self.deleted.get((topic.name, partition), 0)
            is_older = topic.was_compacted(topic_id) and last.get(one.key, -1) > one.offset
            if topic.keeps and not is_deleted and not is_older and not self._may_be_lost(one):
                raise Difference(f"{where}: {one} is lost; ends {self.ends}, there is {found}")


def _only_id(states: Iterable[State]) -> UUID | None:
    """The id of the topic in all of these; None: it may be one of several."""
    ids = {one.topic_id for one in states}
    (only, *others) = ids or {None}
    return only if isinstance(only, UUID) and not others else None


def _weakest(states: Iterable[State], topic_id: UUID) -> str:
    """Of the classes that a topic may have had."""
    classes = [
        one.durability
        for one in states
        if one.topic_id == topic_id or isinstance(one.topic_id, str)
    ]
    return max(classes, key=CLASSES.index, default=CLASSES[-1])
