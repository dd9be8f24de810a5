"""Transactions: what producers ask for, one transactional id at a time.

    verdict of transactions.py -> durable, in memory, markers (ledger.py) -> answer

Everything about one id happens under its lock, from reading its state to the durable change.
EndTxn is answered when the markers are there, or after MARKERS_WAIT_SECONDS without them.

Several at once are in query_batches.py, what happens without a request in transaction_upkeep.py.

Limits: `transactional_ids_max` ids, then a new one is refused (44), as where the metadata of the
broker is full; what would not fit one event: offsets with so much metadata (28), partitions or
transactions with such names (42).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.record_batch import BatchHeader
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.committed import CommitRow
from segbroker.segments.metadata.transactions import State, Transaction

from ..configuration.config import BrokerConfig
from ..limited_lines import LimitedLines
from . import transactions
from .ledger import UNAVAILABLE, Ledger, are_completed, name_of
from .transaction_table import Entry
from .transactions import Verdict


class Given(NamedTuple):
    """A code, and the producer id and epoch to go on with."""

    code: ErrorCode
    producer_id: int = -1
    epoch: int = -1


class Coordinator:
    """The transactional ids of one broker."""

    def __init__(
        self,
        ledger: Ledger,
        manager: DiskManager,
        config: BrokerConfig,
        now_ms: Callable[[], int],
    ) -> None:
        self._ledger = ledger
        self._manager = manager
        self.config = config
        self._now_ms = now_ms
        self.table = ledger.table
        self.lines = LimitedLines("transaction_lines_omitted")

    def check_produce(
        self, transactional_id: str, header: BatchHeader, topic: str, partition: int
    ) -> ErrorCode:
        """Whether the batch is part of the transaction that its producer has open."""
        return transactions.check_produce(
            self.table.get(transactional_id),
            header.producer_id,
            header.producer_epoch,
            topic,
            partition,
        )

    async def init(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int,
        epoch: int,
        by: Mapping[str, str],
    ) -> Given:
        """A producer id and epoch; whoever had the one before is fenced, what it left open is
        aborted.  by: who asks, as the log tells it."""
        if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            return Given(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        is_successor = producer_id < 0
        while True:
            entry = self._obtain(transactional_id)
            if entry is None:
                return Given(ErrorCode.POLICY_VIOLATION)
            async with entry.lock:
                if self.table.entries.get(transactional_id) is not entry:
                    continue  # forgotten while this waited for the lock
                known = entry.known
                if (spare_id := await self._ledger.spare_id(known)) is None:
                    return Given(UNAVAILABLE)
                verdict = transactions.init(
                    known,
                    transactional_id,
                    timeout_ms,
                    producer_id,
                    epoch,
                    spare_id,
                    self._now_ms(),
                )
                if verdict.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    given = await self._apply(entry, verdict)
                    if is_successor and known is not None and not given.code:
                        self._tell_fenced(entry, known, by)
                    return given
                if verdict.decision is not None:
                    failed = await self._ledger.decide([(entry, verdict.decision)], commit=False)
                    if failed:
                        return Given(failed)
                    if is_successor and known is not None:
                        self._tell_fenced(entry, known, by)
                        is_successor = False  # it is told
            if not await are_completed([entry]):
                return Given(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _tell_fenced(self, entry: Entry, known: Transaction, by: Mapping[str, str]) -> None:
        """Another producer has the id; what its predecessor had open is aborted."""
        if known.key == entry.fence_key:
            return  # told when it began: the epoch that fenced is nobody's
        if known.state is State.ONGOING and entry.known is not None:
            entry.fence_key = entry.known.key
        facts = {**name_of(known), "aborts": known.state is State.ONGOING, **by}
        self.lines.tell("producer_fenced", known.transactional_id, **facts)

    async def add(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Mapping[str, Iterable[int]],
        group: str | None = None,
    ) -> ErrorCode:
        """Have these take part in the transaction; it begins with the first."""
        entry = self.table.entries.get(transactional_id)
        if entry is None:
            return _unknown(transactional_id)
        async with entry.lock:
            if code := await self._ledger.abort_torn(entry):
                return code
            verdict = transactions.add(
                entry.known, producer_id, epoch, partitions, group, self._now_ms()
            )
            return (await self._apply(entry, verdict)).code

    async def stage(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        group: str,
        accepted: Callable[[], list[CommitRow]],
        *,
        implicit: bool,
    ) -> ErrorCode:
        """Keep offsets that stand when the transaction commits.

        accepted: those that the group takes of the sender; asked when its turn has come, as the
            group may have gone on without it while it waited, and only of who may stage any.
        """
        entry = self.table.entries.get(transactional_id)
        if entry is None:
            return _unknown(transactional_id)
        async with entry.lock:
            if code := await self._ledger.abort_torn(entry):
                return code
            now_ms = self._now_ms()
            verdict = transactions.takes_offsets(
                entry.known, producer_id, epoch, group, now_ms, implicit=implicit
            )
            if verdict.changed is None or not (rows := accepted()):
                return verdict.code
            verdict = transactions.stage(
                verdict.changed, group, rows, now_ms, self._manager.last_seq
            )
            with self.table.staging(group, {(row.topic, row.partition) for row in rows}):
                code = (await self._apply(entry, verdict)).code
            # The metadata of the offsets is all that can be so large.
            is_too_large = not verdict.code and code is ErrorCode.INVALID_REQUEST
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_too_large else code

    async def unstage(self, group: str, gone: Collection[tuple[str, int]] | None) -> ErrorCode:
        """Somebody deletes offsets of a group, all of them with None: those that wait for the end
        of a transaction go, too."""
        for entry in self.table.waiting(group):
            async with entry.lock:
                code = await self._ledger.abort_torn(entry)
                verdict = transactions.unstage(entry.known, group, gone)
                if code := code or (await self._apply(entry, verdict)).code:
                    return code
        return ErrorCode.NONE

    async def end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        next_epoch: bool,
    ) -> Given:
        """Commit or abort; decided when this returns, and in all partitions unless one of them
        cannot be written."""
        entry = self.table.entries.get(transactional_id)
        if entry is None:
            return Given(_unknown(transactional_id))
        async with entry.lock:
            if code := await self._ledger.abort_torn(entry):
                return Given(code)
            spare_id = await self._ledger.spare_id(entry.known) if next_epoch else -1
            if spare_id is None:
                return Given(UNAVAILABLE)
            verdict = transactions.end(
                entry.known,
                producer_id,
                epoch,
                spare_id,
                self._now_ms(),
                commit=commit,
                next_epoch=next_epoch,
            )
            given = await self._apply(entry, verdict)
        if verdict.decision is not None and not given.code:
            await are_completed([entry])
        return given

    def _obtain(self, transactional_id: str) -> Entry | None:
        entry = self.table.entries.get(transactional_id)
        has_room = len(self.table.entries) < self.config.transactional_ids_max
        if entry is None and has_room and not self._manager.is_metadata_full:
            entry = self.table.entries[transactional_id] = Entry()
        return entry

    async def _apply(self, entry: Entry, verdict: Verdict) -> Given:
        """Make durable what a verdict says; what to answer.  The entry is locked."""
        code = verdict.code
        if not code and verdict.changed is not None:
            code = await self._ledger.change(entry, verdict.changed)
        elif not code and verdict.decision is not None:
            decision = verdict.decision
            code = await self._ledger.decide([(entry, decision)], commit=verdict.commit)
        if code or entry.known is None:
            return Given(code)
        return Given(code, *entry.known.key)


def _unknown(transactional_id: str) -> ErrorCode:
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING
