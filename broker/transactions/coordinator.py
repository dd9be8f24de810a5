"""Transactions: who holds the transactional ids of this broker, and what happens to them.

    verdict of transactions.py -> control event, durable -> in memory -> answer
                                                         -> decided: markers (markers.py), by a task

Everything about one id happens under its lock, from reading its state to the durable change, so two
requests never decide from the same state.  The markers are written without the lock.  Requests in
the meantime are answered 51 CONCURRENT_TRANSACTIONS.  EndTxn is answered when the markers are
there, or after MARKERS_WAIT_SECONDS without them: the transaction is decided, and that cannot be
undone.

A completion is recorded without a wait: if a crash loses it, the start looks for the markers again,
and finds them.  transaction_upkeep.py has what happens without a request.

A failed event may be on the disk all the same.  So nothing is changed until a snapshot without it
is written (requests get 15, which clients retry): a decision that comes to light after a restart
must not meet its opposite.

Limits: `transactional_ids_max` ids, then a new one is refused (44), as where the metadata of the
broker is full; what would not fit one event: offsets with so much metadata (28), partitions or
transactions with such names (42).
"""

import errno
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.record_batch import BatchHeader
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.committed import CommitRow
from segbroker.segments.metadata.together import together
from segbroker.segments.metadata.transactions import (
    DECIDED,
    FORGOTTEN,
    SECTION,
    TRANSACTION,
    Decision,
    State,
    Transaction,
    after_decision,
    after_markers,
    last_batch,
    queries_before,
    queries_count,
    transactions_of,
)

from ..configuration.config import BrokerConfig
from ..error_map import STORAGE_FAILURES
from ..limited_lines import LimitedLines
from ..loop.pace import Pace
from ..recording import logged, recorded
from . import transactions
from .markers import Markers
from .producer_ids import ProducerIds
from .transaction_table import Entry, TransactionTable
from .transactions import Verdict

log = structlog.get_logger()

MARKERS_WAIT_SECONDS: Final = 5.0
NAMES_PER_EVENT: Final = 500
"""Of those that may be written down one after the other: what follows takes the loop some ms."""
_BESIDE_BYTES: Final = 100
"""What an event says of one beside its name, at most."""
_UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
_TASK: Final = re.compile(r"[0-9]+/[0-9]+")
"""What is behind a query's name in the transactional id of one of its tasks: number, attempt."""

_Row = TypeVar("_Row")


class Given(NamedTuple):
    """A code, and the producer id and epoch to go on with."""

    code: ErrorCode
    producer_id: int = -1
    epoch: int = -1


class Coordinator:
    """The transactional ids of one broker."""

    def __init__(
        self,
        manager: DiskManager,
        config: BrokerConfig,
        markers: Markers,
        producer_ids: ProducerIds,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._manager = manager
        self.config = config
        self._markers = markers
        self._producer_ids = producer_ids
        self._spawn = spawn
        self._now_ms = now_ms
        self.table = TransactionTable()
        self.lines = LimitedLines("transaction_lines_omitted")
        self._batches = trio.Lock()

    def load(self) -> list[Entry]:
        """Take up what stands, at the start."""
        for known in transactions_of(self._manager.section(SECTION)):
            entry = self.table.entries[known.transactional_id] = Entry()
            self.table.stands(entry, known)
        return list(self.table.entries.values())

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

    # What producers ask for

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
                if (spare_id := await self._spare_id(known)) is None:
                    return Given(_UNAVAILABLE)
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
                    failed = await self._decide([(entry, verdict.decision)], commit=False)
                    if failed:
                        return Given(failed)
                    if is_successor and known is not None:
                        self._tell_fenced(entry, known, by)
                        is_successor = False  # it is told
            if not await _is_completed(entry):
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
            if code := await self._abort_torn(entry):
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
            if code := await self._abort_torn(entry):
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
                code = await self._abort_torn(entry)
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
            if code := await self._abort_torn(entry):
                return Given(code)
            spare_id = await self._spare_id(entry.known) if next_epoch else -1
            if spare_id is None:
                return Given(_UNAVAILABLE)
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
            await _is_completed(entry)
        return given

    # Several at once

    async def commit_batch(
        self,
        query: str,
        batch: int,
        members: Iterable[tuple[str, int, int]],
        *,
        may_end: Callable[[str], bool] | None = None,
    ) -> tuple[ErrorCode, str, bool]:
        """Commit these transactions, all or none, together with `query`'s last batch.

        may_end: whether the sender may abort this one, of what else the query's tasks have open by
            then; all of that is aborted with the batch, or nothing is done.  None: it stays.  It is
            of no later batch: nobody writes one before this is durable.
        Returns a code, whose transaction it is about, and whether the batch had been committed
        before: then those that are still open are aborted, and no others.
        """
        wanted = {member[0]: member for member in members}
        async with self._batches, AsyncExitStack() as held:
            entries: dict[str, Entry] = {}
            others = self._open_tasks(query) - wanted.keys() if may_end is not None else frozenset()
            for name in sorted(wanted.keys() | others):
                if (entry := self.table.entries.get(name)) is None:
                    if name in others:
                        continue  # forgotten while this waited for a lock
                    return ErrorCode.INVALID_PRODUCER_ID_MAPPING, name, False
                await held.enter_async_context(entry.lock)
                entries[name] = entry
                if name in wanted and (code := await self._abort_torn(entry)):
                    return code, name, False
            last = self.last_batch(query)
            is_repeated = last is not None and batch <= last
            ending: list[tuple[Entry, Decision]] = []
            for name, (_, producer_id, epoch) in wanted.items():
                known = entries[name].known
                code = transactions.check(known, producer_id, epoch)
                assert known is not None or code, "checked"
                if known is not None and not code and known.state is State.ONGOING:
                    if (spare_id := await self._spare_id(known)) is None:
                        return _UNAVAILABLE, name, False
                    decision = transactions.end_by_another(known, spare_id)
                    ending.append((entries[name], decision))
                elif not is_repeated and (code or known is None or known.state is not State.EMPTY):
                    # It is over: aborted by its time, or by a successor.  EMPTY: nothing was sent.
                    return code or ErrorCode.INVALID_TXN_STATE, name, False
            commit = not is_repeated
            left: list[tuple[Entry, Decision]] = []
            if commit and may_end is not None:
                pace = Pace()
                left = await self._fences(
                    (name, entries[name]) for name in sorted(others & entries.keys())
                )
                for _, decision in left:
                    await pace.step()
                    if not may_end(name := decision.transactional_id):
                        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, name, False
            if ending or commit:
                decided = (query, batch) if commit else None
                failed = await self._decide(ending, commit=commit, query=decided)
                if failed:
                    return failed, query, False
            # The batch is committed: what cannot be aborted now ends when its time is over.
            for some in self._together(left, lambda one: one[1].transactional_id):
                if await self._decide(some, commit=False):
                    break
                ending += some
        with trio.move_on_after(MARKERS_WAIT_SECONDS):
            for entry, _ in ending:
                await entry.completed.wait()
        return ErrorCode.NONE, "", is_repeated

    def _open_tasks(self, query: str) -> frozenset[str]:
        """The transactional ids `query/TASK/ATTEMPT`, both numbers, that are open."""
        begin = f"{query}/"
        return frozenset(
            name
            for name in self.table.open
            if name.startswith(begin) and _TASK.fullmatch(name, len(begin))
        )

    async def _fences(self, entries: Iterable[tuple[str, Entry]]) -> list[tuple[Entry, Decision]]:
        """The aborts of those that are open; they are locked."""
        found: list[tuple[Entry, Decision]] = []
        pace = Pace()
        for name, entry in entries:
            await pace.step()
            row = self._standing(name, entry)
            if row is not None and row.state is State.ONGOING:
                found.append((entry, transactions.fence(row)))
        return found

    async def forget(self, names: Iterable[str], query: str | None) -> tuple[ErrorCode, int]:
        """Abort what is open under these names, and forget them and the query.

        Returns a code, and how many names were known.  One whose markers cannot be written now is
        kept, and goes with its age.
        """
        known = {name: entry for name in names if (entry := self.table.entries.get(name))}
        async with AsyncExitStack() as held:
            for _, entry in sorted(known.items()):
                await held.enter_async_context(entry.lock)
            ending = await self._fences(known.items())
            if ending and (failed := await self._decide(ending, commit=False)):
                return failed, 0
        with trio.move_on_after(MARKERS_WAIT_SECONDS):
            for entry in known.values():
                await entry.completed.wait()
        async with self._batches, AsyncExitStack() as held:
            gone: list[str] = []
            for name, entry in sorted(known.items()):
                await held.enter_async_context(entry.lock)
                row = self._standing(name, entry)
                if row is not None and row.state.is_idle:
                    gone.append(name)
            queries = [] if query is None or self.last_batch(query) is None else [query]
            if not gone and not queries:
                return ErrorCode.NONE, 0
            if failed := await self._record(FORGOTTEN, ids=gone, queries=queries):
                return failed, 0
            for name in gone:
                self.table.forget(name)
        return ErrorCode.NONE, len(gone)

    def _standing(self, name: str, entry: Entry) -> Transaction | None:
        """What is known of a name whose entry is locked; None: it was forgotten meanwhile."""
        return entry.known if self.table.entries.get(name) is entry else None

    def last_batch(self, query: str) -> int | None:
        """The last batch that was committed for a query."""
        return last_batch(self._manager.section(SECTION), query)

    def queries_count(self) -> int:
        """How many queries have a last batch."""
        return queries_count(self._manager.section(SECTION))

    # Without being asked to

    async def abort(self, entry: Entry, meant: Transaction) -> None:
        """Abort a transaction, unless it has ended meanwhile."""
        async with entry.lock:
            known = entry.known
            if known is None or known.state is not State.ONGOING or known.key != meant.key:
                return
            if known.started_ms != meant.started_ms:
                return  # the next one of the same epoch
            await self._abort_open(entry, known)

    async def forget_locked(self, ids: list[str]) -> list[str]:
        """Know nothing of these any more, durably; their entries are locked.  Those of which that
        is so: all, unless it could not be written."""
        gone: list[str] = []
        for some in self._together(ids, str):
            if await self._record(FORGOTTEN, ids=some, queries=[]):
                break
            for name in some:
                self.table.forget(name)
            gone += some
        return gone

    def _together(
        self, rows: Iterable[_Row], name_of: Callable[[_Row], str]
    ) -> Iterator[list[_Row]]:
        """The rows, as many at a time as an event takes: a name may have 32 KiB."""
        most = self._manager.event_size_max // 2

        def size_of(row: _Row) -> int:
            return len(name_of(row).encode()) + _BESIDE_BYTES

        return together(rows, size_of, NAMES_PER_EVENT, most)

    async def forget_queries(self, before_ms: int) -> None:
        """Forget queries without a batch since then, some of them.

        Not while a batch is on its way: it could be of one of them, and would be forgotten with it.
        """
        if self._batches.locked():
            return
        async with self._batches:
            old = queries_before(self._manager.section(SECTION), before_ms)
            for queries in islice(self._together(old, str), 1):
                await self._record(FORGOTTEN, ids=[], queries=queries)

    async def _abort_torn(self, entry: Entry) -> ErrorCode:
        """Abort first what nobody may go on with or commit; the entry is locked."""
        if not entry.is_torn:
            return ErrorCode.NONE
        assert entry.known is not None, "it is open"
        return await self._abort_open(entry, entry.known)

    async def _abort_open(self, entry: Entry, known: Transaction) -> ErrorCode:
        """Abort what its producer has open, who may go on afterwards; the entry is locked."""
        if (spare_id := await self._spare_id(known)) is None:
            return _UNAVAILABLE
        decision = transactions.abort(known, spare_id)
        return await self._decide([(entry, decision)], commit=False)

    # Changes

    async def _spare_id(self, known: Transaction | None) -> int | None:
        """A new producer id if the next epoch takes one, else -1; None: there is none now."""
        if not transactions.needs_id(known):
            return -1
        try:
            return await self._producer_ids.take()
        except STORAGE_FAILURES:
            return None

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
            row = verdict.changed._replace(boot=self._manager.boot_number)
            code = await self._record(TRANSACTION, id=row.transactional_id, row=row.pack())
            if not code:
                self.table.stands(entry, row)
        elif not code and verdict.decision is not None:
            code = await self._decide([(entry, verdict.decision)], commit=verdict.commit)
        if code or entry.known is None:
            return Given(code)
        return Given(code, *entry.known.key)

    async def _decide(
        self,
        ending: list[tuple[Entry, Decision]],
        *,
        commit: bool,
        query: tuple[str, int] | None = None,
    ) -> ErrorCode:
        """One durable event; the markers follow.  Every entry is locked."""
        if commit:
            known = [entry.known for entry, _ in ending if entry.known is not None]
            if not await self._markers.sync_data(known):
                return _UNAVAILABLE
        at_ms = self._now_ms()
        code = await self._record(
            DECIDED,
            at=at_ms,
            commit=commit,
            rows=[list(decision) for _, decision in ending],
            query=None if query is None else list(query),
        )
        if code:
            return code
        for entry, decision in ending:
            assert entry.known is not None, "it is open"
            after = after_decision(entry.known, decision, commit=commit, at_ms=at_ms)
            self.table.stands(entry, after)
            if after.state.is_ending:
                self.complete_soon(entry)
        return ErrorCode.NONE

    async def _record(self, kind: str, **fields: object) -> ErrorCode:
        """Have a control event written; NONE when it is durable."""
        if not self._manager.is_settled:
            return _UNAVAILABLE
        failure = await recorded(lambda done: self._manager.record_soon(done, kind, **fields))
        if failure is not None:
            log.error("transaction_not_recorded", kind=kind, error=str(failure))
            too_large = failure.errno == errno.EMSGSIZE
            return ErrorCode.INVALID_REQUEST if too_large else _UNAVAILABLE
        return ErrorCode.NONE

    def complete_soon(self, entry: Entry) -> None:
        """Have the markers of a decided transaction written."""
        self._spawn(partial(self._complete, entry))

    async def _complete(self, entry: Entry) -> None:
        """Write the markers; nobody else changes the transaction meanwhile."""
        ended = entry.known
        assert ended is not None, "it is decided"
        await self._markers.write_all(ended, self._now_ms())
        row = after_markers(ended, at_ms=self._now_ms())
        done = logged("completion_not_recorded", transactional_id=row.transactional_id)
        self._manager.record_soon(done, TRANSACTION, id=row.transactional_id, row=row.pack())
        self.table.stands(entry, row)


def _unknown(transactional_id: str) -> ErrorCode:
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def _is_completed(entry: Entry) -> bool:
    """Wait for the markers, but not for ever."""
    with trio.move_on_after(MARKERS_WAIT_SECONDS):
        await entry.completed.wait()
        return True
    return False


def name_of(known: Transaction) -> dict[str, str | int]:
    """A transaction in a log line."""
    return {
        "transactional_id": known.transactional_id,
        "producer_id": known.producer_id,
        "epoch": known.epoch,
        "partitions": known.partitions_count,
    }
