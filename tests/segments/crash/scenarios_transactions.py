"""Transactions: open, ended by markers, over rolls, snapshots, deletions; their control events."""

from uuid import UUID

from segbroker.protocol.markers import Outcome
from segbroker.segments.log import sealing
from segbroker.segments.metadata.committed import CommitRow
from segbroker.segments.metadata.transactions import (
    DECIDED,
    FORGOTTEN,
    TRANSACTION,
    Decision,
    State,
    Transaction,
)

from .driver import Driver
from .registry import scenario

FSYNC, DISK = "fsync", "disk"
SEVEN, NINE = 7, 9


@scenario(durability=FSYNC)
def markers(driver: Driver) -> None:
    driver.transact("t", (SEVEN, 0, 0), count=2)
    driver.append("t")
    driver.mark("t", Outcome.COMMIT, SEVEN)
    driver.transact("t", (SEVEN, 0, 2))
    driver.mark("t", Outcome.ABORT, SEVEN, epoch=1)
    driver.transact("t", (SEVEN, 1, 0))


@scenario(durability=DISK)
def markers_of_class_disk(driver: Driver) -> None:
    driver.transact("t", (SEVEN, 0, 0))
    driver.sync("t")
    driver.mark("t", Outcome.ABORT, SEVEN)
    driver.sync("t")
    driver.transact("t", (SEVEN, 0, 1))
    driver.tick()


@scenario(durability=FSYNC)
def interleaved_transactions_over_rolls(driver: Driver) -> None:
    driver.transact("t", (SEVEN, 0, 0), count=3)
    driver.transact("t", (NINE, 0, 0), count=3)
    driver.mark("t", Outcome.ABORT, SEVEN)
    driver.transact("t", (SEVEN, 0, 3), count=3)
    driver.mark("t", Outcome.COMMIT, NINE)
    driver.mark("t", Outcome.ABORT, SEVEN)


@scenario(durability=FSYNC)
def a_snapshot_inside_a_transaction(driver: Driver) -> None:
    before, sealing.SNAPSHOT_SEGMENTS = sealing.SNAPSHOT_SEGMENTS, 1  # type: ignore[misc]
    try:
        driver.transact("t", (SEVEN, 0, 0), count=5)
        driver.mark("t", Outcome.ABORT, SEVEN)
        driver.transact("t", (SEVEN, 0, 5), count=5)
        driver.close()
        driver.open()
        driver.mark("t", Outcome.ABORT, SEVEN, epoch=3)
        driver.append("t", count=2)
    finally:
        sealing.SNAPSHOT_SEGMENTS = before  # type: ignore[misc]


@scenario(durability=FSYNC)
def a_kill_inside_a_transaction(driver: Driver) -> None:
    driver.transact("t", (SEVEN, 0, 0), count=2)
    driver.kill()
    driver.open()
    driver.transact("t", (SEVEN, 0, 2))
    driver.mark("t", Outcome.ABORT, SEVEN)
    driver.close()
    driver.open()
    driver.append("t")


@scenario(durability=FSYNC)
def the_beginning_of_a_transaction_is_deleted(driver: Driver) -> None:
    driver.transact("t", (SEVEN, 0, 0), count=4)
    driver.mark("t", Outcome.ABORT, SEVEN)
    driver.transact("t", (NINE, 0, 0), count=6)
    driver.delete_records("t", 0, 3)
    driver.mark("t", Outcome.ABORT, NINE)
    driver.delete_records("t", 0, 8)
    driver.tick()
    driver.close()
    driver.open()
    driver.append("t")


@scenario()
def what_is_known_of_transactions(driver: Driver) -> None:
    row = CommitRow("in", UUID(int=1), 0, 5, -1, "")
    begun = Transaction("a", SEVEN, 0)
    opened = begun._replace(
        state=State.ONGOING, partitions={"t": (0,)}, offsets={"g": (tuple(row.pack()),)}
    )
    other = opened._replace(transactional_id="b", producer_id=NINE, offsets={})
    for known in (begun, opened, other):
        driver.record(TRANSACTION, id=known.transactional_id, row=known.pack())
    rows = [
        list(Decision(known.transactional_id, *known.key, known.producer_id, 1, is_fence=False))
        for known in (opened, other)
    ]
    driver.record(DECIDED, at=5, commit=True, rows=rows, query=["q", 1])
    driver.close()
    driver.open()
    driver.record(FORGOTTEN, ids=["b"], queries=["q"])
