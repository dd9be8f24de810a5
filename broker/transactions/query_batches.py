"""Many transactions ended as one, with the number of the batch of a query that they are.

    commit   locks of all, in the order of their names -> each one open, as its sender says
             -> one decision with the query's last batch -> what else the query has open aborted
    forget   what is open under the names aborted -> names and query forgotten, durably

What a batch, a query and its tasks are: apis/batch_commits.py.  One batch at a time is committed:
a query that nobody uses is not forgotten in the middle of it.

Limits: as many names as a request may have; of several queries that are too old some are forgotten
in each round.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from itertools import islice
from typing import Final, NamedTuple

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.transactions import (
    FORGOTTEN,
    SECTION,
    Decision,
    State,
    Transaction,
    last_batch,
    queries_before,
    queries_count,
)

from ..loop.pace import Pace
from . import transactions
from .ledger import UNAVAILABLE, Ledger, are_completed
from .transaction_table import Entry

_TASK: Final = re.compile(r"[0-9]+/[0-9]+")
"""What is behind a query's name in the transactional id of one of its tasks: number, attempt."""


class Member(NamedTuple):
    """A transaction of a batch, as its sender says."""

    transactional_id: str
    producer_id: int
    epoch: int


class NotCommitted(Exception):
    """Nothing of the batch is committed."""

    def __init__(self, code: ErrorCode, name: str) -> None:
        """name: whose transaction it is about, or the query."""
        super().__init__(f"{name}: {code.name}")
        self.code = code
        self.name = name


class QueryBatches:
    """The batches of all queries."""

    def __init__(self, ledger: Ledger, manager: DiskManager) -> None:
        self._ledger = ledger
        self._manager = manager
        self._table = ledger.table
        self._batches = trio.Lock()

    def last_batch(self, query: str) -> int | None:
        """The last batch that was committed for a query."""
        return last_batch(self._manager.section(SECTION), query)

    def queries_count(self) -> int:
        """How many queries have a last batch."""
        return queries_count(self._manager.section(SECTION))

    async def commit(
        self,
        query: str,
        batch: int,
        members: Iterable[Member],
        *,
        may_end: Callable[[str], bool] | None = None,
    ) -> bool:
        """Commit these transactions, all or none, together with `query`'s last batch.

        may_end: whether the sender may abort this one, of what else the query's tasks have open by
            then; all of that is aborted with the batch, or nothing is done.  None: it stays.  It is
            of no later batch: nobody writes one before this is durable.
        Returns whether the batch had been committed before: then those that are still open are
        aborted, and no others.  Raises NotCommitted.
        """
        wanted = {member.transactional_id: member for member in members}
        async with self._batches, AsyncExitStack() as held:
            others = self._open_tasks(query) - wanted.keys() if may_end is not None else frozenset()
            entries = await self._locked(held, wanted, others)
            last = self.last_batch(query)
            is_repeated = last is not None and batch <= last
            ending = await self._ends(wanted.values(), entries, is_repeated=is_repeated)
            left: list[tuple[Entry, Decision]] = []
            if not is_repeated and may_end is not None:
                names = sorted(others & entries.keys())
                left = await self._other_ends([(name, entries[name]) for name in names], may_end)
            if ending or not is_repeated:
                decided = None if is_repeated else (query, batch)
                failed = await self._ledger.decide(ending, commit=not is_repeated, query=decided)
                if failed:
                    raise NotCommitted(failed, query)
            # The batch is committed: what cannot be aborted now ends when its time is over.
            for some in self._ledger.together(left, lambda one: one[1].transactional_id):
                if await self._ledger.decide(some, commit=False):
                    break
                ending += some
        await are_completed(entry for entry, _ in ending)
        return is_repeated

    async def _locked(
        self, held: AsyncExitStack, wanted: Collection[str], others: frozenset[str]
    ) -> dict[str, Entry]:
        """The entries of all, locked for as long as `held`; of `others` those that are still there.

        Raises NotCommitted.
        """
        entries: dict[str, Entry] = {}
        for name in sorted(others.union(wanted)):
            if (entry := self._table.entries.get(name)) is None:
                if name in others:
                    continue  # forgotten while this waited for a lock
                raise NotCommitted(ErrorCode.INVALID_PRODUCER_ID_MAPPING, name)
            await held.enter_async_context(entry.lock)
            entries[name] = entry
            if name in wanted and (code := await self._ledger.abort_torn(entry)):
                raise NotCommitted(code, name)
        return entries

    async def _ends(
        self, members: Iterable[Member], entries: Mapping[str, Entry], *, is_repeated: bool
    ) -> list[tuple[Entry, Decision]]:
        """How those that are open end.  Raises NotCommitted: one is over, and was not repeated."""
        ending: list[tuple[Entry, Decision]] = []
        for name, producer_id, epoch in members:
            known = entries[name].known
            code = transactions.check(known, producer_id, epoch)
            assert known is not None or code, "checked"
            if known is not None and not code and known.state is State.ONGOING:
                if (spare_id := await self._ledger.spare_id(known)) is None:
                    raise NotCommitted(UNAVAILABLE, name)
                ending.append((entries[name], transactions.end_by_another(known, spare_id)))
            elif not is_repeated and (code or known is None or known.state is not State.EMPTY):
                # It is over: aborted by its time, or by a successor.  EMPTY: nothing was sent.
                raise NotCommitted(code or ErrorCode.INVALID_TXN_STATE, name)
        return ending

    async def _other_ends(
        self, entries: Iterable[tuple[str, Entry]], may_end: Callable[[str], bool]
    ) -> list[tuple[Entry, Decision]]:
        """The aborts of those that are open.  Raises NotCommitted: the sender may not end one."""
        pace = Pace()
        left = await self._fences(entries)
        for _, decision in left:
            await pace.step()
            if not may_end(name := decision.transactional_id):
                raise NotCommitted(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, name)
        return left

    async def forget(self, names: Iterable[str], query: str | None) -> tuple[ErrorCode, int]:
        """Abort what is open under these names, and forget them and the query.

        Returns a code, and how many names were known.  One whose markers cannot be written now is
        kept, and goes with its age.
        """
        known = {name: entry for name in names if (entry := self._table.entries.get(name))}
        async with AsyncExitStack() as held:
            for _, entry in sorted(known.items()):
                await held.enter_async_context(entry.lock)
            ending = await self._fences(known.items())
            if ending and (failed := await self._ledger.decide(ending, commit=False)):
                return failed, 0
        await are_completed(known.values())
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
            if failed := await self._ledger.record(FORGOTTEN, gone, ids=gone, queries=queries):
                return failed, 0
            for name in gone:
                self._table.forget(name)
        return ErrorCode.NONE, len(gone)

    async def forget_old(self, before_ms: int) -> None:
        """Forget queries without a batch since then, some of them.

        Not while a batch is on its way: it could be of one of them, and would be forgotten with it.
        """
        if self._batches.locked():
            return
        async with self._batches:
            old = queries_before(self._manager.section(SECTION), before_ms)
            for queries in islice(self._ledger.together(old, str), 1):
                await self._ledger.record(FORGOTTEN, [], ids=[], queries=queries)

    def _open_tasks(self, query: str) -> frozenset[str]:
        """The transactional ids `query/TASK/ATTEMPT`, both numbers, that are open."""
        begin = f"{query}/"
        return frozenset(
            name
            for name in self._table.open
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

    def _standing(self, name: str, entry: Entry) -> Transaction | None:
        """What is known of a name whose entry is locked; None: it was forgotten meanwhile."""
        return entry.known if self._table.entries.get(name) is entry else None
