"""What stands of the transactions of this broker: every change durable first, then in memory.

    change      -> control event, durable -> in memory
    decision    -> control event, durable -> in memory -> markers (markers.py), by a task
    completion  -> in memory, control event not waited for

Whoever changes or decides holds the lock of the entry, from reading its state on; so two requests
never decide from the same state.  The markers are written without the lock.  Requests in the
meantime are answered 51 CONCURRENT_TRANSACTIONS.

A completion is recorded without a wait: if a crash loses it, the start looks for the markers again,
and finds them.

A failed event may be on the disk all the same.  So nothing is changed until a snapshot without it
is written (requests get 15, which clients retry): a decision that comes to light after a restart
must not meet its opposite.
"""

import errno
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.directory.manager import DiskManager
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
    transactions_of,
)

from ..configuration.logs import told
from ..error_map import STORAGE_FAILURES
from ..failed_changes import FailedChanges
from ..loop.pace import Pace
from ..recording import recorded
from . import transactions
from .markers import Markers
from .producer_ids import ProducerIds
from .transaction_table import Entry, TransactionTable

log = structlog.get_logger()

MARKERS_WAIT_SECONDS: Final = 5.0
NAMES_PER_EVENT: Final = 500
"""Of those that may be written down one after the other: what follows takes the loop some ms."""
_BESIDE_BYTES: Final = 100
"""What an event says of one beside its name, at most."""
TOLD_MAX: Final = 10
"""Ids that a line names."""
UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE

_Row = TypeVar("_Row")


class Ledger:
    """The transactional ids of one broker, in memory and in control events."""

    def __init__(
        self,
        manager: DiskManager,
        markers: Markers,
        producer_ids: ProducerIds,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        now_ms: Callable[[], int],
        failed: FailedChanges,
    ) -> None:
        self._manager = manager
        self._failed = failed
        self._markers = markers
        self._producer_ids = producer_ids
        self._spawn = spawn
        self._now_ms = now_ms
        self.table = TransactionTable()

    async def load(self) -> list[Entry]:
        """Take up what stands, at the start: others that look after the start have their turn."""
        pace = Pace()
        for known in transactions_of(self._manager.section(SECTION)):
            entry = self.table.entries[known.transactional_id] = Entry()
            self.table.stands(entry, known)
            await pace.step()
        return list(self.table.entries.values())

    async def spare_id(self, known: Transaction | None) -> int | None:
        """A new producer id if the next epoch takes one, else -1; None: there is none now."""
        if not transactions.needs_id(known):
            return -1
        try:
            return await self._producer_ids.take()
        except STORAGE_FAILURES:
            return None

    async def change(self, entry: Entry, changed: Transaction) -> ErrorCode:
        """One durable event; the entry is locked."""
        row = changed._replace(boot=self._manager.boot_number)
        name = row.transactional_id
        code = await self.record(TRANSACTION, [name], id=name, row=row.pack())
        if not code:
            self.table.stands(entry, row)
        return code

    async def decide(
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
                return UNAVAILABLE
        at_ms = self._now_ms()
        code = await self.record(
            DECIDED,
            [decision.transactional_id for _, decision in ending],
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

    async def abort(self, entry: Entry, meant: Transaction) -> None:
        """Abort a transaction, unless it has ended meanwhile."""
        async with entry.lock:
            known = entry.known
            if known is None or known.state is not State.ONGOING or known.key != meant.key:
                return
            if known.started_ms != meant.started_ms:
                return  # the next one of the same epoch
            await self._abort_open(entry, known)

    async def abort_torn(self, entry: Entry) -> ErrorCode:
        """Abort first what nobody may go on with or commit; the entry is locked."""
        if not entry.is_torn:
            return ErrorCode.NONE
        assert entry.known is not None, "it is open"
        return await self._abort_open(entry, entry.known)

    async def _abort_open(self, entry: Entry, known: Transaction) -> ErrorCode:
        """Abort what its producer has open, who may go on afterwards; the entry is locked."""
        if (spare_id := await self.spare_id(known)) is None:
            return UNAVAILABLE
        decision = transactions.abort(known, spare_id)
        return await self.decide([(entry, decision)], commit=False)

    async def forget_locked(self, ids: list[str]) -> list[str]:
        """Know nothing of these any more, durably; their entries are locked.  Those of which that
        is so: all, unless it could not be written."""
        gone: list[str] = []
        for some in self.together(ids, str):
            if await self.record(FORGOTTEN, some, ids=some, queries=[]):
                break
            for name in some:
                self.table.forget(name)
            gone += some
        return gone

    def together(
        self, rows: Iterable[_Row], name_of: Callable[[_Row], str]
    ) -> Iterator[list[_Row]]:
        """The rows, as many at a time as an event takes: a name may have 32 KiB."""
        most = self._manager.event_size_max // 2

        def size_of(row: _Row) -> int:
            return len(name_of(row).encode()) + _BESIDE_BYTES

        return together(rows, size_of, NAMES_PER_EVENT, most)

    async def record(self, kind: str, names: Sequence[str], **fields: object) -> ErrorCode:
        """Have a control event written; NONE when it is durable.  names: the ids that it is of."""
        if not self._manager.is_settled:
            return UNAVAILABLE
        failure = await recorded(lambda done: self._manager.record_soon(done, kind, **fields))
        if failure is not None:
            too_large = failure.errno == errno.EMSGSIZE
            effect = "refused" if too_large else "nothing has changed; clients ask again"
            facts = {"transactional_ids": [*map(told, names[:TOLD_MAX])], "effect": effect}
            log.error("transaction_not_recorded", kind=kind, error=str(failure), **facts)
            return ErrorCode.INVALID_REQUEST if too_large else UNAVAILABLE
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
        name = row.transactional_id
        done = self._failed.told("completion_not_recorded", name, transactional_id=name)
        self._manager.record_soon(done, TRANSACTION, id=name, row=row.pack())
        self.table.stands(entry, row)


async def are_completed(entries: Iterable[Entry]) -> bool:
    """Wait for the markers of all of these, but not for ever: the transactions are decided, and
    that cannot be undone."""
    with trio.move_on_after(MARKERS_WAIT_SECONDS):
        for entry in entries:
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
