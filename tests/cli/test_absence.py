"""A broker that is away while a command runs: one line on standard error, one when it is back."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..support.daemon import Daemon, running
from .conftest import segbroker, start

AWAY, BACK = b"cannot be reached", b"can be reached again"


@contextmanager
def started(daemon: Daemon, *words: str) -> "Iterator[subprocess.Popen[bytes]]":
    """The command, with its three streams; ended by SIGTERM."""
    process = start(daemon, *words)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def produce(daemon: Daemon, line: bytes) -> None:
    segbroker("produce", "t", stdin=line, env={"SEGBROKER_BOOTSTRAP": daemon.address})


def test_who_consumes_is_told_that_the_broker_is_away_and_that_it_is_back(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon:
        produce(daemon, b"1\n")
        with started(daemon, "consume", "t") as consumer:
            assert consumer.stdout is not None
            assert consumer.stderr is not None
            assert consumer.stdout.readline() == b"1\n"
            daemon.stop()
            line = consumer.stderr.readline()
            assert AWAY in line
            assert daemon.address.encode() in line
            daemon.again()
            assert BACK in consumer.stderr.readline()
            produce(daemon, b"2\n")
            assert consumer.stdout.readline() == b"2\n"


def test_who_produces_is_told_too(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon, started(daemon, "produce", "t") as producer:
        assert producer.stdin is not None
        assert producer.stderr is not None
        produce(daemon, b"0\n")  # or a quick consumer would find no topic
        producer.stdin.write(b"1\n")
        producer.stdin.flush()
        with started(daemon, "consume", "t") as consumer:
            assert consumer.stdout is not None
            assert {consumer.stdout.readline() for _ in range(2)} == {b"0\n", b"1\n"}
        daemon.stop()
        producer.stdin.write(b"2\n")
        producer.stdin.flush()
        assert AWAY in producer.stderr.readline()
        daemon.again()
        assert BACK in producer.stderr.readline()
        producer.stdin.close()
        assert producer.stderr.read() == b""
        assert producer.wait(60) == 0


def test_who_wants_it_quiet_hears_nothing(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon:
        produce(daemon, b"1\n")
        with (
            started(daemon, "consume", "t", "-q", "-n", "2") as quiet,
            started(daemon, "consume", "t") as other,
        ):
            assert quiet.stdout is not None
            assert other.stdout is not None
            assert quiet.stderr is not None
            assert other.stderr is not None
            assert quiet.stdout.readline() == other.stdout.readline() == b"1\n"
            daemon.stop()
            assert AWAY in other.stderr.readline()
            daemon.again()
            assert BACK in other.stderr.readline()
            produce(daemon, b"2\n")
            assert quiet.stdout.readline() == b"2\n"
            assert quiet.stderr.read() == b""
