"""An application of Spring Kafka, unmodified: what its listeners do, whatever is killed.

tests/support/clients/SpringApp.java has the parts.  Its topics are made by its KafkaAdmin when it
starts, and get more partitions when it starts again and asks for them.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
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

VERSION: Final = "4.1.2"
JARS: Final[tuple[Jar, ...]] = (
    ("org.springframework.kafka", "spring-kafka", VERSION),
    ("org.slf4j", "slf4j-simple", "2.0.17"),
)
APP: Final = "SpringApp"


class Spring:
    """A broker, instances of the application, and what was sent to them."""

    def __init__(self, broker: Daemon, path: str, folder: Path) -> None:
        self.broker = broker
        self._path, self._folder = path, folder
        self._started = 0
        self.sent: Counter[str] = Counter()

    @contextmanager
    def instance(self, *parts: str, partitions: int = 3) -> Iterator[Program]:
        """One instance to the end of the block, when it is ready."""
        self._started += 1
        arguments = [self.broker.address, str(partitions), *parts]
        log = self._folder / f"spring-{self._started}.log"
        with program(self._path, APP, arguments, log) as app:
            app.wait_for("ready")
            yield app

    def send(self, topic: str, *values: str) -> None:
        with Producer(self.broker.address) as producer:
            for value in values:
                producer.send(topic, value.encode(), key=value.encode())

    def order(self, count: int) -> None:
        """Write so many more orders, and remember that they were taken."""
        first = self.sent.total()
        fresh = [f"order-{n}" for n in range(first, first + count)]
        self.send("orders", *fresh)
        self.sent.update(fresh)

    def values(self, topic: str) -> list[str]:
        """What a topic holds, of committed transactions."""
        with Consumer(self.broker.address, topic, start="start", stop_at_end=True) as consumer:
            return [(one.value or b"").decode() for one in consumer]

    def has(self, topic: str, value: str) -> bool:
        return value in self.values(topic)

    def has_more(self, bills: int) -> bool:
        """Whether more than so many are committed."""
        return len(self.values("bills")) > bills

    def is_billed(self) -> bool:
        """Whether each order was answered; raises when one was answered twice."""
        found = Counter(self.values("bills"))
        assert not found - self.sent, f"twice: {found - self.sent}"
        return found == self.sent


@pytest.fixture
def spring(tmp_path: Path, release_cache: Path) -> Iterator[Spring]:
    path = built(APP, f"spring-kafka-{VERSION}", JARS, release_cache)
    with running(tmp_path / "data") as broker:
        yield Spring(broker, path, tmp_path)


def test_each_order_is_billed_once_though_an_instance_and_the_broker_are_killed(
    spring: Spring,
) -> None:
    with spring.instance("Transactions") as two:
        with spring.instance("Transactions") as one, meanwhile(lambda: spring.order(20)):
            eventually(partial(spring.has_more, 100), one, two)
            one.kill()
        with meanwhile(lambda: spring.order(20)):
            eventually(partial(spring.has_more, len(spring.values("bills"))), two)
        for _ in range(2):
            spring.order(200)
            spring.broker.stop(SIGKILL)
            spring.broker.again()
            spring.order(200)
            eventually(spring.is_billed, two)
        assert two.end() == 0
    with spring.instance("Transactions", partitions=5) as again:
        with Admin(spring.broker.address) as admin:
            topic = admin.describe_topic("orders")
            assert len(topic.partitions) == 5
            assert topic.config["retention.ms"].value == "5000000"
        spring.order(200)
        eventually(spring.is_billed, again)
        assert again.end() == 0


ROUNDS: Final = ("before", "after")


def test_records_that_fail_are_tried_again_and_end_in_topics_for_them(spring: Spring) -> None:
    with spring.instance("Failures") as app:
        for when in ROUNDS:
            bad = f"bad-{when}"
            spring.send("parcels", *(f"{when}-{n}" for n in range(50)), bad)
            spring.send("letters", *(f"{when}-{n}" for n in range(50)), bad)
            spring.send("crates", *(f"{when}-{n}" for n in range(50)), "heavy")
            for n in range(50):
                app.wait_for(f"parcel {when}-{n}")
                app.wait_for(f"letter {when}-{n} of letters")
                app.wait_for(f"crate {when}-{n}")
            app.wait_for(f"lost {bad} of letters-dlt")
            eventually(partial(spring.has, "parcels-dlt", bad), app)
            if when == "before":
                spring.broker.stop(SIGKILL)
                spring.broker.again()
        heard = Counter(app.lines)
        assert app.end() == 0
    for when in ROUNDS:
        assert heard[f"fails bad-{when}"] >= 3
        assert heard[f"letter bad-{when} of letters"] >= 1
        assert heard[f"letter bad-{when} of letters-retry"] >= 2
    assert heard["crate heavy"] >= 2
    with Consumer(spring.broker.address, "parcels-dlt", start="start", stop_at_end=True) as dead:
        for record in dead:
            headers = dict(record.headers)
            assert headers["kafka_dlt-original-topic"] == b"parcels"
            assert b"bad-" in (headers["kafka_dlt-exception-message"] or b"")


def test_questions_are_answered_also_after_the_broker_was_killed(spring: Spring) -> None:
    with spring.instance("Questions") as app:
        app.wait_for("answer yes, 20")
        spring.broker.stop(SIGKILL)
        spring.broker.again()
        before = len(app.lines)
        eventually(lambda: len(app.lines) > before + 20, app)
        assert app.lines[1:] == [f"answer yes, {n}" for n in range(len(app.lines) - 1)]
        assert app.end() == 0


def test_a_share_group_does_each_job_and_refuses_some(spring: Spring) -> None:
    with spring.instance("Shares") as app:
        for when in ROUNDS:
            spring.send("jobs", *(f"{when}-{n}" for n in range(50)), f"bad-{when}")
            eventually(partial(are_done, app, {f"{when}-{n}" for n in range(50)}), app)
            app.wait_for(f"refused bad-{when}")
            if when == "before":
                spring.broker.stop(SIGKILL)
                spring.broker.again()
        assert app.end() == 0
    for when in ROUNDS:
        assert f"released {when}-7" in app.lines


def are_done(app: Program, jobs: set[str]) -> bool:
    """Whether a share group was done with all of these."""
    return jobs <= {line.split()[1] for line in app.lines if line.startswith("done ")}
