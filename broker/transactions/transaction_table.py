"""The transactional ids in memory: what stands, who is open, whose offsets are pending.

One `Entry` per id, with the lock under which it is changed; the table finds it by transactional
id, by producer id, by group, and among those that are open.  Nothing here is durable: `stands` is
called when it is.  Offsets alone are pending from before that, while they are `staging`: the member
that may have them stand has been asked for, and the group may go on without it from then on.

Invariant: an entry is in `open` exactly while its transaction is ONGOING; its `completed` is unset
exactly while it is being ended.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Final

import trio

from segbroker.segments.metadata.transactions import State, Transaction

from ..loop.loop_clock import monotonic_ms


@dataclass(eq=False, slots=True)
class Entry:
    """One transactional id; `known` is None until its first producer id is durable."""

    known: Transaction | None = None
    lock: trio.Semaphore = field(default_factory=partial(trio.Semaphore, 1, max_value=1))
    """Not a trio.Lock: that is looked for, to be released, among all that its task holds, and one
    request may hold a hundred thousand."""
    completed: trio.Event = field(default_factory=trio.Event)
    fence_key: tuple[int, int] | None = None
    """The producer id and epoch of the abort by which another producer took it, and was told."""
    deadline_ms: int = 0
    """Monotonic: when an open transaction is aborted."""
    opened_ms: int = 0
    """Monotonic: since when it is open."""
    is_torn: bool = False
    """Records of the open transaction may be gone: it can only be aborted."""

    def __post_init__(self) -> None:
        self.completed.set()

    @property
    def is_locked(self) -> bool:
        """Whether somebody is about to change it."""
        return not self.lock.value


class TransactionTable:
    """All transactional ids of a broker."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.open: dict[str, Entry] = {}
        self._names: dict[int, str] = {}
        # By group: the transactions that have offsets of it; and of how many things each partition
        # waits for the end.  Ten thousand may have offsets of one group.
        self._waiting: dict[str, dict[str, None]] = {}
        self._pending: dict[str, dict[tuple[str, int], int]] = {}

    def get(self, transactional_id: str) -> Transaction | None:
        """What is known of an id."""
        entry = self.entries.get(transactional_id)
        return None if entry is None else entry.known

    def all(self) -> list[Transaction]:
        """Every id that is known.  From any thread: a large request is answered in a lane."""
        entries = tuple(self.entries.values())  # at once: others are added meanwhile
        return [entry.known for entry in entries if entry.known is not None]

    def pending(self, group: str) -> set[tuple[str, int]]:
        """The partitions whose offset waits for the end of a transaction, as of now."""
        return set(self._pending.get(group, ()))

    @contextmanager
    def staging(self, group: str, partitions: Collection[tuple[str, int]]) -> Iterator[None]:
        """Offsets of these are being staged: they are pending before that is durable."""
        self._count(group, partitions, 1)
        try:
            yield
        finally:
            self._count(group, partitions, -1)

    def _count(self, group: str, partitions: Iterable[tuple[str, int]], step: int) -> None:
        pending = self._pending.setdefault(group, {})
        for one in partitions:
            if left := pending.get(one, 0) + step:
                pending[one] = left
            else:
                del pending[one]
        if not pending:
            del self._pending[group]

    @property
    def groups(self) -> list[str]:
        """The groups of which an offset waits for the end of a transaction."""
        return list(self._waiting)

    def has_offsets(self, group: str) -> bool:
        """Whether an offset of the group waits for the end of a transaction."""
        return group in self._waiting

    def waiting(self, group: str) -> list[Entry]:
        """Those whose transaction has offsets of the group."""
        return [self.entries[name] for name in self._waiting.get(group, ())]

    def takes_part(self, producer_id: int, topic: str, partition: int) -> bool:
        """Whether a producer has a transaction with this partition, open or being ended."""
        return self.taking_part(producer_id, topic, partition) is not None

    def taking_part(self, producer_id: int, topic: str, partition: int) -> Entry | None:
        """The entry of whose transaction it is, if a producer has one with this partition."""
        entry = self.entries.get(self._names.get(producer_id, ""))
        known = None if entry is None else entry.known
        if known is None or not known.has(topic, partition):
            return None
        holder = known.producer_id
        if known.ending is not None:
            holder = known.ending.producer_id
        elif known.state is not State.ONGOING:
            return None
        return entry if holder == producer_id else None

    def stands(self, entry: Entry, row: Transaction) -> None:
        """`row` is durable."""
        before, entry.known = entry.known, row
        name = row.transactional_id
        for producer_id in _ids(before) - _ids(row):
            self._names.pop(producer_id, None)
        for producer_id in _ids(row):
            self._names[producer_id] = name
        if row.state is not State.ONGOING:
            self.open.pop(name, None)
            entry.is_torn = False
        elif name not in self.open:
            self.open[name] = entry
            entry.opened_ms = monotonic_ms()
            entry.deadline_ms = entry.opened_ms + row.timeout_ms
        staged = {} if before is None else before.offsets
        for group, rows in staged.items():
            if rows and row.offsets.get(group) is not rows:
                self._count(group, map(_partition, rows), -1)
                del self._waiting[group][name]
                if not self._waiting[group]:
                    del self._waiting[group]
        for group, rows in row.offsets.items():
            if rows and staged.get(group) is not rows:
                self._count(group, map(_partition, rows), 1)
                self._waiting.setdefault(group, {})[name] = None
        if row.state.is_ending:
            if entry.completed.is_set():
                entry.completed = trio.Event()
        else:
            entry.completed.set()

    def forget(self, transactional_id: str) -> None:
        """Nothing is known of an id any more; nothing of it is open."""
        entry = self.entries.pop(transactional_id)
        for producer_id in _ids(entry.known):
            self._names.pop(producer_id, None)
        entry.known = None


_partition: Final = itemgetter(0, 2)
"""Whose offset a row of `Transaction.offsets` is."""


def _ids(row: Transaction | None) -> set[int]:
    """The producer ids that batches of this transactional id may have now."""
    if row is None:
        return set()
    return {row.producer_id} if row.ending is None else {row.producer_id, row.ending.producer_id}
