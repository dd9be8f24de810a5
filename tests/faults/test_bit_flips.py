"""A flipped bit is noticed or harmless, costs one batch at most, and is never handed out.

A sample of the bytes of every kind of file; the long tier takes them all:
`python -m tests.soak.bit_flips`.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import structlog

from segbroker.client import Admin, Producer

from ..support.daemon import Daemon, running
from ..support.extent import share
from . import bit_flips
from .damage import Ending, World, build, disk_with, examine
from .history import FOREIGN, Record, Sends
from .load import ConfluentReading, bounds_of, value_of

PARTITION = ("flipped", 0)
BITS = 8
EVERY_BYTE = 1 << 30


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What the storage engine says about each damage would be thousands of lines."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="module")
def world() -> World:
    return build(1)


def test_a_flip_at_rest_costs_one_batch_at_most_and_a_gap_says_so(world: World) -> None:
    tallies = bit_flips.flip(world, Random(1), share(36, 72))
    assert [finding for tally in tallies.values() for finding in tally.findings] == []
    outcomes = {kind: set(tally.outcomes) for kind, tally in tallies.items()}
    assert outcomes["sealed"] == outcomes["active"] == {"gap"}
    assert outcomes["index"] == outcomes["manifest"] == outcomes["producers"] == {"whole"}
    # Reserved bytes of its header say nothing.
    assert {"refused"} <= outcomes["snapshot"] <= {"refused", "whole"}
    assert sum(tally.flips for tally in tallies.values()) > 200


@pytest.mark.timeout(900)  # some seconds on a quiet machine
@pytest.mark.parametrize("bit", share((0, BITS - 1), tuple(range(BITS))))
def test_every_bit_of_a_full_segment_and_its_index_matters(bit: int) -> None:
    world = build(4, segment_bytes=1_024, segments=1, topics=(("t", 1, "fsync"),))
    tallies = bit_flips.flip(world, Random(4), EVERY_BYTE, kinds=("sealed", "index"), only_bit=bit)
    assert [finding for tally in tallies.values() for finding in tally.findings] == []
    assert set(tallies["sealed"].outcomes) == {"gap"}
    assert set(tallies["index"].outcomes) == {"whole"}
    assert tallies["sealed"].flips > 700


@pytest.mark.parametrize("ending", [Ending.KILLED, Ending.POWER_CUT])
def test_a_flip_before_recovery_is_no_worse(ending: Ending) -> None:
    world = build(1, topics=(("t", 2, "fsync"),), ending=ending)
    assert examine(world, disk_with(world.files)).outcome == "whole"
    tallies = bit_flips.flip(world, Random(3), 8)
    assert [finding for tally in tallies.values() for finding in tally.findings] == []
    assert tallies["wal"].flips


def test_a_flip_in_the_wal_is_told() -> None:
    world = build(1, topics=(("t", 2, "fsync"),), ending=Ending.POWER_CUT)
    tally = bit_flips.flip(world, Random(1), 150, kinds=("wal",))["wal"]
    assert tally.findings == []
    assert tally.outcomes["gap"] > 20


def test_a_flip_under_an_open_broker_is_found_by_the_next_read(world: World) -> None:
    tallies = bit_flips.flip(world, Random(2), 8, in_use=True)
    assert [finding for tally in tallies.values() for finding in tally.findings] == []
    assert set(tallies["sealed"].outcomes) == set(tallies["active"].outcomes) == {"gap"}


def fill(daemon: Daemon) -> Sends:
    """Some segments of a partition, one record per batch."""
    sends = Sends(1, [PARTITION])
    with Producer(daemon.address, linger_ms=0, batch_bytes=600) as producer:
        for _ in range(150):
            record = sends.send(PARTITION)
            delivery = producer.send(PARTITION[0], value_of(record, 400), partition=0)
            sends.ack(record.number, delivery.result(30).offset)
    return sends


def read_numbers(daemon: Daemon) -> list[int]:
    """The numbers of the records that a consumer of librdkafka is handed."""
    reader = ConfluentReading(1, daemon.address, [PARTITION], size=400)
    records: list[Record] = []
    reader.on_record = lambda _, __, record: records.append(record)
    reader.bounds = bounds_of(daemon.address, [PARTITION])
    reader.start()
    reader.finish(30)
    assert reader.problems == []
    assert FOREIGN not in records
    return [record.number for record in records]


@pytest.mark.parametrize("in_use", [False, True], ids=["at rest", "in use"])
def test_a_daemon_with_a_flipped_bit_serves_all_the_rest(in_use: bool, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as daemon:
        with Admin(daemon.address) as admin:
            admin.create_topic(PARTITION[0], partitions=1, config={"segment.bytes": "16384"})
        sends = fill(daemon)
        assert read_numbers(daemon) == list(range(len(sends)))
        if in_use:
            flip_one(data)
            lost = sorted({*range(len(sends))} - {*read_numbers(daemon)})
    if not in_use:
        flip_one(data)
    with running(data) as daemon:
        numbers = read_numbers(daemon)
        lost_now = sorted({*range(len(sends))} - {*numbers})
        assert numbers == sorted(numbers)
        if in_use:
            assert lost == lost_now == [], "the write-ahead log had it"
        else:
            assert 1 <= len(lost_now) <= 3, "one batch"
        starts, ends = bounds_of(daemon.address, [PARTITION])[PARTITION]
        assert (starts, ends) == (0, len(sends))
    said = "recovery_replayed" if in_use else "recovery_gap"
    assert said in daemon.log.read_text()


def flip_one(data: Path) -> None:
    """A bit of a sealed segment."""
    path = data / "topics/flipped/partition_0/flipped_partition_0_segment_1.log"
    content = path.read_bytes()
    with path.open("r+b") as file:
        position = len(content) // 2
        file.seek(position)
        file.write(bit_flips.flipped(content, position, 3)[position : position + 1])
