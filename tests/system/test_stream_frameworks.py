"""Stream processors in Python, unmodified: a count per key that is right, whatever is killed.

quixstreams stands on librdkafka, faust-streaming on aiokafka: both keep their state in a compacted
changelog on the broker, and the first writes in transactions where it is told to.  bytewax, on
librdkafka, keeps its state and its offsets itself.  While records flow the application is killed
and started again, and so is the broker.  A program that ends by itself, as some do when the broker
was away, is started again, as a service manager does; so often that it must be getting on.  One
that writes in transactions goes on: its broker knows the members of the group again.  Each
framework has a virtual environment of its own, made on first use.
"""

import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from segbroker.client import Admin, Consumer, Producer

from ..support.daemon import Daemon, start
from ..support.kafka_program import CLIENTS
from ..support.program import Program, eventually
from ..support.releases import Release, interpreter

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

KEYS: Final = 10
PARTITIONS: Final = 2
STARTS_MAX: Final = 5


@dataclass(frozen=True)
class Framework:
    """One framework as it is told to run.

    Attributes:
        release: what pip installs.
        script: of tests/support/clients.
        guarantee: what its program is told, if it takes one.
        once: each count is written once, also after kills.
        exact: the last count of a key is its number of records, also after kills.
        ends_whole: told to end (SIGTERM), it passes over nothing.  faust's does, now and then, on
            Apache Kafka as well: its committed offset stands behind records that it never counted.
    """

    release: Release
    script: str
    guarantee: str = ""
    once: bool = False
    exact: bool = True
    ends_whole: bool = True


QUIX: Final = Release("3.28.1", ("quixstreams==3.28.1",))
FAUST: Final = Release("0.15.3", ("faust-streaming==0.15.3",))
BYTEWAX: Final = Release("0.21.1", ("bytewax[kafka]==0.21.1",))
FRAMEWORKS: Final = {
    "quixstreams": Framework(QUIX, "count_quixstreams.py", "exactly-once", once=True),
    "quixstreams-at-least-once": Framework(
        QUIX, "count_quixstreams.py", "at-least-once", exact=False
    ),
    "faust-at-least-once": Framework(
        FAUST, "count_faust.py", "at_least_once", exact=False, ends_whole=False
    ),
    "bytewax": Framework(BYTEWAX, "count_bytewax.py"),
}


class Application:
    """One framework's program on one broker, and what it was given."""

    def __init__(self, framework: Framework, broker: Daemon, python: Path, folder: Path) -> None:
        self.broker = broker
        self.sent: Counter[str] = Counter()
        self.starts = 0
        self._framework = framework
        self._python = python
        self._folder = folder
        self._program = self._start()

    def _start(self) -> Program:
        script = str(CLIENTS / self._framework.script)
        command = [str(self._python), script, self.broker.address, "app", str(self._folder / "app")]
        if self._framework.guarantee:
            command.append(self._framework.guarantee)
        return Program(command, self._folder / "app.log")

    def send(self, count: int) -> None:
        """Send so many records, to keys in turn."""
        with Producer(self.broker.address) as producer:
            for n in range(count):
                key = f"k{n % KEYS}"
                producer.send("app-in", b"x", key=key.encode())
                self.sent[key] += 1

    def written(self) -> dict[str, list[int]]:
        """What it has written for each key, of committed transactions."""
        found: dict[str, list[int]] = {}
        with Consumer(self.broker.address, "app-out", stop_at_end=True) as consumer:
            for record in consumer:
                found.setdefault((record.key or b"").decode(), []).append(int(record.value or b"0"))
        return found

    def _is_done(self) -> bool:
        if self._program.has_ended:
            self.starts += 1
            assert self.starts <= STARTS_MAX, self._program.state()
            self.kill()
        written = self.written()
        return all(max(written.get(key, [0])) >= count for key, count in self.sent.items())

    def wait_until_done(self) -> None:
        """Wait until all that was sent is counted."""
        eventually(self._is_done)

    def close(self) -> None:
        """End the program without a word (SIGKILL)."""
        self._program.close()

    def kill(self) -> None:
        """The same, and start it again on its folder."""
        self._program.close()
        self._program = self._start()

    def restart(self) -> None:
        """End it as a service manager does, and start it again."""
        self._program.terminate()
        self.kill()

    def kill_broker(self) -> None:
        """End the broker without a word, and start it again under its address."""
        self.broker.stop(signal.SIGKILL)
        self.broker.again()


@pytest.fixture(params=FRAMEWORKS)
def application(
    request: pytest.FixtureRequest, tmp_path: Path, release_cache: Path
) -> Iterator[tuple[Framework, Application]]:
    framework = FRAMEWORKS[request.param]
    python = interpreter(framework.release, release_cache)
    broker = start(tmp_path / "data")
    try:
        with Admin(broker.address) as admin:
            for name in ("app-in", "app-out"):
                admin.create_topic(name, partitions=PARTITIONS)
        application = Application(framework, broker, python, tmp_path)
        try:
            yield framework, application
        finally:
            application.close()
    finally:
        broker.stop()


def test_counts_are_right_though_the_program_and_the_broker_are_killed(
    application: tuple[Framework, Application],
) -> None:
    framework, program = application
    program.send(500)
    program.wait_until_done()
    assert program.written() == {
        key: list(range(1, count + 1)) for key, count in program.sent.items()
    }

    program.send(500)
    program.kill()
    program.send(500)
    program.wait_until_done()

    before = program.starts
    program.send(500)
    program.kill_broker()
    program.send(500)
    program.wait_until_done()
    if framework.once:
        assert program.starts == before, "the broker knows its members again"

    if framework.ends_whole:
        program.restart()
    program.send(500)
    program.wait_until_done()

    for key, numbers in program.written().items():
        wanted = list(range(1, program.sent[key] + 1))
        if framework.once:
            assert numbers == wanted
        elif framework.exact:
            assert list(dict.fromkeys(numbers)) == wanted
        else:
            assert set(numbers) >= set(wanted)
