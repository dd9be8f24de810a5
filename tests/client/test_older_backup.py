"""Clients that are ahead of an older backup, which is put back at the broker and written on.

A reader is told what is not in the log any more, and reads what is there now.  A producer shares
its id with nobody.

The leader epoch of what was read has to be one that the backup has not come to: here that of a gap,
for which the files of a partition were exchanged before.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from segbroker.client import (
    Admin,
    Consumer,
    Gap,
    Outgoing,
    Producer,
    Record,
    SegbrokerError,
    transform,
)

from ..support.daemon import Daemon, running

WAIT_S = 60


def write(daemon: Daemon, *values: bytes) -> None:
    with Producer(daemon.address) as producer:
        producer.send_many("t", values, partition=0)


def read(consumer: Consumer[Gap], up_to: bytes) -> list[int | Gap]:
    """Offsets and gaps up to this record."""
    found: list[int | Gap] = []
    for item in consumer:
        found.append(item.offset if isinstance(item, Record) else item)
        if isinstance(item, Record) and item.value == up_to:
            return found
    raise AssertionError("a reading without an end has ended")


def put_back(daemon: Daemon, backup: Path) -> None:
    daemon.stop()
    shutil.rmtree(daemon.data)
    shutil.copytree(backup, daemon.data)
    daemon.again()


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Of all data, as they were behind offset 9."""
    return tmp_path / "backup"


@pytest.fixture
def of_two_epochs(tmp_path: Path, backup: Path) -> Iterator[Daemon]:
    """Offsets 0 to 9, ten lost ones, and of the next leader epoch those from 20 to 22."""
    with running(tmp_path / "data", "--durability", "disk") as daemon:
        with Admin(daemon.address) as admin:
            admin.create_topic("t", partitions=1)
        write(daemon, *[b"kept"] * 10)
        daemon.stop()
        shutil.copytree(daemon.data, backup)
        # A partition's files of then beside all else of now: what is missing is a gap, and begins
        # a leader epoch.
        daemon.again()
        write(daemon, *[b"lost"] * 10)
        daemon.stop()
        log = daemon.data / "topics" / "t" / "partition_0"
        shutil.rmtree(log)
        shutil.copytree(backup / log.relative_to(daemon.data), log)
        daemon.again()
        write(daemon, b"x", b"x", b"last of then")
        yield daemon


LOST = Gap("t", 0, 10, 20, "corruption")


def test_a_backup_that_is_older_than_what_was_read_is_told(
    of_two_epochs: Daemon, backup: Path
) -> None:
    daemon = of_two_epochs
    with Consumer(daemon.address, "t", on_gap="yield", api_timeout_ms=WAIT_S * 1000) as reader:
        then = read(reader, b"last of then")
        put_back(daemon, backup)
        write(daemon, *[b"other"] * 29, b"last of now")
        now = read(reader, b"last of now")
    assert then == [*range(10), LOST, 20, 21, 22]
    assert now == [Gap("t", 0, 10, 23, "lost_tail"), *range(10, 40)]


def test_a_producer_of_behind_the_backup_shares_its_id_with_nobody(
    tmp_path: Path, backup: Path
) -> None:
    """Two of one id would take turns with its sequence numbers: what the second one sends at a
    number that the first has used would be taken for a repetition, and acknowledged."""
    with running(tmp_path / "data") as daemon:
        write(daemon, b"kept")
        daemon.stop()
        shutil.copytree(daemon.data, backup)
        daemon.again()
        with Producer(daemon.address) as first:
            first.send("t", b"lost", partition=0).result(WAIT_S)
            put_back(daemon, backup)
            with Producer(daemon.address) as second:
                for producer, value in (
                    *((second, b"second 0"), (first, b"first 1")),
                    *((second, b"second 1"), (first, b"first 2")),
                ):
                    producer.send("t", value, partition=0).result(WAIT_S)
        with Consumer(daemon.address, "t", start="start", stop_at_end=True) as consumer:
            values = [record.value for record in consumer]
    assert values == [b"kept", b"second 0", b"first 1", b"second 1", b"first 2"]


def transact(producer: Producer, *values: bytes) -> None:
    with producer.transaction():
        for value in values:
            producer.send("t", value, partition=0).result(WAIT_S)


def test_what_an_idempotent_producer_sends_behind_the_backup_is_there_once_and_in_order(
    tmp_path: Path, backup: Path
) -> None:
    """Its sequence numbers are ahead of those of the backup; some of it was on its way."""
    with running(tmp_path / "data", "--durability", "disk") as daemon:
        with Producer(daemon.address) as producer:
            producer.send("t", b"kept", partition=0).result(WAIT_S)
            daemon.stop()
            shutil.copytree(daemon.data, backup)
            daemon.again()
            producer.send("t", b"lost", partition=0).result(WAIT_S)
            daemon.stop()
            under_way = [producer.send("t", b"%d" % number, partition=0) for number in range(3)]
            put_back(daemon, backup)
            offsets = [delivery.result(WAIT_S).offset for delivery in under_way]
            producer.send("t", b"last", partition=0).result(WAIT_S)
        with Consumer(daemon.address, "t", start="start", stop_at_end=True) as consumer:
            values = [record.value for record in consumer]
    assert values == [b"kept", b"0", b"1", b"2", b"last"]
    assert offsets == [1, 2, 3]


@pytest.mark.parametrize("when", ["between", "at its end", "within"])
@pytest.mark.parametrize("knows", [True, False])
def test_a_transaction_that_the_backup_knows_nothing_of_is_not_committed_by_half(
    tmp_path: Path, backup: Path, when: str, knows: bool
) -> None:
    """Put back between two transactions, behind the last record of one, or within it.  The producer
    is told, and who comes next of its name goes on.

    knows: whether the backup knows the transactional id.
    """
    with running(tmp_path / "data", "--durability", "disk") as daemon:
        write(daemon, b"kept")
        with Producer(daemon.address, transactional_id="x") as producer:
            if knows:
                transact(producer, b"before")
            daemon.stop()
            shutil.copytree(daemon.data, backup)
            daemon.again()
            if when == "between":
                transact(producer, b"lost with all else")
                put_back(daemon, backup)
            with pytest.raises(SegbrokerError), producer.transaction():  # noqa: PT012
                producer.send("t", b"first", partition=0).result(WAIT_S)
                if when != "between":
                    put_back(daemon, backup)
                if when != "at its end":
                    producer.send("t", b"second", partition=0).result(WAIT_S)
        with Producer(daemon.address, transactional_id="x") as producer:
            transact(producer, b"next")
        with Consumer(daemon.address, "t", start="start", stop_at_end=True) as consumer:
            values = [record.value for record in consumer]
    assert values == [b"kept", *[b"before"] * knows, b"next"]


def test_where_a_member_has_sought_nothing_is_said_to_be_lost(of_two_epochs: Daemon) -> None:
    """What it has read before is of an epoch that ends below that."""
    address = of_two_epochs.address
    with Consumer(address, "t", group="g", auto_commit=False) as member:
        assert len(member.poll(5, WAIT_S * 1000)) == 5
        member.seek("t", 0, 22)
        member.commit()
    with Consumer(address, "t", group="g", on_gap="yield") as member:
        assert read(member, b"last of then") == [22]


def test_a_gap_behind_which_a_member_has_committed_is_not_told_again(
    of_two_epochs: Daemon,
) -> None:
    address = of_two_epochs.address
    with Consumer(address, "t", group="g", on_gap="yield", auto_commit=False) as member:
        assert len(member.poll(10, WAIT_S * 1000)) == 10
        assert member.poll(1, WAIT_S * 1000) == [LOST]
        member.commit()
    with Consumer(address, "t", group="g", on_gap="yield") as member:
        assert read(member, b"last of then") == [20, 21, 22]


def test_a_transform_commits_the_epoch_of_what_it_has_read(of_two_epochs: Daemon) -> None:
    """As a member that commits by itself: who goes on there hears of a tail that was lost."""
    address = of_two_epochs.address
    with (
        Consumer(
            address, "t", group="g", on_gap="skip", auto_commit=False, stop_at_end=True
        ) as consumer,
        Producer(address, transactional_id="g") as producer,
    ):
        transform(consumer, producer, lambda record: [Outgoing("out", record.value)])
        transformed = consumer.committed()
    with Consumer(address, "t", group="h", on_gap="skip", stop_at_end=True) as member:
        assert len(list(member)) == 13
        member.commit()
        assert member.committed() == transformed
    assert transformed[("t", 0)].leader_epoch > 0  # type: ignore[index]  # a TopicPartition is one
