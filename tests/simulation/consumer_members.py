"""Members of KIP-848 groups, on the wire: a heartbeat joins, says what is read, and leaves.

They are the requests themselves, with what the protocol asks of whoever sends them, and do what our
client does not, which half of the members of such a group are (groups.py):

| a member | does |
|---|---|
| is told of another assignment | commits what it has of what goes, reads that no more, says so |
| is fenced or unknown | forgets everything, joins again |
| loses its connection | goes on as the same member, and says everything |
| leaves, or dies | commits and says goodbye, or nothing at all |
| dozes | is silent for longer than its session, then commits before it asks anybody |

What the broker tells and takes is judged on the wire (ledger.py); each stretch of reading between
two changes of what a member has is a reader of its own in the history.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final
from uuid import UUID

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    GroupTopicPartitions,
)
from segbroker.protocol.messages_core import (
    FetchResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
)
from segbroker.protocol.record_batch import decode_batch, iter_batches, read_header
from segbroker.protocol.schema import records_view

from ..support.wire_client import Closed, WireClient, fetch_request
from .history import History
from .ledger import Ledger
from .network import Network
from .plan import Group
from .wire import connected
from .world import World

ANSWER_S: Final = 8.0
"""A connection whose answer takes longer is given up."""
REBALANCE_TIMEOUT_MS: Final = 5_000
OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
DOZES: Final = 0.03
"""The share of the rounds after which a member is silent for longer than its session."""


class ConsumerMember:
    """One life of a member.  `name` is its id."""

    def __init__(
        self,
        world: World,
        network: Network,
        history: History,
        ledger: Ledger,
        random: Random,
        group: Group,
        name: str,
    ) -> None:
        self._world = world
        self._network = network
        self._history = history
        self._ledger = ledger
        self._random = random
        self._group = group
        self._name = name
        self._topic_id = UUID(int=0)
        self._epoch = 0
        self._says_all = True
        self._assigned: frozenset[int] = frozenset()
        self._positions: dict[int, int] = {}
        """Of those partitions of which it is known where the group stands."""
        self._committed: dict[int, int] = {}
        self._stretch = 0

    async def run(self, until: Callable[[], bool], scope: trio.CancelScope, *, dies: bool) -> None:
        """Read and commit until `until`, or until `scope` ends it; then leave, if it does not die.
        A connection that is lost is made again.
        """
        try:
            while not until():
                try:
                    async with connected(self._network, self._name) as client:
                        await self._serve(client, until)
                except (OSError, Closed, trio.TooSlowError) as exc:
                    self._world.trace("member_stumbled", self._name, type(exc).__name__)
                    await trio.sleep(0.05)
        finally:
            if self._epoch > 0 and not dies:
                with trio.move_on_after(ANSWER_S, shield=True):
                    await self._leave()

    async def _leave(self) -> None:
        """Say goodbye; who cannot is dropped when its session ends."""
        try:
            async with connected(self._network, self._name) as client:
                await self._commit(client, self._positions)
                await self._ask_to_leave(client)
        except (OSError, Closed, trio.TooSlowError) as exc:
            self._world.trace("member_not_gone", self._name, type(exc).__name__)

    async def _ask_to_leave(self, client: WireClient) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group.name, member_id=self._name, member_epoch=-1
        )
        await client.ask(request, ConsumerGroupHeartbeatResponse, 1)

    async def _serve(self, client: WireClient, until: Callable[[], bool]) -> None:
        """On one connection."""
        self._says_all = True
        topics = [MetadataRequestTopic(name=self._group.topic)]
        with trio.fail_after(ANSWER_S):
            reply = await client.ask(MetadataRequest(topics=topics), MetadataResponse, 12)
        self._topic_id = reply.topics[0].topic_id
        self._ledger.names[self._topic_id] = self._group.topic
        while not until():
            await self._beat(client)
            await self._find_positions(client)
            for partition in sorted(self._positions):
                await self._read(client, partition)
            if self._random.random() < DOZES:
                self._world.trace("member_dozes", self._name)
                await trio.sleep(1.3 * self._group.session_timeout_ms / 1000)
                await self._commit(client, self._positions)
            elif self._random.random() < 0.7:
                await self._commit(client, self._positions)
            pause_s = self._group.session_timeout_ms / 8_000
            await trio.sleep(self._random.uniform(0.3, 1.0) * min(pause_s, 0.2))

    async def _beat(self, client: WireClient) -> None:
        joins = not self._epoch
        says_all = joins or self._says_all
        owned = [GroupTopicPartitions(topic_id=self._topic_id, partitions=sorted(self._assigned))]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group.name,
            member_id=self._name,
            member_epoch=self._epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if says_all else -1,
            subscribed_topic_names=[self._group.topic] if says_all else None,
            server_assignor=self._group.assignors[0] if joins else None,
            topic_partitions=(owned if self._assigned else []) if says_all else None,
        )
        with trio.fail_after(ANSWER_S):
            reply = await client.ask(request, ConsumerGroupHeartbeatResponse, 1)
        if reply.error_code in OUT:
            self._forget()
            return
        if reply.error_code:
            self._world.trace("member_refused", self._name, reply.error_code)
            self._says_all = True  # it may have moved all the same
            return
        self._says_all = False
        self._epoch = reply.member_epoch
        if reply.assignment is not None:
            wanted = frozenset(
                number
                for topic in reply.assignment.topic_partitions
                if topic.topic_id == self._topic_id
                for number in topic.partitions
            )
            await self._take(client, wanted)

    async def _take(self, client: WireClient, wanted: frozenset[int]) -> None:
        going = {n: at for n, at in self._positions.items() if n not in wanted}
        if going:
            await self._commit(client, going)
            if not self._epoch:
                return  # it is out
        for number in going:
            self._positions.pop(number, None)
            self._committed.pop(number, None)
        self._assigned = wanted
        self._says_all = True
        self._stretch += 1

    def _forget(self) -> None:
        self._world.trace("member_out", self._name, self._epoch)
        self._epoch = 0
        self._assigned = frozenset()
        self._positions.clear()
        self._committed.clear()
        self._stretch += 1

    async def _find_positions(self, client: WireClient) -> None:
        """Where the group stands in what is new."""
        new = sorted(self._assigned - self._positions.keys())
        if not new:
            return
        topics = [OffsetFetchRequestGroupTopic(name=self._group.topic, partition_indexes=new)]
        asked = OffsetFetchRequestGroup(
            group_id=self._group.name,
            member_id=self._name,
            member_epoch=self._epoch,
            topics=topics,
        )
        request = OffsetFetchRequest(groups=[asked], require_stable=True)
        with trio.fail_after(ANSWER_S):
            reply = await client.ask(request, OffsetFetchResponse, 9)
        (found,) = reply.groups
        if found.error_code:
            return  # its epoch is another by now: asked again after the next heartbeat
        for topic in found.topics:
            for row in topic.partitions:
                if not row.error_code:
                    self._positions[row.partition_index] = max(0, row.committed_offset)
                    self._committed[row.partition_index] = row.committed_offset

    async def _read(self, client: WireClient, partition: int) -> None:
        key = (self._group.topic, partition)
        request = fetch_request(key[0], self._positions[partition], partition=partition)
        with trio.fail_after(ANSWER_S):
            reply = await client.ask(request, FetchResponse, 12)
        row = reply.responses[0].partitions[0]
        if row.error_code:
            self._world.trace("member_not_read", self._name, partition, row.error_code)
            return
        for batch in iter_batches(records_view(row.records or b"")):
            header = read_header(batch)
            if not header.is_control:
                for record in decode_batch(batch):
                    if record.offset >= self._positions[partition]:
                        assert record.value is not None, "no tombstones are sent"
                        self._world.trace("member_read", self._name, partition, record.offset)
                        reader = f"{self._name}/{self._stretch}"
                        self._history.read(reader, key, record.offset, record.value)
            self._positions[partition] = max(self._positions[partition], header.next_offset)

    async def _commit(self, client: WireClient, positions: Mapping[int, int]) -> None:
        """What of these is not committed yet; refused ones are tried again with the next."""
        todo = {n: at for n, at in positions.items() if at > max(0, self._committed.get(n, 0))}
        if not todo:
            return
        rows = [
            OffsetCommitRequestPartition(
                partition_index=number, committed_offset=at, committed_metadata=None
            )
            for number, at in sorted(todo.items())
        ]
        request = OffsetCommitRequest(
            group_id=self._group.name,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._name,
            topics=[OffsetCommitRequestTopic(name=self._group.topic, partitions=rows)],
        )
        with trio.fail_after(ANSWER_S):
            reply = await client.ask(request, OffsetCommitResponse, 9)
        codes = {row.partition_index: row.error_code for row in reply.topics[0].partitions}
        if OUT.intersection(codes.values()):
            self._forget()
            return
        for number, at in todo.items():
            if not codes[number]:
                self._committed[number] = at
