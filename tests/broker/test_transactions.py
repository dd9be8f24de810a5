"""The coordinator's rules, over every state and every request: time and ids are numbers here."""

from itertools import product
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segbroker.broker.transactions import transactions
from segbroker.broker.transactions.transactions import Verdict
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.markers import Outcome
from segbroker.segments.metadata.committed import CommitRow
from segbroker.segments.metadata.transactions import (
    EPOCH_LAST,
    Ending,
    State,
    Transaction,
    after_decision,
    after_markers,
    changed,
    decided,
    forgotten,
    last_batch,
    transactions_of,
    unpack_transaction,
)

NAME, NOW, SPARE = "tx", 1_000, 99
ID, EPOCH = 7, 3
ROW = CommitRow("in", UUID(int=1), 0, 5, -1, "")
NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
WRONG = ErrorCode.INVALID_TXN_STATE


def in_state(state: State) -> Transaction:
    """A transaction of producer 7 in epoch 3, with one partition and one group where it has any."""
    row = Transaction(NAME, ID, EPOCH, state=state)
    if state is State.ONGOING:
        return row._replace(
            started_ms=500, partitions={"out": (0,)}, offsets={"group": (tuple(ROW.pack()),)}
        )
    if state.is_ending:
        return row._replace(started_ms=500, partitions={"out": (0,)}, ending=Ending(ID, EPOCH))
    return row


def after(row: Transaction | None, verdict: Verdict) -> Transaction:
    """The transaction once the verdict is durable and, if it is decided, has its markers."""
    if verdict.changed is not None:
        return verdict.changed
    assert row is not None
    if verdict.decision is None:
        return row
    ended = after_decision(row, verdict.decision, commit=verdict.commit, at_ms=NOW)
    return after_markers(ended, at_ms=NOW) if ended.state.is_ending else ended


def end(row: Transaction | None, commit: bool, *, epoch: int = EPOCH, v2: bool = False) -> Verdict:
    return transactions.end(row, ID, epoch, SPARE, NOW, commit=commit, next_epoch=v2)


def add(row: Transaction | None, *, epoch: int = EPOCH) -> Verdict:
    return transactions.add(row, ID, epoch, {"out": [1]}, None, NOW)


def stage(row: Transaction | None, group: str, *, implicit: bool, epoch: int = EPOCH) -> Verdict:
    return staged(row, (ID, epoch), group, [ROW], implicit=implicit)


def staged(
    row: Transaction | None,
    key: tuple[int, int],
    group: str,
    rows: list[CommitRow],
    *,
    implicit: bool,
) -> Verdict:
    """What becomes of a TxnOffsetCommit; key: producer id and epoch."""
    verdict = transactions.takes_offsets(row, *key, group, NOW, implicit=implicit)
    if verdict.changed is None:
        return verdict
    return transactions.stage(verdict.changed, group, rows, NOW, 0)


def init(row: Transaction | None, producer_id: int = -1, epoch: int = -1) -> Verdict:
    return transactions.init(row, NAME, 60_000, producer_id, epoch, SPARE, NOW)


# What is answered: state by state

ENDS = {
    # state: (commit, abort) of version 1, (commit, abort) of version 2
    State.EMPTY: (WRONG, WRONG, WRONG, NONE),
    State.ONGOING: (NONE, NONE, NONE, NONE),
    State.PREPARE_COMMIT: (BUSY, WRONG, WRONG, WRONG),
    State.PREPARE_ABORT: (WRONG, BUSY, WRONG, WRONG),
    State.COMPLETE_COMMIT: (NONE, WRONG, WRONG, NONE),
    State.COMPLETE_ABORT: (WRONG, NONE, WRONG, NONE),
}


@pytest.mark.parametrize("state", State)
def test_an_end_is_answered_by_the_state(state: State) -> None:
    row = in_state(state)
    asked = product((False, True), (True, False))
    assert ENDS[state] == tuple(end(row, commit, v2=v2).code for v2, commit in asked)


@pytest.mark.parametrize("state", State)
def test_partitions_and_offsets_take_part_unless_an_end_is_under_way(state: State) -> None:
    row = in_state(state)
    code = BUSY if state.is_ending else NONE
    assert add(row).code == code
    assert stage(row, "new", implicit=True).code == code
    if not code:
        joined = after(row, add(row))
        assert joined.state is State.ONGOING
        assert joined.partitions["out"] == ((0, 1) if state is State.ONGOING else (1,))
        assert joined.started_ms == (500 if state is State.ONGOING else NOW)


@pytest.mark.parametrize("state", State)
def test_a_group_that_was_not_added_has_no_offsets_under_version_1(state: State) -> None:
    row = in_state(state)
    code = BUSY if state.is_ending else WRONG
    assert stage(row, "new", implicit=False).code == code
    if state is State.ONGOING:
        assert stage(row, "group", implicit=False).code == NONE


@pytest.mark.parametrize("state", State)
def test_a_batch_belongs_to_an_open_transaction_with_its_partition(state: State) -> None:
    row = in_state(state)
    code = BUSY if state.is_ending else NONE if state is State.ONGOING else WRONG
    assert transactions.check_produce(row, ID, EPOCH, "out", 0) == code
    assert transactions.check_produce(row, ID, EPOCH, "out", 9) == (code or WRONG)
    assert transactions.check_produce(row, ID, EPOCH - 1, "out", 0) is (
        ErrorCode.INVALID_PRODUCER_EPOCH
    )


@pytest.mark.parametrize("state", State)
def test_another_epoch_is_fenced_and_another_id_unknown_in_every_state(state: State) -> None:
    row = in_state(state)
    for epoch in (EPOCH - 1, EPOCH + 1):
        assert add(row, epoch=epoch).code is FENCED
        assert stage(row, "group", implicit=True, epoch=epoch).code is FENCED
        assert end(row, True, epoch=epoch).code is FENCED
        assert end(row, True, epoch=epoch, v2=True).code is FENCED
        assert init(row, ID, epoch).code is FENCED
    assert (
        transactions.end(row, 8, EPOCH, SPARE, NOW, commit=True, next_epoch=False).code is UNKNOWN
    )
    for v2 in (False, True):  # without an id, as if it had been that of before the first
        nobody = transactions.end(row, -1, -1, SPARE, NOW, commit=True, next_epoch=v2)
        assert nobody.code is UNKNOWN
    assert transactions.check(row, 8, EPOCH) is UNKNOWN
    assert transactions.check_produce(None, ID, EPOCH, "out", 0) is UNKNOWN
    assert add(None).code is end(None, True).code is stage(None, "g", implicit=True).code is UNKNOWN


# What becomes of it


@pytest.mark.parametrize("state", State)
def test_a_new_instance_has_the_next_epoch_and_aborts_what_is_open(state: State) -> None:
    row = in_state(state)
    verdict = init(row)
    if state.is_ending:
        assert verdict == Verdict(BUSY)
        return
    if state is State.ONGOING:
        assert verdict.code is BUSY
        assert verdict.decision is not None
        row = after(row, verdict)
        assert (row.state, row.epoch) == (State.COMPLETE_ABORT, EPOCH + 1)
        verdict = init(row)
    begun = after(row, verdict)
    assert begun.state is State.EMPTY
    assert begun.producer_id == ID
    assert begun.epoch == row.epoch + 1
    assert add(begun).code is FENCED


def test_the_first_instance_has_a_new_id_and_epoch_0() -> None:
    begun = after(None, init(None))
    assert (begun.key, begun.state, begun.timeout_ms) == ((SPARE, 0), State.EMPTY, 60_000)
    # Whichever producer id it had: that one was forgotten.
    assert after(None, init(None, ID, EPOCH)) == begun


def test_the_same_instance_may_ask_twice_for_its_next_epoch() -> None:
    row = in_state(State.COMPLETE_ABORT)
    begun = after(row, init(row, ID, EPOCH))
    assert begun.key == (ID, EPOCH + 1)
    assert after(begun, init(begun, ID, EPOCH)) == begun  # its first answer was lost
    used = after(begun, add(begun, epoch=EPOCH + 1))
    assert init(used, ID, EPOCH).code is FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_who_did_not_hear_how_its_end_went_is_not_fenced_for_it(commit: bool) -> None:
    row = in_state(State.ONGOING)
    verdict = end(row, commit, v2=True)
    assert verdict.decision is not None
    ending = after_decision(row, verdict.decision, commit=commit, at_ms=NOW)
    assert init(ending, ID, EPOCH) == Verdict(BUSY)
    ended = after_markers(ending, at_ms=NOW)
    begun = after(ended, init(ended, ID, EPOCH))
    assert (begun.key, begun.state) == ((ID, EPOCH + 1), State.EMPTY)
    # Another instance came, or somebody else ended it: then it is.
    assert init(after(ended, init(ended)), ID, EPOCH).code is FENCED
    fenced = after(row, Verdict(decision=transactions.fence(row)))
    assert init(fenced, ID, EPOCH).code is FENCED


def test_who_goes_on_anew_itself_is_not_fenced_by_the_abort_of_what_it_has_open() -> None:
    row = in_state(State.ONGOING)
    verdict = init(row, ID, EPOCH)
    assert verdict.code is BUSY
    assert verdict.decision is not None
    ending = after_decision(row, verdict.decision, commit=False, at_ms=NOW)
    assert (ending.key, ending.ending) == ((ID, EPOCH + 1), Ending(ID, EPOCH + 1))
    # However long its markers take, and however often it asks.
    assert init(ending, ID, EPOCH) == init(ending, ID, EPOCH) == Verdict(BUSY)
    ended = after_markers(ending, at_ms=NOW)
    begun = after(ended, init(ended, ID, EPOCH))
    assert (begun.key, begun.state) == ((ID, EPOCH + 1), State.EMPTY)
    assert after(begun, init(begun, ID, EPOCH)) == begun
    assert add(begun).code is FENCED  # what was delayed from before
    assert init(after(begun, add(begun, epoch=EPOCH + 1)), ID, EPOCH).code is FENCED
    assert init(after(begun, init(begun)), ID, EPOCH).code is FENCED  # another came


def test_who_goes_on_anew_behind_the_last_epoch_has_a_new_id() -> None:
    row = in_state(State.ONGOING)._replace(epoch=EPOCH_LAST)
    verdict = init(row, ID, EPOCH_LAST)
    assert verdict.decision is not None
    ending = after_decision(row, verdict.decision, commit=False, at_ms=NOW)
    assert (ending.key, ending.ending) == ((SPARE, 0), Ending(ID, EPOCH_LAST + 1))
    ended = after_markers(ending, at_ms=NOW)
    assert after(ended, init(ended, ID, EPOCH_LAST)).key == (SPARE, 0)


def test_a_producer_goes_on_behind_an_abort_of_the_broker_but_never_commits_it() -> None:
    row = in_state(State.ONGOING)
    ending = after_decision(row, transactions.abort(row, SPARE), commit=False, at_ms=NOW)
    assert (ending.key, ending.ending) == ((ID, EPOCH + 1), Ending(ID, EPOCH + 1))
    assert init(ending, ID, EPOCH) == end(ending, False, v2=True) == Verdict(BUSY)
    ended = after_markers(ending, at_ms=NOW)
    assert end(ended, False, v2=True) == Verdict()
    assert after(ended, init(ended, ID, EPOCH)).key == (ID, EPOCH + 1)
    for behind in (ending, ended):
        assert end(behind, True, v2=True).code is end(behind, True).code is FENCED
        assert end(behind, False).code is add(behind).code is FENCED
    # Another instance came meanwhile.
    taken = after(ended, init(ended))
    assert init(taken, ID, EPOCH).code is end(taken, False, v2=True).code is FENCED
    last = row._replace(epoch=EPOCH_LAST)
    assert after(last, Verdict(decision=transactions.abort(last, SPARE))).key == (SPARE, 0)


def test_the_last_epoch_is_followed_by_a_new_id() -> None:
    row = in_state(State.ONGOING)._replace(epoch=EPOCH_LAST)
    assert transactions.needs_id(row)
    ended = transactions.end(row, ID, EPOCH_LAST, SPARE, NOW, commit=True, next_epoch=True)
    assert ended.decision is not None
    decided_row = after_decision(row, ended.decision, commit=True, at_ms=NOW)
    assert decided_row.ending == Ending(ID, EPOCH_LAST + 1)
    assert decided_row.key == (SPARE, 0)
    # Its answer was lost: the end comes again under the old id.
    repeated = transactions.end(
        after_markers(decided_row, at_ms=NOW),
        ID,
        EPOCH_LAST,
        100,
        NOW,
        commit=True,
        next_epoch=True,
    )
    assert repeated == Verdict()
    fenced = after(row, Verdict(decision=transactions.fence(row)))
    assert fenced.epoch == EPOCH_LAST + 1
    assert after(fenced, init(fenced)).key == (SPARE, 0)


@pytest.mark.parametrize("commit", [True, False])
def test_version_2_gives_another_epoch_and_answers_the_same_end_the_same(commit: bool) -> None:
    row = in_state(State.ONGOING)
    verdict = end(row, commit, v2=True)
    assert verdict.decision is not None
    ending = after_decision(row, verdict.decision, commit=commit, at_ms=NOW)
    assert ending.ending == Ending(ID, EPOCH + 1)
    assert end(ending, commit, v2=True).code is BUSY
    ended = after(row, verdict)
    assert ended.key == (ID, EPOCH + 1)
    assert end(ended, commit, v2=True) == Verdict()
    assert end(ended, not commit, v2=True).code is (WRONG if commit else FENCED)
    # The next transaction: what was delayed from the last one does not touch it.
    following = after(ended, add(ended, epoch=EPOCH + 1))
    assert end(following, commit, v2=True).code is FENCED
    assert add(following).code is FENCED
    assert transactions.check_produce(following, ID, EPOCH, "out", 1) is (
        ErrorCode.INVALID_PRODUCER_EPOCH
    )


def test_version_1_keeps_its_epoch_so_a_delayed_end_hits_the_next_transaction() -> None:
    """The hole that version 2 closes, written down: nobody can tell this end from a good one."""
    row = after(in_state(State.ONGOING), end(in_state(State.ONGOING), True))
    assert row.key == (ID, EPOCH)
    following = after(row, add(row))
    assert end(following, True).decision is not None


def test_an_abort_of_nothing_gives_the_next_epoch_under_version_2() -> None:
    row = in_state(State.EMPTY)
    ended = after(row, end(row, False, v2=True))
    assert (ended.key, ended.state) == ((ID, EPOCH + 1), State.COMPLETE_ABORT)
    assert ended.at_ms == NOW, "its id is in use"
    assert end(ended, False, v2=True) == Verdict()


@pytest.mark.parametrize("v2", [True, False])
def test_a_commit_has_its_offsets_and_an_abort_none(v2: bool) -> None:
    row = in_state(State.ONGOING)
    content = changed(None, {"id": NAME, "row": row.pack()})
    for commit, expected in ((True, [("group", (tuple(ROW.pack()),))]), (False, [])):
        verdict = end(row, commit, v2=v2)
        assert verdict.decision is not None
        fields = {"at": NOW, "commit": commit, "rows": [list(verdict.decision)], "query": None}
        state, offsets = decided(content, fields)
        assert offsets == expected
        (ending,) = transactions_of(state)
        assert ending.state.outcome is (Outcome.COMMIT if commit else Outcome.ABORT)
        assert decided(state, fields) == (state, [])  # a second time changes nothing


def test_a_transaction_of_offsets_alone_has_no_markers_to_wait_for() -> None:
    row = in_state(State.ONGOING)._replace(partitions={})
    verdict = end(row, True)
    assert verdict.decision is not None
    ended = after_decision(row, verdict.decision, commit=True, at_ms=NOW)
    assert (ended.state, ended.ending) == (State.COMPLETE_COMMIT, None)


def test_a_decision_passes_over_what_is_not_open() -> None:
    row = in_state(State.ONGOING)
    verdict = end(row, True)
    assert verdict.decision is not None
    fields = {"at": NOW, "commit": True, "rows": [list(verdict.decision)], "query": ["q", 4]}
    for other in (in_state(State.EMPTY), row._replace(epoch=EPOCH + 1)):
        content = changed(None, {"id": NAME, "row": other.pack()})
        state, offsets = decided(content, fields)
        assert list(transactions_of(state)) == [other]
        assert offsets == []
        assert last_batch(state, "q") == 4


def test_what_is_forgotten_is_gone() -> None:
    content = changed(None, {"id": NAME, "row": in_state(State.EMPTY).pack()})
    content, _ = decided(content, {"at": NOW, "commit": True, "rows": [], "query": ["q", 4]})
    content = forgotten(content, {"ids": [NAME], "queries": ["q"]})
    assert list(transactions_of(content)) == []
    assert last_batch(content, "q") is None


@pytest.mark.parametrize("state", State)
def test_a_row_is_read_as_it_was_written(state: State) -> None:
    row = in_state(state)
    assert unpack_transaction(NAME, row.pack()) == row


def test_a_row_of_a_version_that_did_not_know_boots_is_read() -> None:
    row = in_state(State.ONGOING)
    assert unpack_transaction(NAME, row._replace(boot=4).pack()[:-1]) == row


def test_the_partitions_of_a_transaction_are_bounded() -> None:
    row = in_state(State.ONGOING)
    many = range(transactions.PARTITIONS_MAX + 1)
    verdict = transactions.add(row, ID, EPOCH, {"out": many}, None, NOW)
    assert verdict == Verdict(ErrorCode.INVALID_REQUEST)
    rows = [ROW._replace(partition=n) for n in many]
    verdict = staged(row, (ID, EPOCH), "group", rows, implicit=True)
    assert verdict == Verdict(ErrorCode.INVALID_REQUEST)


# Any order of requests

ASKED = st.sampled_from(
    [
        "init",
        "init_again",
        "add",
        "stage",
        "commit",
        "abort",
        "commit2",
        "abort2",
        "late",
        "fence",
        "time",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(ASKED, max_size=20))
def test_whatever_is_asked_epochs_never_go_back_and_events_say_the_same(asked: list[str]) -> None:
    """Two producers of one id, the present one and one that is behind by an epoch; and the state
    that the events make is the state that the coordinator holds."""
    row: Transaction | None = None
    content = None
    spare = 100
    for what in asked:
        spare += 1
        producer_id, epoch = (ID, EPOCH) if row is None else row.key
        match what:
            case "init":
                verdict = transactions.init(row, NAME, 1_000, -1, -1, spare, NOW)
            case "init_again":
                verdict = transactions.init(row, NAME, 1_000, producer_id, epoch, spare, NOW)
            case "add":
                verdict = transactions.add(row, producer_id, epoch, {"out": [0]}, None, NOW)
            case "stage":
                verdict = staged(row, (producer_id, epoch), "group", [ROW], implicit=True)
            case "late":
                verdict = transactions.end(
                    row, producer_id, epoch - 1, spare, NOW, commit=True, next_epoch=True
                )
                if row is not None and row.state is State.ONGOING:
                    assert verdict.code is FENCED
            case "fence" | "time":
                if row is None or row.state is not State.ONGOING:
                    continue
                is_late = what == "time"
                decision = transactions.abort(row, spare) if is_late else transactions.fence(row)
                verdict = Verdict(decision=decision)
            case _:
                verdict = transactions.end(
                    row,
                    producer_id,
                    epoch,
                    spare,
                    NOW,
                    commit="commit" in what,
                    next_epoch=what.endswith("2"),
                )
        if verdict.changed is not None:
            following = verdict.changed
            content = changed(content, {"id": NAME, "row": following.pack()})
        elif verdict.decision is not None:
            assert row is not None
            assert row.state is State.ONGOING, "only what is open is decided"
            following = after_decision(row, verdict.decision, commit=verdict.commit, at_ms=NOW)
            fields = {"at": NOW, "commit": verdict.commit, "rows": [list(verdict.decision)]}
            content, _ = decided(content, {**fields, "query": None})
        else:
            continue
        assert list(transactions_of(content)) == [following]
        if following.state.is_ending:
            following = after_markers(following, at_ms=NOW)
            content = changed(content, {"id": NAME, "row": following.pack()})
        if row is not None and following.producer_id == row.producer_id:
            assert following.epoch >= row.epoch
        row = following
