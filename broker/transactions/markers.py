"""The end of a transaction in its partitions: a marker in each, durable whatever the class.

    open the partition -> is the transaction open here? -> append the marker -> durable? -> done
         |                        | no: it has its marker              |            | failed
         | deleted: done          | already, or never had a batch      +<-----------+ again

A partition that cannot be written yet is tried again until it can: the outcome is decided, and must
be complete.  Until then its last stable offset stands still, and requests for the transactional id
are answered 51.

Durable means synced, also in the classes `disk` and `memory`: if a power cut took a marker of a
transaction that counts as ended, the transaction would stay open for ever.  Records of these
classes are synced, too, before the decision to commit: a committed transaction is whole after a
power cut, whatever the class.  So it is where a topic has become `fsync`, until what the old class
had acknowledged is synced.

A transaction may have 10,000 partitions, and many may end at once: others have their turn between
the markers, and lanes while partitions are synced.
"""

from collections.abc import Callable, Iterable
from typing import Final

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.markers import MARKER_SIZE, Outcome, encode_marker
from segbroker.protocol.record_batch import read_header
from segbroker.segments.metadata.transactions import Ending, Transaction

from ..error_map import STORAGE_FAILURES
from ..loop.lanes import Lanes
from ..loop.pace import Pace
from ..loop.turn import Turn
from ..partitions.partition import Partition
from ..partitions.topics import Topics

log = structlog.get_logger()

APPENDED_AT_ONCE: Final = 32
"""Markers, of whatever transactions, that are appended in one pass of the loop."""
RETRY_SECONDS: Final = 0.1
RETRY_SECONDS_MAX: Final = 5.0


class _Settled:
    """Waits for one append."""

    def __init__(self) -> None:
        self.event = trio.Event()
        self.code = ErrorCode.NONE

    def settled(self, row: int, code: ErrorCode, message: str | None) -> None:
        self.code = code
        self.event.set()


class Markers:
    """Writes them."""

    def __init__(self, topics: Topics, lanes: Lanes, turn: Turn) -> None:
        self._topics = topics
        self._lanes = lanes
        self._turn = turn
        self._appending = trio.CapacityLimiter(APPENDED_AT_ONCE)
        self._syncing = trio.CapacityLimiter(topics.lanes_at_once)

    async def write_all(self, ended: Transaction, now_ms: int) -> None:
        """Have a durable marker in every partition of a decided transaction."""
        assert ended.ending is not None, "it is decided"
        outcome = ended.state.outcome
        assert outcome is not None, "it is decided"
        await self._open_all(ended)
        pace = Pace()
        async with trio.open_nursery() as nursery:
            for topic, indexes in ended.partitions.items():
                for index in indexes:
                    nursery.start_soon(self.write, topic, index, ended.ending, outcome, now_ms)
                    await pace.step()

    async def _open_all(self, ended: Transaction) -> None:
        """A few at a time, so that others find a lane: who needs one waits in line."""
        await self._topics.open_all(
            (topic, index) for topic, indexes in ended.partitions.items() for index in indexes
        )

    async def sync_data(self, ending: Iterable[Transaction]) -> bool:
        """Make durable what the classes `disk` and `memory` have of transactions that are about to
        be committed: a power cut behind the decision must not take half of them.

        False: it could not be synced, or is being deleted, which may fail.
        """
        partitions: set[tuple[str, int]] = set()
        for known in ending:
            for topic, indexes in known.partitions.items():
                unsynced = self._topics.manager.acks_unsynced(topic, indexes)
                partitions.update((topic, index) for index in unsynced)
        found: list[bool] = []
        await self._topics.open_all(sorted(partitions))
        pace = Pace()
        async with trio.open_nursery() as nursery:
            for key in sorted(partitions):
                nursery.start_soon(self._sync, *key, found)
                await pace.step()
        return all(found)

    async def _sync(self, topic: str, index: int, found: list[bool]) -> None:
        try:
            partition = await self._topics.open(topic, index)
            if partition is not None:
                await self._synced(partition)
            found.append(partition is not None or not self._may_stay(topic, index))
        except STORAGE_FAILURES as exc:
            log.warning("transaction_not_synced", topic=topic, partition=index, error=str(exc))
            found.append(False)

    async def write(
        self,
        topic: str,
        index: int,
        ending: Ending,
        outcome: Outcome,
        now_ms: int,
        unless: Callable[[], bool] = lambda: False,
    ) -> None:
        """Have a durable marker in one partition, if the transaction is open there.

        unless: asked at the moment of the append; what makes it superfluous.
        """
        pause = RETRY_SECONDS
        while not await self._attempt(topic, index, ending, outcome, now_ms, unless):
            await trio.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)

    async def _attempt(
        self,
        topic: str,
        index: int,
        ending: Ending,
        outcome: Outcome,
        now_ms: int,
        unless: Callable[[], bool],
    ) -> bool:
        try:
            partition = await self._topics.open(topic, index)
            if partition is None:
                return not self._may_stay(topic, index)
            handler = partition.handler
            async with self._appending:
                if self._topics.served_partition(topic, index) is not partition:
                    return False  # closed meanwhile: nobody would hear what becomes of an append
                if handler.read_only is not None:
                    return False
                end_offset = handler.log_end_offset
                if ending.producer_id in handler.transactions.open and not unless():
                    marker = encode_marker(outcome, ending.producer_id, ending.epoch, now_ms)
                    partition.append(memoryview(marker), read_header(marker), now_ms)
                    end_offset = handler.log_end_offset
                    log.debug("marker_written", topic=topic, partition=index, outcome=outcome.name)
            return await self._is_durable(partition, end_offset)
        except Exception as exc:  # for want of memory, too: whatever it is, it is tried again
            error, is_a_bug = str(exc) or repr(exc), not isinstance(exc, STORAGE_FAILURES)
            log.warning(
                "marker_not_written",
                topic=topic,
                partition=index,
                producer_id=ending.producer_id,
                outcome=outcome.name,
                error=error,
                effect="tried again; until then readers of committed records wait in front of it",
                exc_info=is_a_bug,
            )
            return False

    async def _is_durable(self, partition: Partition, end_offset: int) -> bool:
        """Wait until what lies below `end_offset` is durable, or fails."""
        handler = partition.handler
        if handler.high_watermark < end_offset:
            waiter = _Settled()
            partition.wait_durable(end_offset - 1, MARKER_SIZE, waiter, 0)
            self._turn.end()
            await waiter.event.wait()
            if waiter.code:
                return False
        else:
            partition.advanced()
            self._turn.end()
        if self._topics.manager.acks_unsynced(partition.topic, [partition.index]):
            await self._synced(partition)
        return handler.read_only is None

    def _may_stay(self, topic: str, index: int) -> bool:
        """Whether a partition that is not to be opened is there all the same: somebody deletes its
        topic, which may fail."""
        meta = self._topics.manager.topics.get(topic)
        return meta is not None and 0 <= index < meta.partitions

    async def _synced(self, partition: Partition) -> None:
        """Raises StorageError."""
        async with self._syncing:
            await self._lanes.run(partition.handler.sync)
