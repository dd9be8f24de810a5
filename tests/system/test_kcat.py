"""kcat, as Debian ships it (an old librdkafka), against a real daemon."""

import subprocess
from collections.abc import Callable

import pytest

from segbroker.client import Admin, Producer

from ..support.daemon import Daemon
from ..support.tools import require

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def kcat(daemon: Daemon, *words: str, stdin: bytes = b"") -> bytes:
    run = subprocess.run(
        [require("kcat"), "-b", daemon.address, *words],
        input=stdin,
        capture_output=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", ["false", "true"])
def test_what_kcat_produces_kcat_consumes(
    daemon: Daemon, topic: Callable[[], str], codec: str, idempotent: str
) -> None:
    name = topic()
    lines = b"".join(b"key%d:line %d\n" % (n, n) for n in range(200))
    options = ["-X", f"enable.idempotence={idempotent}", "-z", codec]
    kcat(daemon, "-P", "-t", name, "-p", "0", "-K", ":", *options, stdin=lines)
    seen = kcat(daemon, "-C", "-t", name, "-p", "0", "-o", "beginning", "-e", "-q", "-K", ":")
    assert seen == lines


def test_an_old_librdkafka_compresses_towards_us(daemon: Daemon, topic: Callable[[], str]) -> None:
    # Before 2.11.1 it silently sends uncompressed when the broker's lowest Produce is above 0.
    name = topic()
    with Admin(daemon.address) as admin:
        admin.create_topic(name, partitions=1)
    lines = b"the same words again and again\n" * 2000
    kcat(daemon, "-P", "-t", name, "-z", "gzip", "-X", "linger.ms=200", stdin=lines)
    stored = sum(path.stat().st_size for path in daemon.data.rglob(f"{name}_*.log"))
    assert stored < len(lines) / 4


def test_kcat_reads_from_offsets_from_the_end_and_by_time(
    daemon: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    with Producer(daemon.address) as producer:
        for n in range(10):
            producer.send(name, b"%d" % n, partition=0, timestamp_ms=1_700_000_000_000 + n)
    read = ("-C", "-t", name, "-p", "0", "-e", "-q", "-D", " ")
    assert kcat(daemon, *read, "-o", "7") == b"7 8 9 "
    assert kcat(daemon, *read, "-o", "-2") == b"8 9 "
    assert kcat(daemon, *read, "-o", "s@1700000000006") == b"6 7 8 9 "


def test_kcat_lists_the_broker_and_its_topics(daemon: Daemon, topic: Callable[[], str]) -> None:
    name = topic()
    with Admin(daemon.address) as admin:
        admin.create_topic(name, partitions=3)
    listing = kcat(daemon, "-L").decode()
    assert f"at {daemon.address} (controller)" in listing
    assert f'topic "{name}" with 3 partitions' in listing
