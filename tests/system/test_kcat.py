"""kcat, as Debian ships it (an old librdkafka), against a real daemon."""

import re
import signal
import subprocess
import threading
from collections.abc import Callable

import pytest

from segbroker.client import Admin, Producer

from ..support.daemon import Daemon
from ..support.tools import require
from ..support.waiting import DEADLINE_S, until

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


@pytest.mark.parametrize("wanted", ["uncompressed", *CODECS[1:]])
def test_what_a_topic_compresses_anew_kcat_reads(
    daemon: Daemon, topic: Callable[[], str], wanted: str
) -> None:
    name = topic()
    with Admin(daemon.address) as admin:
        admin.create_topic(name, partitions=1, config={"compression.type": wanted})
    lines = b"".join(b"key%d:line %d\n" % (n, n) for n in range(500))
    for codec in CODECS:
        produce = ["-P", "-t", name, "-p", "0", "-K", ":", "-X", "enable.idempotence=true"]
        kcat(daemon, *produce, "-z", codec, stdin=lines)
    seen = kcat(daemon, "-C", "-t", name, "-p", "0", "-o", "beginning", "-e", "-q", "-K", ":")
    assert seen == lines * len(CODECS)


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


@pytest.mark.parametrize("acks", ["0", "1"])
def test_kcat_acks_deliver(daemon: Daemon, topic: Callable[[], str], acks: str) -> None:
    name = topic()
    lines = b"".join(b"line %d\n" % n for n in range(100))
    kcat(daemon, "-P", "-t", name, "-p", "0", "-X", f"acks={acks}", stdin=lines)
    read = ("-C", "-t", name, "-p", "0", "-o", "beginning", "-c", "100", "-q")
    assert kcat(daemon, *read) == lines


class Member:
    """kcat in a group: which partitions it says that it has.  Use it in a `with` block."""

    def __init__(self, daemon: Daemon, name: str, place: str | None = None) -> None:
        self.owned: set[int] = set()
        self.said: list[str] = []
        conf = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
        if place is not None:
            # Nobody waits for its end: who comes back on a busy machine must find its place.
            conf |= {"group.instance.id": place, "session.timeout.ms": "60000"}
        words = [word for key, value in conf.items() for word in ("-X", f"{key}={value}")]
        self._process = subprocess.Popen(
            [require("kcat"), "-b", daemon.address, *words, "-G", name, name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr:
            for line in self._process.stderr:
                self.said.append(line.strip())
                _, is_assignment, partitions = line.partition("): assigned: ")
                if is_assignment:
                    self.owned = set(map(int, re.findall(r"\[(\d+)\]", partitions)))
                elif "): revoked: " in line:
                    self.owned = set()

    def check(self) -> None:
        assert self._process.poll() is None, self.said

    def state(self) -> str:
        return f"kcat: has {sorted(self.owned)}, said {self.said[-4:]}"

    def end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.wait(DEADLINE_S)
        self._thread.join()

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)


@pytest.fixture
def shared(daemon: Daemon, topic: Callable[[], str]) -> str:
    """A topic of four partitions."""
    name = topic()
    with Admin(daemon.address) as admin:
        admin.create_topic(name, partitions=len(ALL))
    return name


ALL = {0, 1, 2, 3}


def have_halves(one: Member, two: Member) -> bool:
    return len(one.owned) == len(two.owned) == 2 and one.owned | two.owned == ALL


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["leaves", "killed"])
def test_kcat_takes_over_from_a_member_that_is(
    daemon: Daemon, shared: str, how: signal.Signals
) -> None:
    with Member(daemon, shared) as one:
        until(lambda: one.owned == ALL, one)
        with Member(daemon, shared) as two:
            until(lambda: have_halves(one, two), one, two)
            two.end(how)
        until(lambda: one.owned == ALL, one)


def test_kcat_comes_back_to_its_place_as_a_static_member(daemon: Daemon, shared: str) -> None:
    with Member(daemon, shared, "place-1") as one:
        until(lambda: one.owned == ALL, one)
        with Member(daemon, shared, "place-2") as two:
            until(lambda: have_halves(one, two), one, two)
            had = two.owned
            two.end(signal.SIGTERM)
        with Member(daemon, shared, "place-2") as two:
            until(lambda: two.owned == had, one, two)
