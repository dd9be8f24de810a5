"""Members of streams groups (KIP-1071), on the wire: threads of an application in two processes.

They do what members of KIP-848 groups do (consumer_members.py), with tasks in the place of
partitions: an active task reads the partition of its number, a standby reads nothing, and what a
member was told to let go of it has until it says that it has not.  The changelog of the topology is
made by the broker, and copies of tasks are never where the task is.
"""

from collections.abc import Iterable
from random import Random
from typing import Final

import trio

from segbroker.protocol.messages_streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestTopology,
    StreamsGroupHeartbeatResponse,
)
from segbroker.protocol.schema import Message

from ..support.wire_client import WireClient
from ..support.wire_streams import beating, internal, rows_of, subtopology
from .consumer_members import ANSWER_S, OUT, REBALANCE_TIMEOUT_MS, ConsumerMember
from .history import History
from .ledger import SUBTOPOLOGY, Ledger
from .network import Network
from .plan import Group
from .world import World

PROCESSES: Final = 2


class StreamsMember(ConsumerMember):
    """One life of a thread.  `name` is its member id."""

    def __init__(
        self,
        world: World,
        network: Network,
        history: History,
        ledger: Ledger,
        random: Random,
        group: Group,
        name: str,
        number: int,
    ) -> None:
        """number: of the thread; it says which process it is in."""
        super().__init__(world, network, history, ledger, random, group, name)
        self._process = f"{group.name}-{number % PROCESSES}"
        self._copies: frozenset[int] = frozenset()
        ledger.sources[group.name] = group.topic

    async def _ask_to_leave(self, client: WireClient) -> None:
        request = beating(self._name, -1, group_id=self._group.name)
        await client.ask(request, StreamsGroupHeartbeatResponse, 0)

    async def _beat(self, client: WireClient) -> None:
        joins = not self._epoch
        with trio.fail_after(ANSWER_S):
            reply = await client.ask(self._said(joins=joins), StreamsGroupHeartbeatResponse, 0)
        if reply.error_code in OUT:
            self._forget()
            return
        if reply.error_code:
            self._world.trace("member_refused", self._name, reply.error_code)
            self._says_all = True  # it may have moved all the same
            return
        self._says_all = False
        self._epoch = reply.member_epoch
        if reply.active_tasks is not None:
            copies = _numbers(reply.standby_tasks or ())
            self._world.trace("copies", self._name, *sorted(copies))
            await self._take(client, _numbers(reply.active_tasks))
            if self._epoch:
                self._copies = copies

    def _said(self, *, joins: bool) -> StreamsGroupHeartbeatRequest:
        request = beating(self._name, self._epoch, group_id=self._group.name)
        if joins:
            log = internal(f"{self._group.name}-log", cleanup_policy="compact")
            request.topology = StreamsGroupHeartbeatRequestTopology(
                epoch=0, subtopologies=[subtopology(SUBTOPOLOGY, self._group.topic, keeps=[log])]
            )
            request.process_id = self._process
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
        if joins or self._says_all:
            request.active_tasks, request.standby_tasks = (
                rows_of({SUBTOPOLOGY: sorted(some)} if some else {})
                for some in (self._assigned, self._copies)
            )
            request.warmup_tasks = []
        return request

    def _forget(self) -> None:
        super()._forget()
        self._copies = frozenset()


def _numbers(rows: Iterable[Message]) -> frozenset[int]:
    return frozenset(number for row in rows for number in row.partitions)  # type: ignore[attr-defined]
