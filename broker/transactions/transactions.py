"""The transaction coordinator's rules: a pure state machine, with time and ids passed in.

                  InitProducerId                    EndTxn, its time is over, another instance
        nothing ----------------> EMPTY --add--> ONGOING ------> PREPARE_COMMIT, PREPARE_ABORT
                                    ^              ^                  |  every marker is durable
                                    |              +------add---- COMPLETE_COMMIT, COMPLETE_ABORT
                                    +--InitProducerId-----------------+

| asked | state | answer |
|---|---|---|
| init, id unknown | | a new producer id, whichever the producer had: its own was forgotten |
| anything else, id unknown or another producer id | any | 49 INVALID_PRODUCER_ID_MAPPING |
| anything, another epoch | any | 90 PRODUCER_FENCED (older versions are told 47) |
| init | PREPARE_* | 51, once it is done: the next epoch |
| init | ONGOING | it is aborted under the next epoch first: that fences its producer |
| init, of that producer itself | ONGOING | the same, but the next epoch is its own |
| init | EMPTY, COMPLETE_* | the next epoch |
| init, with the epoch before the last change of its own | EMPTY, COMPLETE_* | the present one |
| add, stage | ONGOING, EMPTY, COMPLETE_* | takes part |
| add, stage | PREPARE_* | 51 CONCURRENT_TRANSACTIONS |
| end | ONGOING | decided |
| the time of a transaction is over | ONGOING | it is aborted under the next epoch |
| end, same outcome | PREPARE_* | 51 |
| end, same outcome | COMPLETE_* | as before |
| end, the other outcome; end without anything | | 48 INVALID_TXN_STATE |

Version 2 of the protocol (KIP-890), seen by EndTxn 5, adds: every end gives the producer the next
epoch; the same end again, with the epoch before, has the same answer; an abort of nothing gives
the next epoch, too.  So a request that was delayed from one transaction into the next is refused
by its epoch.  Under version 1 the epoch stays, and a delayed one is not told apart (docs/
decisions/0105).

What the broker aborts, as its time is over, has the next epoch in both versions.  Its producer is
told 47 or 90 by everything but the two that it goes on with: init, and an abort of version 2
(docs/decisions/0205).

A verdict says what to answer and what to make durable first; nothing is changed here.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.markers import Outcome
from segbroker.segments.metadata.committed import CommitRow
from segbroker.segments.metadata.transactions import EPOCH_LAST, Decision, State, Transaction

PARTITIONS_MAX: Final = 10_000
"""Partitions and staged offsets of one transaction; more are refused (42)."""

Partitions = Mapping[str, Iterable[int]]


class Verdict(NamedTuple):
    """What to answer, once what is to be recorded is durable.

    `changed` is the transaction as it is to stand, `decision` how it is to end; neither: nothing
    changes.  `code` NONE with neither: it stands so already.
    """

    code: ErrorCode = ErrorCode.NONE
    changed: Transaction | None = None
    decision: Decision | None = None
    commit: bool = False


_AGREED: Final = Verdict()


def needs_id(known: Transaction | None) -> bool:
    """Whether the next epoch takes a new producer id."""
    return known is None or known.epoch >= EPOCH_LAST


def _next(known: Transaction, spare_id: int) -> tuple[int, int]:
    if needs_id(known):
        assert spare_id >= 0, "asked for by needs_id"
        return spare_id, 0
    return known.producer_id, known.epoch + 1


def init(
    known: Transaction | None,
    transactional_id: str,
    timeout_ms: int,
    producer_id: int,
    epoch: int,
    spare_id: int,
    now_ms: int,
) -> Verdict:
    """InitProducerId: a new instance, or (with id and epoch) the same one that goes on anew.

    A decision in the verdict aborts what is open; ask again when it is completed.  The same epoch
    asked for a second time is the same answer (`is_repeated_init`), and all else is as it says now.
    """
    if known is None:
        row = Transaction(transactional_id, spare_id, 0, timeout_ms=timeout_ms, at_ms=now_ms)
        return Verdict(changed=row)
    goes_on = producer_id >= 0
    is_repeated = is_repeated_init(known, producer_id, epoch)
    if goes_on and not is_repeated and (producer_id, epoch) != known.key:
        return Verdict(ErrorCode.PRODUCER_FENCED)
    if known.state.is_ending:
        return Verdict(ErrorCode.CONCURRENT_TRANSACTIONS)
    if known.state is State.ONGOING:
        decision = abort(known, spare_id) if goes_on else fence(known)
        return Verdict(ErrorCode.CONCURRENT_TRANSACTIONS, decision=decision)
    next_id, next_epoch = known.key if is_repeated else _next(known, spare_id)
    return Verdict(
        changed=known._replace(
            producer_id=next_id,
            epoch=next_epoch,
            last_producer_id=producer_id if goes_on else -1,
            last_epoch=epoch if goes_on else -1,
            timeout_ms=timeout_ms,
            state=State.EMPTY,
            at_ms=now_ms,
        )
    )


def is_repeated_init(known: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether the producer asks for an epoch that it was given and did not hear of: by the answer
    to an init, by an abort of the broker's, or under version 2 by the answer to an end."""
    asked = (producer_id, epoch)
    return (
        producer_id >= 0
        and known.state is not State.ONGOING
        and asked == (known.last_producer_id, known.last_epoch)
    )


def fence(known: Transaction) -> Decision:
    """The abort of what is open for another producer; the one that has it open never goes on."""
    epoch = known.epoch + 1
    return Decision(known.transactional_id, *known.key, known.producer_id, epoch, is_fence=True)


def abort(known: Transaction, spare_id: int) -> Decision:
    """The abort of what is open by the broker.  Its producer, who may not know of it yet, cannot
    commit, and goes on with the next epoch when it has asked for it, or has aborted itself."""
    next_id, next_epoch = _next(known, spare_id)
    return Decision(known.transactional_id, *known.key, next_id, next_epoch, is_fence=False)


def end_by_another(known: Transaction, spare_id: int) -> Decision:
    """The end of what is open by somebody else than its producer, who has to begin anew."""
    next_id, next_epoch = _next(known, spare_id)
    return Decision(known.transactional_id, *known.key, next_id, next_epoch, is_fence=True)


def check(known: Transaction | None, producer_id: int, epoch: int) -> ErrorCode:
    """Whether this producer holds the transactional id."""
    if known is None or producer_id != known.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if epoch == known.epoch else ErrorCode.PRODUCER_FENCED


def add(
    known: Transaction | None,
    producer_id: int,
    epoch: int,
    partitions: Partitions,
    group: str | None,
    now_ms: int,
) -> Verdict:
    """AddPartitionsToTxn, AddOffsetsToTxn, and Produce 12: these take part."""
    if code := check(known, producer_id, epoch):
        return Verdict(code)
    assert known is not None, "checked"
    if known.state.is_ending:
        return Verdict(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_open = known.state is State.ONGOING
    merged: dict[str, tuple[int, ...]] = dict(known.partitions) if is_open else {}
    for topic, indexes in partitions.items():
        merged[topic] = tuple(sorted({*merged.get(topic, ()), *indexes}))
    offsets = dict(known.offsets) if is_open else {}
    if group is not None:
        offsets.setdefault(group, ())
    if is_open and merged == known.partitions and offsets == known.offsets:
        return _AGREED
    if sum(map(len, merged.values())) > PARTITIONS_MAX or len(offsets) > PARTITIONS_MAX:
        return Verdict(ErrorCode.INVALID_REQUEST)
    return Verdict(
        changed=known._replace(
            state=State.ONGOING,
            at_ms=now_ms,
            started_ms=known.started_ms if is_open else now_ms,
            partitions=merged,
            offsets=offsets,
        )
    )


def takes_offsets(
    known: Transaction | None,
    producer_id: int,
    epoch: int,
    group: str,
    now_ms: int,
    *,
    implicit: bool,
) -> Verdict:
    """TxnOffsetCommit: whether offsets of this group may be staged; `changed`: in what.

    implicit: the group takes part by this (version 5), it need not have been added.
    """
    verdict = add(known, producer_id, epoch, {}, group, now_ms) if implicit else Verdict()
    if code := verdict.code or check(known, producer_id, epoch):
        return Verdict(code)
    taking_part = verdict.changed or known
    assert taking_part is not None, "checked"
    if taking_part.state.is_ending:
        return Verdict(ErrorCode.CONCURRENT_TRANSACTIONS)
    if taking_part.state is not State.ONGOING or group not in taking_part.offsets:
        return Verdict(ErrorCode.INVALID_TXN_STATE)
    return Verdict(changed=taking_part)


def stage(
    taking_part: Transaction, group: str, rows: Iterable[CommitRow], now_ms: int, after_seq: int
) -> Verdict:
    """Offsets that stand when this transaction, which takes them, commits.

    after_seq: the last control event in front of this (committed.py).
    """
    staged = {(row[0], row[2]): row for row in taking_part.offsets[group]}
    staged.update({(row.topic, row.partition): (*row.pack(), after_seq) for row in rows})
    if len(staged) > PARTITIONS_MAX:
        return Verdict(ErrorCode.INVALID_REQUEST)
    offsets = {**taking_part.offsets, group: tuple(staged.values())}
    return Verdict(changed=taking_part._replace(offsets=offsets, at_ms=now_ms))


def unstage(
    known: Transaction | None, group: str, gone: Collection[tuple[str, int]] | None
) -> Verdict:
    """Offsets of a group are deleted, all of them with None: they do not stand with the commit."""
    if known is None or known.state is not State.ONGOING or group not in known.offsets:
        return _AGREED
    staged = known.offsets[group]
    left = () if gone is None else tuple(row for row in staged if (row[0], row[2]) not in gone)
    if len(left) == len(staged):
        return _AGREED
    return Verdict(changed=known._replace(offsets={**known.offsets, group: left}))


def end(
    known: Transaction | None,
    producer_id: int,
    epoch: int,
    spare_id: int,
    now_ms: int,
    *,
    commit: bool,
    next_epoch: bool,
) -> Verdict:
    """EndTxn.  next_epoch: version 2 of the protocol."""
    if known is None:
        return Verdict(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    outcome = known.state.outcome
    is_same = outcome is not None and bool(outcome) == commit
    if next_epoch and known.state is not State.EMPTY:
        is_last = producer_id >= 0 and (producer_id, epoch) == (
            known.last_producer_id,
            known.last_epoch,
        )
        if is_last and known.state is not State.ONGOING:
            if commit and outcome is Outcome.ABORT:
                return Verdict(ErrorCode.PRODUCER_FENCED)  # by the broker, meanwhile
            return _repeated(known, is_same=is_same)
    if code := check(known, producer_id, epoch):
        return Verdict(code)
    if known.state is State.ONGOING:
        if not next_epoch:
            decision = Decision(known.transactional_id, *known.key, *known.key, is_fence=False)
        else:
            following = _next(known, spare_id)
            decision = Decision(known.transactional_id, *known.key, *following, is_fence=False)
        return Verdict(decision=decision, commit=commit)
    if next_epoch:
        if commit or known.state.is_ending:
            return Verdict(ErrorCode.INVALID_TXN_STATE)
        following = _next(known, spare_id)
        return Verdict(
            changed=known._replace(
                producer_id=following[0],
                epoch=following[1],
                last_producer_id=known.producer_id,
                last_epoch=known.epoch,
                state=State.COMPLETE_ABORT,
                at_ms=now_ms,
            )
        )
    return _repeated(known, is_same=is_same)


def _repeated(known: Transaction, *, is_same: bool) -> Verdict:
    if not is_same:
        return Verdict(ErrorCode.INVALID_TXN_STATE)
    return Verdict(ErrorCode.CONCURRENT_TRANSACTIONS) if known.state.is_ending else _AGREED


def check_produce(
    known: Transaction | None, producer_id: int, epoch: int, topic: str, partition: int
) -> ErrorCode:
    """Whether a batch of this producer for this partition is part of its open transaction."""
    if code := check(known, producer_id, epoch):
        return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
    assert known is not None, "checked"
    if known.state.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known.state is State.ONGOING and known.has(topic, partition):
        return ErrorCode.NONE
    return ErrorCode.INVALID_TXN_STATE
