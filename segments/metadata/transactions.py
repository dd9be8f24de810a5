"""Transactional ids: who holds them, and what is open or being ended, kept as control events.

    section "transactions" of the snapshot:
        {"ids": {bucket: {transactional id: row}}, "queries": {query: [last batch, at]}}

| event | fields | afterwards |
|---|---|---|
| transaction | id, row | so it stands |
| transactions_decided | at, commit, rows, query | these are being ended so; their offsets stand |
| transactions_forgotten | ids, queries | nothing is known of them |

A decision is one event, whatever it is about: with it the offsets of a committed transaction stand
(section "groups", committed.py), and, where it says `query: [name, batch]`, that batch is the
query's last.  What follows, the markers in the partitions, is done again at every start until a
`transaction` event says that it is done.

A row of a decision is [id, producer id, epoch, next producer id, next epoch, is_fence]: whose
transaction is meant, and what the producer goes on with.  One that is not open is passed over, so
the event may be applied again.

Ids lie in buckets because a state is never changed in place: a change copies one bucket and the
list of buckets, not a hundred thousand ids.  Every function here is pure.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

from segbroker.protocol.markers import Outcome

SECTION: Final = "transactions"
TRANSACTION: Final = "transaction"
DECIDED: Final = "transactions_decided"
FORGOTTEN: Final = "transactions_forgotten"

BUCKETS: Final = 256
BOOT_UNKNOWN: Final = -1
"""Of a row that an older version has written, or of one that was never open."""
BOOT_TORN: Final = -2
"""Of an open transaction that has lost records (replay/tearing.py), as if it were of a boot that
never was."""
EPOCH_LAST: Final = 32_766
"""The last epoch that a producer is given; one above it only fences."""

Content: TypeAlias = Mapping[str, Mapping[str, Any]]
Fields: TypeAlias = Mapping[str, Any]


class State(IntEnum):
    """Where a transactional id stands; the numbers are stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_ending(self) -> bool:
        """Whether it is decided, and not every partition has its marker."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is open or being ended."""
        return self in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

    @property
    def outcome(self) -> Outcome | None:
        """How the last transaction ended or is being ended."""
        return _OUTCOMES.get(self)


_STATE: Final = 5
"""Where it stands in a row."""
_OUTCOMES: Final = {
    State.PREPARE_COMMIT: Outcome.COMMIT,
    State.COMPLETE_COMMIT: Outcome.COMMIT,
    State.PREPARE_ABORT: Outcome.ABORT,
    State.COMPLETE_ABORT: Outcome.ABORT,
}


class Ending(NamedTuple):
    """Under which id and epoch the markers are written."""

    producer_id: int
    epoch: int


class Transaction(NamedTuple):
    """What is known of a transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int
    last_producer_id: int = -1
    """Its id and epoch before the last change that it may ask for again; -1: none."""
    last_epoch: int = -1
    timeout_ms: int = 60_000
    state: State = State.EMPTY
    at_ms: int = 0
    """Wall clock of the last change."""
    started_ms: int = -1
    """Wall clock of the first part of the open transaction."""
    partitions: Mapping[str, tuple[int, ...]] = {}
    """By topic, in order."""
    offsets: Mapping[str, tuple[tuple[Any, ...], ...]] = {}
    """By group: packed CommitRows that stand when the transaction commits, each with the last event
    that was handed over before it was staged."""
    ending: Ending | None = None
    boot: int = BOOT_UNKNOWN
    """The number of the boot of the machine in which an open transaction was last changed, or found
    by a start to have lost nothing."""

    @property
    def key(self) -> tuple[int, int]:
        """Who may do something: producer id and epoch."""
        return self.producer_id, self.epoch

    @property
    def partitions_count(self) -> int:
        """Partitions of the transaction that is open or being ended."""
        return sum(map(len, self.partitions.values()))

    def has(self, topic: str, partition: int) -> bool:
        """Whether the partition takes part: asked for each batch."""
        indexes = self.partitions.get(topic, ())
        place = bisect_left(indexes, partition)
        return place < len(indexes) and indexes[place] == partition

    def pack(self) -> list[object]:
        """As it stands in the event and in the snapshot."""
        return [
            *self[1:6],
            int(self.state),
            self.at_ms,
            self.started_ms,
            {topic: list(indexes) for topic, indexes in self.partitions.items()},
            {group: [list(row) for row in rows] for group, rows in self.offsets.items()},
            None if self.ending is None else list(self.ending),
            self.boot,
        ]


class Decision(NamedTuple):
    """How one transaction ends, and what its producer goes on with."""

    transactional_id: str
    producer_id: int
    epoch: int
    next_producer_id: int
    next_epoch: int
    is_fence: bool
    """Whether somebody else than its producer ended it: nobody may ask for the next epoch again."""


def unpack_transaction(transactional_id: str, row: list[Any]) -> Transaction:
    """The opposite of `Transaction.pack`.  Raises ValueError, TypeError."""
    producer_id, epoch, last_producer_id, last_epoch, timeout_ms, *rest = row
    state, at_ms, started_ms, partitions, offsets, ending, *later = rest
    (boot,) = later or (BOOT_UNKNOWN,)
    return Transaction(
        transactional_id,
        producer_id,
        epoch,
        last_producer_id,
        last_epoch,
        timeout_ms,
        State(state),
        at_ms,
        started_ms,
        {topic: tuple(sorted(indexes)) for topic, indexes in partitions.items()},
        {group: tuple(map(tuple, rows)) for group, rows in offsets.items()},
        None if ending is None else Ending(*ending),
        boot,
    )


# What becomes of one


def after_decision(
    known: Transaction, decision: Decision, *, commit: bool, at_ms: int
) -> Transaction:
    """The transaction when this is decided; done at once when no partition takes part."""
    rotates = decision.next_producer_id != decision.producer_id
    marker_epoch = EPOCH_LAST + 1 if rotates else decision.next_epoch
    last = (known.last_producer_id, known.last_epoch)
    if decision.is_fence:
        last = (-1, -1)
    elif (decision.next_producer_id, decision.next_epoch) != known.key:
        last = known.key
    ends = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    decided = known._replace(
        producer_id=decision.next_producer_id,
        epoch=decision.next_epoch,
        last_producer_id=last[0],
        last_epoch=last[1],
        state=ends,
        at_ms=at_ms,
        offsets={},
        ending=Ending(known.producer_id, marker_epoch),
    )
    return decided if decided.partitions else after_markers(decided, at_ms=at_ms)


def after_markers(known: Transaction, *, at_ms: int) -> Transaction:
    """The transaction when every partition has its marker."""
    is_commit = known.state is State.PREPARE_COMMIT
    return known._replace(
        state=State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT,
        at_ms=at_ms,
        started_ms=-1,
        partitions={},
        ending=None,
    )


# The section


def transactions_of(content: Content | None) -> Iterator[Transaction]:
    """Every transactional id."""
    for bucket in (content or {}).get("ids", {}).values():
        for transactional_id, row in bucket.items():
            yield unpack_transaction(transactional_id, row)


def open_of(content: Content | None) -> Iterator[Transaction]:
    """Those that are open: few, so that a start need not unpack the others."""
    for bucket in (content or {}).get("ids", {}).values():
        for transactional_id, row in bucket.items():
            if row[_STATE] == State.ONGOING:
                yield unpack_transaction(transactional_id, row)


def last_batch(content: Content | None, query: str) -> int | None:
    """The last batch that was decided together with `query`; None: none."""
    found = (content or {}).get("queries", {}).get(query)
    return None if found is None else int(found[0])


def queries_before(content: Content | None, before_ms: int) -> list[str]:
    """Queries whose last batch is older."""
    queries = (content or {}).get("queries", {})
    return [name for name, (_, at_ms) in queries.items() if at_ms < before_ms]


def queries_count(content: Content | None) -> int:
    """How many queries are known."""
    return len((content or {}).get("queries", {}))


def changed(content: Content | None, fields: Fields) -> Content:
    """After `transaction`."""
    return _with_rows(content, [(fields["id"], fields["row"])])


def decided(
    content: Content | None, fields: Fields
) -> tuple[Content, list[tuple[str, tuple[tuple[Any, ...], ...]]]]:
    """After `transactions_decided`; and the offsets that stand with it, by group."""
    rows: list[tuple[str, list[object] | None]] = []
    offsets: list[tuple[str, tuple[tuple[Any, ...], ...]]] = []
    commit, at_ms = fields["commit"], fields["at"]
    for packed in fields["rows"]:
        decision = Decision(*packed)
        row = _row(content, decision.transactional_id)
        if row is None:
            continue
        known = unpack_transaction(decision.transactional_id, row)
        if known.state is not State.ONGOING or known.key != (decision.producer_id, decision.epoch):
            continue
        if commit:
            offsets += known.offsets.items()
        after = after_decision(known, decision, commit=commit, at_ms=at_ms)
        rows.append((known.transactional_id, after.pack()))
    state = _with_rows(content, rows)
    if fields["query"] is not None:
        name, batch = fields["query"]
        state = {**state, "queries": {**state.get("queries", {}), name: [batch, at_ms]}}
    return state, offsets


def forgotten(content: Content | None, fields: Fields) -> Content:
    """After `transactions_forgotten`."""
    state = _with_rows(content, [(one, None) for one in fields["ids"]])
    gone = set(fields["queries"])
    queries = {name: row for name, row in state.get("queries", {}).items() if name not in gone}
    return {**state, "queries": queries}


def _bucket(transactional_id: str) -> str:
    return str(crc32(transactional_id.encode()) % BUCKETS)


def _row(content: Content | None, transactional_id: str) -> list[Any] | None:
    ids = (content or {}).get("ids", {})
    row: list[Any] | None = ids.get(_bucket(transactional_id), {}).get(transactional_id)
    return row


def _with_rows(content: Content | None, rows: Iterable[tuple[str, list[object] | None]]) -> Content:
    """With these rows, or without them where they are None."""
    state = dict(content or {})
    ids = dict(state.get("ids", {}))
    for transactional_id, row in rows:
        key = _bucket(transactional_id)
        bucket = dict(ids.get(key, {}))
        if row is None:
            bucket.pop(transactional_id, None)
        else:
            bucket[transactional_id] = row
        ids[key] = bucket
        if not bucket:
            del ids[key]
    state["ids"] = ids
    return state
