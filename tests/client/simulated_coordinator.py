"""One transactional id, as its coordinator has it: by the broker's own rules, without wire or time.

    coordination = Coordination(logs)
    code, producer_id, epoch = coordination.init(timeout_ms, -1, -1, now_ms)

The rules are those of broker/transactions/transactions.py.  As with Apache Kafka an end is answered
when it is decided: its markers come when `complete` is called, and until then what begins the next
transaction is told CONCURRENT_TRANSACTIONS.

What became of offsets stands in `offsets`: those of each transaction that was committed with any,
in order.
"""

from collections.abc import Sequence
from itertools import count

from segbroker.broker.transactions import transactions
from segbroker.broker.transactions.transactions import Verdict
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.markers import Outcome, encode_marker, marker_outcome
from segbroker.protocol.record_batch import BatchHeader, decode_batch, read_header
from segbroker.segments.metadata.transactions import (
    EPOCH_LAST,
    State,
    Transaction,
    after_decision,
    after_markers,
)

from .simulated import Partition

TOPIC = "a"
GROUP = "g"
Given = tuple[ErrorCode, int, int]


class Coordination:
    """See the module."""

    def __init__(self, logs: Sequence[Partition]) -> None:
        self.known: Transaction | None = None
        # Of the open transaction; and of all that were committed.
        self.staged: dict[int, int] = {}
        self.offsets: list[dict[int, int]] = []
        self.commits_count = 0
        self._logs = logs
        self._ids = count(5_000)

    @property
    def is_open(self) -> bool:
        return self.known is not None and self.known.state is State.ONGOING

    @property
    def is_ending(self) -> bool:
        return self.known is not None and self.known.state.is_ending

    def age(self) -> None:
        """Its epochs are nearly used up."""
        self.take_over(0)
        assert self.known is not None
        self.known = self.known._replace(epoch=EPOCH_LAST - 3)

    def forget(self) -> None:
        """It was not used for long."""
        if not self.is_open and not self.is_ending:
            self.known = None

    def init(self, timeout_ms: int, producer_id: int, epoch: int, now_ms: int) -> Given:
        verdict = transactions.init(
            self.known, "tx", timeout_ms, producer_id, epoch, next(self._ids), now_ms
        )
        return self._apply(verdict, now_ms)

    def add(
        self, producer_id: int, epoch: int, partitions: list[int], group: str | None, now_ms: int
    ) -> ErrorCode:
        verdict = transactions.add(
            self.known, producer_id, epoch, {TOPIC: partitions}, group, now_ms
        )
        return self._apply(verdict, now_ms)[0]

    def take(self, header: BatchHeader, index: int, now_ms: int, *, implicit: bool) -> ErrorCode:
        """Whether a batch may be written.  implicit: its partition takes part by this."""
        who = header.producer_id, header.producer_epoch
        if implicit and not self.add(*who, [], None, now_ms):
            self.add(*who, [index], None, now_ms)
        return transactions.check_produce(self.known, *who, TOPIC, index)

    def stage(
        self,
        producer_id: int,
        epoch: int,
        offsets: dict[int, int],
        now_ms: int,
        *,
        implicit: bool,
    ) -> ErrorCode:
        verdict = transactions.takes_offsets(
            self.known, producer_id, epoch, GROUP, now_ms, implicit=implicit
        )
        code = self._apply(verdict, now_ms)[0]
        if not code:
            self.staged.update(offsets)
        return code

    def end(
        self, producer_id: int, epoch: int, now_ms: int, *, commit: bool, next_epoch: bool
    ) -> Given:
        verdict = transactions.end(
            self.known,
            producer_id,
            epoch,
            next(self._ids),
            now_ms,
            commit=commit,
            next_epoch=next_epoch,
        )
        return self._apply(verdict, now_ms)

    def abort(self, now_ms: int) -> None:
        """What is open is aborted, as where it was so for too long."""
        if self.known is not None and self.is_open:
            decision = transactions.abort(self.known, next(self._ids))
            self._apply(Verdict(decision=decision), now_ms)

    def lapse(self, now_ms: int) -> None:
        known = self.known
        if known is not None and self.is_open and now_ms >= known.started_ms + known.timeout_ms:
            self.abort(now_ms)

    def take_over(self, now_ms: int) -> None:
        """Another producer has the id from now on."""
        while self.init(60_000, -1, -1, now_ms)[0]:
            self.complete(now_ms)

    def complete(self, now_ms: int) -> None:
        """The markers of what is decided are written."""
        known = self.known
        if known is None or not known.state.is_ending:
            return
        assert known.ending is not None
        assert known.state.outcome is not None
        for index in known.partitions.get(TOPIC, ()):
            marker = bytes(encode_marker(known.state.outcome, *known.ending, now_ms))
            log = self._logs[index]
            log.store(marker, read_header(marker))
            log.seen.setdefault(known.ending, [])
        self.known = after_markers(known, at_ms=now_ms)

    def _apply(self, verdict: Verdict, now_ms: int) -> Given:
        known = self.known
        if verdict.decision is not None:
            assert known is not None
            self.commits_count += verdict.commit
            if verdict.commit and self.staged:
                self.offsets.append(self.staged)
            self.staged = {}
            self.known = after_decision(
                known, verdict.decision, commit=verdict.commit, at_ms=now_ms
            )
        elif verdict.changed is not None and not verdict.code:
            self.known = verdict.changed
        if verdict.code or self.known is None:
            return verdict.code, -1, -1
        return verdict.code, self.known.producer_id, self.known.epoch


def rows(log: Partition) -> list[tuple[int, bytes]]:
    """Offsets and values, of all that is stored."""
    return [row for batch in log.batches for row in _rows(batch)]


def _rows(batch: bytes) -> list[tuple[int, bytes]]:
    header = read_header(batch)
    values = [] if header.is_control else decode_batch(batch).values()
    return [(offset, value or b"") for offset, value in enumerate(values, header.base_offset)]


def committed(log: Partition) -> list[bytes]:
    """What a reader of committed records sees, when no transaction is open."""
    seen: list[tuple[int, bytes]] = []
    of_open: dict[int, list[tuple[int, bytes]]] = {}
    for batch in log.batches:
        header = read_header(batch)
        if header.is_control:
            told = of_open.pop(header.producer_id, [])
            seen += told if marker_outcome(header, batch) is Outcome.COMMIT else []
        elif header.is_transactional:
            of_open.setdefault(header.producer_id, []).extend(_rows(batch))
        else:
            seen += _rows(batch)
    assert not of_open, "a transaction is open"
    return [value for _, value in sorted(seen)]
