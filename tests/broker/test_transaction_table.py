"""The table of transactional ids is read by lanes while the loop adds to it."""

import sys
import threading

import trio

from segbroker.broker.transactions.transaction_table import Entry, TransactionTable
from segbroker.segments.metadata.transactions import State, Transaction

from ..support.steps import calls_of


async def test_all_is_asked_by_a_lane_while_ids_are_added() -> None:
    table = TransactionTable()
    known = Entry(Transaction("tx", 1, 0))
    table.entries |= {str(number): known for number in range(1_000)}
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            assert len(table.all()) >= 1_000

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that nearly every step of one is between two of the other
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, look)
            for number in range(1_000, 60_000):
                table.entries[str(number)] = known
                if number % 1_000 == 0:
                    await trio.lowlevel.checkpoint()
            is_over.set()
    finally:
        is_over.set()
        sys.setswitchinterval(interval)


def test_an_offset_is_pending_until_all_who_stage_it_are_done() -> None:
    table = TransactionTable()
    with table.staging("g", {("t", 0), ("t", 1)}):
        with table.staging("g", {("t", 1), ("t", 2)}):
            assert table.pending("g") == {("t", 0), ("t", 1), ("t", 2)}
        assert table.pending("g") == {("t", 0), ("t", 1)}
    assert table.pending("g") == set()


def test_offsets_of_thousands_are_staged_without_a_call_for_each() -> None:
    table = TransactionTable()
    partitions = {("t", number) for number in range(3_000)}

    def stage() -> None:
        with table.staging("g", partitions):
            pass

    assert calls_of(stage) < 100, (
        "of a hundred thousand they hold the loop for a quarter of a second"
    )


def _staged(number: int, *partitions: int) -> Transaction:
    rows = tuple(("t", b"", index, 0, -1, "", 0) for index in partitions)
    offsets = {"g": rows}
    return Transaction(f"x-{number}", number, 0, state=State.ONGOING, offsets=offsets)


async def test_an_offset_is_pending_until_all_transactions_with_it_have_ended() -> None:
    table = TransactionTable()
    entries = [Entry(), Entry()]
    for number, entry in enumerate(entries):
        table.entries[f"x-{number}"] = entry
        table.stands(entry, _staged(number))
        assert table.has_offsets("g") == (number > 0), "none was staged by this one"
        table.stands(entry, _staged(number, number, 2))
    table.stands(entries[0], entries[0].known._replace(at_ms=1))  # type: ignore[union-attr]
    assert table.pending("g") == {("t", 0), ("t", 1), ("t", 2)}
    assert table.waiting("g") == entries
    table.stands(entries[0], _staged(0, 0))
    table.stands(entries[1], entries[1].known._replace(state=State.EMPTY, offsets={}))  # type: ignore[union-attr]
    assert table.pending("g") == {("t", 0)}
    assert (table.waiting("g"), table.groups) == (entries[:1], ["g"])
    table.stands(entries[0], _staged(0))
    assert (table.pending("g"), table.groups) == (set(), [])
    assert not table.has_offsets("g")


async def test_what_is_pending_is_told_without_a_call_for_each_transaction() -> None:
    """Each commit of the group asks, and who fetches stable offsets of it."""
    table = TransactionTable()
    for number in range(1_000):
        entry = table.entries[f"x-{number}"] = Entry()
        table.stands(entry, _staged(number, number % 10))
    assert calls_of(lambda: table.pending("g")) < 10
    assert table.pending("g") == {("t", number) for number in range(10)}
