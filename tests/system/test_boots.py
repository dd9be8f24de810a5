"""The daemon killed, on the same boot of the machine and on another one, under Kafka's clients.

Another boot is a boot id that the test writes, and a log that has lost its unsynced end.
"""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

from segbroker.client import Consumer, Gap, Producer
from segbroker.protocol.record_batch import iter_batches

from ..support.daemon import Daemon, start
from ..support.forks import BOOT_ID
from ..support.tools import require

BLOCK = 1 << 20


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the boot id of the daemons that are started from then on."""
    path = tmp_path / "boot_id"
    monkeypatch.setenv(BOOT_ID, str(path))
    path.write_text("first\n")
    return lambda boot_id: (path.write_text(boot_id + "\n"), None)[1]


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Starts daemons on one data directory; each kills the one before it, as `kill -9` does."""
    running: list[Daemon] = []

    def restart(*flags: str) -> Daemon:
        if running:
            running[-1].stop(signal.SIGKILL)
        running.append(start(tmp_path / "data", *flags))
        return running[-1]

    yield restart
    if running:
        running[-1].stop()


def lose_last_batch(data: Path, topic: str) -> None:
    """What a power cut does to the newest batch of a log that was not synced."""
    path = data / "topics" / topic / "partition_0" / f"{topic}_partition_0_segment_0.log"
    batches = [len(batch) for batch in iter_batches(memoryview(path.read_bytes()))]
    with path.open("r+b") as file:
        file.truncate(sum(batches[:-1]))


def produce(daemon: Daemon, topic: str, *values: bytes) -> list[int]:
    with Producer(daemon.address, linger_ms=0) as producer:
        return [producer.send(topic, value, partition=0).result().offset for value in values]


@pytest.mark.parametrize("durability", ["disk", "memory", "fsync"])
def test_a_killed_daemon_on_the_same_boot_has_everything_and_no_gap(
    daemons: Callable[..., Daemon], boot: Callable[[str], None], durability: str
) -> None:
    daemon = daemons("--durability", durability)
    assert produce(daemon, "t", b"a", b"b", b"c") == [0, 1, 2]
    daemon = daemons("--durability", durability)
    assert produce(daemon, "t", b"d") == [3]
    with Consumer(daemon.address, "t", stop_at_end=True) as consumer:
        assert [(r.offset, r.value) for r in consumer] == list(enumerate([b"a", b"b", b"c", b"d"]))


def test_kcat_passes_over_what_a_power_cut_took(
    daemons: Callable[..., Daemon], boot: Callable[[str], None]
) -> None:
    daemon = daemons("--durability", "disk")
    produce(daemon, "t", b"a", b"b", b"lost")
    daemon.stop(signal.SIGKILL)
    lose_last_batch(daemon.data, "t")
    boot("second")
    daemon = daemons("--durability", "disk")
    assert produce(daemon, "t", b"d") == [BLOCK + 1]
    command = [require("kcat"), "-b", daemon.address, "-C", "-t", "t", "-p", "0"]
    command += ["-o", "beginning", "-e", "-q", "-f", "%o %s\n"]
    run = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert run.stdout == b"0 a\n1 b\n%d d\n" % (BLOCK + 1)


def test_librdkafka_that_read_what_was_lost_goes_back_to_where_the_log_was_recovered(
    daemons: Callable[..., Daemon], boot: Callable[[str], None]
) -> None:
    # It stays connected over the power cut at offset 3 in epoch 0; epoch 0 ends at 2 now.
    daemon = daemons("--durability", "disk")
    produce(daemon, "t", b"a", b"b", b"lost")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": daemon.address, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        assert [value_of(consumer) for _ in range(3)] == [(0, b"a"), (1, b"b"), (2, b"lost")]
        daemon.stop(signal.SIGKILL)
        lose_last_batch(daemon.data, "t")
        boot("second")
        daemon = daemons("--durability", "disk")
        produce(daemon, "t", b"d")
        assert value_of(consumer) == (BLOCK + 1, b"d")
    finally:
        consumer.close()


def value_of(consumer: confluent_kafka.Consumer) -> tuple[int | None, bytes | None]:
    """Offset and value of the next record."""
    for _ in range(60):
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            return message.offset(), message.value()
    raise AssertionError("no record in a minute")


def test_our_client_is_told_of_what_a_power_cut_took(
    daemons: Callable[..., Daemon], boot: Callable[[str], None]
) -> None:
    daemon = daemons("--durability", "memory")
    produce(daemon, "t", b"a", b"b", b"lost")
    daemon.stop(signal.SIGKILL)
    lose_last_batch(daemon.data, "t")
    boot("second")
    daemon = daemons("--durability", "memory")
    produce(daemon, "t", b"d")
    with Consumer(daemon.address, "t", stop_at_end=True, on_gap="yield") as consumer:
        seen = [
            (one.from_offset, one.to_offset, str(one.reason))
            if isinstance(one, Gap)
            else (one.offset, one.value)
            for one in consumer
        ]
    lost = (2, BLOCK + 1, "lost_tail")
    assert seen == [(0, b"a"), (1, b"b"), lost, (BLOCK + 1, b"d")]
