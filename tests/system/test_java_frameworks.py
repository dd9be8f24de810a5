"""Frameworks of Java, unmodified: each copies a topic to another one, and nothing is lost.

Each stands on a release of Java's kafka-clients of its own, from 3.6 to 4.3.  While records flow
the application is killed and started again, and so is the broker.  Those that copy in transactions
which hold the places of what they read copy each record once.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Final

import pytest

from segbroker.client import Admin, Consumer, Producer

from ..support.daemon import Daemon, running
from ..support.kafka_program import program
from ..support.program import Program, eventually
from ..support.waiting import meanwhile
from .java_frameworks import Jar, built

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

IN: Final = "words"
OUT: Final = "copies"
FAILED: Final = "failed"
LOGGER: Final = ("org.slf4j", "slf4j-simple", "2.0.17")
BATCH: Final = 20


@dataclass(frozen=True)
class Framework:
    """One framework as it is used.

    Attributes:
        name: of the folder of its jars, with its release.
        app: class of tests/support/clients.
        jars: what it needs.
        once: each record is copied once, also after kills.
        gives_up: what fails goes to the topic FAILED.
    """

    name: str
    app: str
    jars: tuple[Jar, ...]
    once: bool = True
    gives_up: bool = False


FRAMEWORKS: Final = (
    Framework(
        "camel-4.22.0",
        "CamelApp",
        (
            ("org.apache.camel", "camel-kafka", "4.22.0"),
            ("org.apache.camel", "camel-main", "4.22.0"),
        ),
        once=False,
        gives_up=True,
    ),
    Framework(
        "pekko-connectors-kafka-1.1.0",
        "PekkoApp",
        (
            ("org.apache.pekko", "pekko-connectors-kafka_2.13", "1.1.0"),
            ("org.apache.pekko", "pekko-stream_2.13", "1.1.5"),
        ),
    ),
    Framework(
        "vertx-kafka-5.0.7",
        "VertxApp",
        (("io.vertx", "vertx-kafka-client", "5.0.7"),),
        once=False,
    ),
    Framework(
        "reactor-kafka-1.3.23",
        "ReactorApp",
        (("io.projectreactor.kafka", "reactor-kafka", "1.3.23"),),
    ),
    Framework(
        "parallel-consumer-0.5.3.2",
        "ParallelApp",
        (("io.confluent.parallelconsumer", "parallel-consumer-core", "0.5.3.2"),),
    ),
    Framework(
        "spring-cloud-stream-5.0.4",
        "SpringCloudStreamApp",
        (("org.springframework.cloud", "spring-cloud-stream-binder-kafka", "5.0.4"),),
    ),
    Framework(
        "smallrye-kafka-4.34.0",
        "SmallRyeApp",
        (
            ("io.smallrye.reactive", "smallrye-reactive-messaging-kafka", "4.34.0"),
            ("io.smallrye.config", "smallrye-config", "3.16.0"),
            ("org.jboss.weld.se", "weld-se-core", "5.1.3.Final"),
            (
                "org.eclipse.microprofile.reactive-streams-operators",
                "microprofile-reactive-streams-operators-api",
                "3.0.1",
            ),
        ),
    ),
)


class Place:
    """A broker, an application on it, and what was sent to it."""

    def __init__(self, broker: Daemon, framework: Framework, path: str, folder: Path) -> None:
        self.broker, self._framework = broker, framework
        self._path, self._folder = path, folder
        self.sent: Counter[str] = Counter()
        with Admin(broker.address) as admin:
            admin.create_topic(IN, partitions=4)
            admin.create_topic(OUT, partitions=3)

    def start(self) -> Program:
        arguments = [self.broker.address, IN, OUT]
        log = self._folder / "app.log"
        app = program(self._path, self._framework.app, arguments, log)
        app.wait_for("ready")
        return app

    def send(self, count: int = BATCH) -> None:
        """Write so many more records."""
        first = self.sent.total()
        fresh = [f"word-{n}" for n in range(first, first + count)]
        with Producer(self.broker.address) as producer:
            for word in fresh:
                producer.send(IN, word.encode(), key=word.encode())
        self.sent.update(fresh)

    def values(self, topic: str) -> Counter[str]:
        """What is committed, and how often."""
        with Consumer(self.broker.address, topic, start="start", stop_at_end=True) as consumer:
            return Counter((one.value or b"").decode() for one in consumer)

    def goes_on(self, app: Program) -> None:
        """Wait until a batch more is copied than now."""
        before = self.values(OUT).total()
        eventually(lambda: self.values(OUT).total() > before + BATCH, app)

    def is_whole(self) -> bool:
        """Whether all was copied; raises when that was done twice and should not be."""
        found = self.values(OUT)
        if self._framework.once:
            assert not found - self.sent, f"twice: {found - self.sent}"
        return set(found) == set(self.sent)

    def becomes_whole(self, app: Program) -> None:
        """Wait until all was copied, for as long as it goes on: on a busy machine there is more."""
        while not self._is_over(app):
            pass

    def _is_over(self, app: Program) -> bool:
        """Whether all was copied; waits for one more where it was not."""
        before = self.values(OUT).total()
        if self.is_whole():
            return True
        eventually(lambda: self.values(OUT).total() > before, app)
        return False

    def gives_up(self, app: Program) -> None:
        """Send a record that fails, and see where it goes."""
        if self._framework.gives_up:
            with Producer(self.broker.address) as producer:
                producer.send(IN, b"bad")
            eventually(lambda: self.values(FAILED) == {"bad": 1}, app)


@pytest.fixture(params=FRAMEWORKS, ids=lambda framework: framework.name)
def place(request: pytest.FixtureRequest, tmp_path: Path, release_cache: Path) -> Iterator[Place]:
    framework: Framework = request.param
    path = built(framework.app, framework.name, (*framework.jars, LOGGER), release_cache)
    with running(tmp_path / "data") as broker:
        yield Place(broker, framework, path, tmp_path)


def test_all_is_copied_though_the_application_and_the_broker_are_killed(place: Place) -> None:
    with place.start() as first, meanwhile(place.send):
        place.goes_on(first)
        first.kill()
    with place.start() as second:
        with meanwhile(place.send):
            place.goes_on(second)
        for _ in range(2):
            place.send(200)
            place.broker.stop(SIGKILL)
            place.broker.again()
            place.send(200)
            place.becomes_whole(second)
        place.gives_up(second)
        assert second.end() == 0
