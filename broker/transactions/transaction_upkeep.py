"""Transactions that nobody ends, and ids that nobody uses: what time and damage leave to be done.

| found | when | then |
|---|---|---|
| open for longer than its timeout | every round; a start leaves it GRACE_MS | aborted, fenced |
| open, and records of it may be gone | at the start | the same, before anybody commits the rest |
| decided, without all of its markers | at the start | its markers |
| open in a partition, and known to nobody | when the partition is opened | an abort marker |
| open in a partition | somebody who may says so | known: it is aborted; else an abort marker |
| an id, or a query, that nothing happened to for long | every round, some | forgotten, durably |

Records of class `ephemeral` may be gone after every start; of other classes what was lost with the
power, or with a failed sync, is marked before (BOOT_TORN).  A transaction is known to nobody if its
marker was lost to damage.  A round looks at VISITS_MAX ids.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import structlog

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.markers import Outcome
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.transactions import (
    BOOT_TORN,
    SECTION,
    Ending,
    State,
    Transaction,
    queries_before,
)
from segbroker.segments.settings.topic_config import Durability

from ..configuration.config import BrokerConfig
from ..loop.loop_clock import monotonic_ms
from ..loop.pace import Pace
from ..partitions.partition import Partition
from .ledger import Ledger, name_of
from .markers import Markers
from .query_batches import QueryBatches
from .transaction_table import Entry

log = structlog.get_logger()

VISITS_MAX: Final = 500
ABORTS_AT_ONCE: Final = 100
"""Of those that are late, as ten thousand may be after a start."""
RETRY_MS: Final = 1_000
"""Before an abort for lateness is tried again."""
GRACE_MS: Final = 5_000
"""After a start, for a transaction whose time is over: its producer may just be coming back."""


class TransactionUpkeep:
    """Looks after the transactions of one broker."""

    def __init__(
        self,
        ledger: Ledger,
        batches: QueryBatches,
        manager: DiskManager,
        config: BrokerConfig,
        markers: Markers,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._ledger = ledger
        self._batches = batches
        self._manager = manager
        self.config = config
        self._markers = markers
        self._spawn = spawn
        self._now_ms = now_ms
        self._visits: list[str] = []
        # Those that are to be aborted, and as what each was found to be late.
        self._late: dict[Entry, Transaction] = {}
        self._aborting: set[Entry] = set()
        self._abort_tasks = 0

    async def start(self) -> None:
        """Go on with what the last process left."""
        pace = Pace()
        for entry in await self._ledger.load():
            await pace.step()
            known = entry.known
            assert known is not None, "loaded"
            if known.state.is_ending:
                log.info("transaction_resumed", **name_of(known))
                self._ledger.complete_soon(entry)
            elif known.state is State.ONGOING:
                entry.is_torn = self._may_be_torn(known)
                passed_ms = max(0, self._now_ms() - known.started_ms)
                entry.opened_ms -= passed_ms
                left_ms = 0 if entry.is_torn else _left_ms(known, passed_ms)
                entry.deadline_ms = monotonic_ms() + left_ms
        self._abort_late()

    def _may_be_torn(self, known: Transaction) -> bool:
        """Whether records of an open transaction may have gone with the last process, or before
        it."""
        metas = (self._manager.topics.get(topic) for topic in known.partitions)
        return known.boot == BOOT_TORN or any(
            meta is not None and meta.config.durability is Durability.EPHEMERAL for meta in metas
        )

    def partition_opened(self, partition: Partition) -> None:
        """End what is open in it and nowhere else."""
        table, topic, index = self._ledger.table, partition.topic, partition.index
        for producer_id, first_offset in list(partition.handler.transactions.open.items()):
            if not table.takes_part(producer_id, topic, index):
                log.warning(
                    "transaction_hangs",
                    topic=topic,
                    partition=index,
                    producer_id=producer_id,
                    first_offset=first_offset,
                )
                self._spawn(partial(self._end_hanging, partition, producer_id))

    async def _end_hanging(self, partition: Partition, producer_id: int) -> None:
        known = partition.handler.producer(producer_id)
        await self._abort_unknown(
            partition, Ending(producer_id, 0 if known is None else known.epoch)
        )

    async def _abort_unknown(self, partition: Partition, ending: Ending) -> None:
        """An abort marker, unless the producer has a transaction here by then that is known: what
        hung is part of that now, and ends with it."""
        topic, index = partition.topic, partition.index

        def is_known() -> bool:
            return self._ledger.table.takes_part(ending.producer_id, topic, index)

        now_ms = self._now_ms()
        await self._markers.write(topic, index, ending, Outcome.ABORT, now_ms, unless=is_known)

    async def abort_in(self, partition: Partition, ending: Ending) -> ErrorCode:
        """Abort what a producer has open in a partition; everywhere, where it is known of.

        ending: who is meant, and the epoch of the marker where nobody knows of it.
        """
        producer_id = ending.producer_id
        if producer_id not in partition.handler.transactions.open:
            return ErrorCode.NONE
        entry = self._ledger.table.taking_part(producer_id, partition.topic, partition.index)
        if entry is None:
            await self._abort_unknown(partition, ending)
        else:
            known = entry.known
            assert known is not None, "it takes part"
            if known.state is State.PREPARE_COMMIT:
                return ErrorCode.CONCURRENT_TRANSACTIONS
            if known.state is State.ONGOING:
                log.warning("transaction_aborted_on_demand", **name_of(known))
                await self._ledger.abort(entry, known)
            await entry.completed.wait()
        is_open = producer_id in partition.handler.transactions.open
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_open else ErrorCode.NONE

    def keep_house(self, now_ms: int | None) -> None:
        """One round.  now_ms: the wall clock, for the age of ids; None: it is not believed, nothing
        goes by age."""
        self._abort_late()
        if now_ms is None:
            return
        before_ms = now_ms - self.config.transactional_id_expiration_ms
        table = self._ledger.table
        if not self._visits:
            self._visits = list(table.entries)
        idle = []
        for name in self._visits[-VISITS_MAX:]:
            entry = table.entries.get(name)
            if entry is not None and _is_idle(entry, before_ms):
                idle.append(name)
            elif entry is not None and entry.known is None and not entry.is_locked:
                del table.entries[name]  # its first producer id was not to be had
        del self._visits[-VISITS_MAX:]
        if idle:
            self._spawn(partial(self._forget, idle, before_ms))
        if queries_before(self._manager.section(SECTION), before_ms):
            self._spawn(partial(self._batches.forget_old, before_ms))

    def _abort_late(self) -> None:
        monotonic = monotonic_ms()
        for entry in list(self._ledger.table.open.values()):
            if entry.deadline_ms <= monotonic and entry not in self._aborting:
                assert entry.known is not None, "it is open"
                self._late[entry] = entry.known
                entry.deadline_ms = monotonic + RETRY_MS
        for _ in range(min(len(self._late), ABORTS_AT_ONCE - self._abort_tasks)):
            self._abort_tasks += 1
            self._spawn(self._abort_some)

    async def _abort_some(self) -> None:
        """One after the other, until none is left."""
        try:
            while self._late:
                entry = next(iter(self._late))
                known = self._late.pop(entry)
                if not _is_open(entry, known):
                    continue  # it has ended meanwhile
                self._aborting.add(entry)
                try:
                    await self._abort(entry, known)
                finally:
                    self._aborting.discard(entry)
        finally:
            self._abort_tasks -= 1

    async def _abort(self, entry: Entry, known: Transaction) -> None:
        if entry.is_torn:
            log.warning("transaction_torn", **name_of(known))
        else:
            left = {"timeout_ms": known.timeout_ms, **name_of(known)}
            log.warning("transaction_timed_out", **left)
        await self._ledger.abort(entry, known)

    async def _forget(self, ids: list[str], before_ms: int) -> None:
        table = self._ledger.table
        async with AsyncExitStack() as held:
            gone: list[str] = []
            for name in ids:
                entry = table.entries.get(name)
                if entry is None or entry.is_locked:
                    continue
                await held.enter_async_context(entry.lock)
                if _is_idle(entry, before_ms):
                    gone.append(name)
            for name in await self._ledger.forget_locked(gone):
                log.info("transactional_id_expired", transactional_id=name)


def _left_ms(known: Transaction, passed_ms: int) -> int:
    """How long a transaction of before the start may still be open: its time has gone on, or a
    broker that is killed again and again would never end it.  All of it by a clock that was set
    back."""
    return min(known.timeout_ms, max(GRACE_MS, known.timeout_ms - passed_ms))


def _is_open(entry: Entry, meant: Transaction) -> bool:
    known = entry.known
    if known is None or known.state is not State.ONGOING:
        return False
    return (known.key, known.started_ms) == (meant.key, meant.started_ms)


def _is_idle(entry: Entry, before_ms: int) -> bool:
    known = entry.known
    return known is not None and known.at_ms < before_ms and known.state.is_idle
