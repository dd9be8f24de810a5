"""Applications of Kafka Streams, unmodified: exact results, also when an instance is killed.

What they make of a broker: internal topics with settings of their own, compacted changelogs,
records deleted behind the reader of a repartition topic, a transaction per commit, groups whose
members carry their state.  Each test is a few virtual machines, so all belong to `make matrix`.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from segbroker.client import Admin, Consumer, Producer

from ..support.daemon import Daemon, running
from ..support.java import compiled
from ..support.kafka_program import STREAMS, jars, program
from ..support.program import Program, eventually
from ..support.waiting import meanwhile

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

WORDS: Final = ("the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "the", "cat")
# Often enough that a test sees many commits, and dead members early.
QUICK: Final = ("commit.interval.ms=100", "repartition.purge.interval.ms=500")
DEAD_SOON: Final = ("main.consumer.session.timeout.ms=6000", "heartbeat.interval.ms=500")
EXACTLY_ONCE: Final = ("processing.guarantee=exactly_once_v2", "transaction.timeout.ms=5000")


class Feed:
    """Lines of five words for WORDS, and what counting them comes to."""

    def __init__(self, address: str, topic: str) -> None:
        self.counts: Counter[str] = Counter()
        self._address, self._topic = address, topic
        self._next = 0

    def send(self, lines: int) -> None:
        """Send so many more lines."""
        with Producer(self._address) as producer:
            for n in range(self._next, self._next + lines):
                line = [WORDS[(n * 7 + i * 3) % len(WORDS)] for i in range(5)]
                self.counts.update(line)
                producer.send(self._topic, " ".join(line).encode(), key=b"%d" % n)
        self._next += lines

    def table(self) -> dict[str, str]:
        """What the application is to come to."""
        return {word: str(count) for word, count in self.counts.items()}


def read(address: str, topic: str) -> list[tuple[str, str | None]]:
    """Every record of a topic, of committed transactions: key and value."""
    with Consumer(address, topic, stop_at_end=True) as consumer:
        pairs = [(record.key or b"", record.value) for record in consumer]
    return [(key.decode(), None if value is None else value.decode()) for key, value in pairs]


def table(address: str, topic: str) -> dict[str, str]:
    """The last value of each key."""
    last = dict(read(address, topic))
    return {key: value for key, value in last.items() if value is not None}


def retained(address: str, topic: str) -> int:
    """Offsets between the start and the end of a topic."""
    with Admin(address) as admin:
        start, end = admin.offsets(topic, "start"), admin.offsets(topic, "end")
    return sum(end[tp].offset - start[tp].offset for tp in end)


class Application:
    """Instances of StreamsApp on one broker, each with a state directory of its own."""

    def __init__(self, broker: Daemon, cache: Path, folder: Path) -> None:
        self.address = broker.address
        self._path = compiled([STREAMS], jars(cache), cache)
        self._folder = folder

    def topics(self, app: str, *names: str, partitions: int = 2) -> None:
        """Make the topics of an application, which are named after it."""
        with Admin(self.address) as admin:
            for name in names:
                admin.create_topic(f"{app}-{name}", partitions=partitions)

    def instance(self, app: str, what: str, *conf: str, number: int = 1) -> Program:
        """Start an instance; the same number comes back to the same state."""
        arguments = [self.address, app, what, str(self._folder / f"{app}-{number}"), *QUICK, *conf]
        log = self._folder / f"{app}-{number}.log"
        return program(self._path, STREAMS.stem, arguments, log)

    def tool(self, main: str, *arguments: str) -> Program:
        """Start a command-line tool of Kafka's."""
        return program(self._path, main, arguments, self._folder / "tool.log")


@pytest.fixture
def application(tmp_path: Path, release_cache: Path) -> Iterator[Application]:
    with running(tmp_path / "data") as broker:
        yield Application(broker, release_cache, tmp_path)


def test_words_are_counted_and_what_was_repartitioned_is_deleted(application: Application) -> None:
    app, address = "words", application.address
    application.topics(app, "in", "out")
    feed = Feed(address, f"{app}-in")
    feed.send(500)
    with application.instance(app, "words") as instance:
        instance.wait_for("state RUNNING")
        eventually(lambda: table(address, f"{app}-out") == feed.table(), instance)
        with Admin(address) as admin:
            changelog = admin.describe_topic(f"{app}-counts-changelog")
        assert changelog.config["cleanup.policy"].value == "compact"
        eventually(lambda: retained(address, f"{app}-words-repartition") == 0, instance)
        assert instance.end() == 0


def test_windows_hold_what_falls_into_them(application: Application) -> None:
    app, address = "windows", application.address
    application.topics(app, "in", "out")
    expected: Counter[str] = Counter()
    base = 1_700_000_000_000
    with Producer(address) as producer:
        for n in range(1_000):
            timestamp_ms, key = base + n * 137, f"k{n % 3}"
            expected[f"{key}@{timestamp_ms // 10_000 * 10_000}"] += 1
            producer.send(f"{app}-in", b"x", key=key.encode(), timestamp_ms=timestamp_ms)
    with application.instance(app, "windows") as instance:
        windows = {window: str(count) for window, count in expected.items()}
        eventually(lambda: table(address, f"{app}-out") == windows, instance)
        with Admin(address) as admin:
            changelog = admin.describe_topic(f"{app}-windows-changelog")
        assert changelog.config["cleanup.policy"].value == "compact,delete"
        assert instance.end() == 0


def test_tables_are_joined_by_key_and_by_value(application: Application) -> None:
    app, address = "tables", application.address
    application.topics(app, "left", "right", "colours", "out", "coloured")
    tables: dict[str, dict[str, str]] = {"left": {}, "right": {}, "colours": {}}
    with Producer(address) as producer:

        def put(name: str, key: str, value: str | None) -> None:
            producer.send(
                f"{app}-{name}", None if value is None else value.encode(), key=key.encode()
            )
            if value is None:
                tables[name].pop(key, None)
            else:
                tables[name][key] = value

        for n in range(300):
            put("left", f"a{n % 20}", None if n % 11 == 10 else f"c{n % 7}")
            put("right", f"a{n % 25}", None if n % 13 == 12 else f"r{n}")
        for n in range(6):
            put("colours", f"c{n}", f"colour{n}")
    left, right, colours = tables.values()
    joined = {key: f"{left[key]}+{right[key]}" for key in left if key in right}
    coloured = {key: f"{c}={colours[c]}" for key, c in left.items() if c in colours}
    with application.instance(app, "tables") as instance:
        eventually(lambda: table(address, f"{app}-out") == joined, instance)
        eventually(lambda: table(address, f"{app}-coloured") == coloured, instance)
        assert instance.end() == 0


def test_exactly_once_though_instances_are_killed_and_again_after_a_reset(
    application: Application,
) -> None:
    app, address = "once", application.address
    application.topics(app, "in", "out", partitions=4)
    conf = (*DEAD_SOON, *EXACTLY_ONCE, "num.standby.replicas=1")
    feed = Feed(address, f"{app}-in")

    def is_exact() -> bool:
        return table(address, f"{app}-out") == feed.table()

    def total() -> int:
        return sum(map(int, table(address, f"{app}-out").values()))

    with application.instance(app, "words", *conf) as one:
        with meanwhile(lambda: feed.send(10)):
            one.wait_for("state RUNNING")
            with application.instance(app, "words", *conf, number=2) as two:
                two.wait_for("state RUNNING")
                one.wait_for("state RUNNING", count=2)
                eventually(lambda: total() > 0, one, two)
                two.kill()
            # One has the dead one's tasks, by their standbys, when all is counted again.
            before = sum(feed.counts.values())
            eventually(lambda: total() > before, one)
        one.kill()
    with application.instance(app, "words", *conf) as one:
        eventually(is_exact, one)
        # In each update a word came once more than in the one before, or several times.
        seen: dict[str, int] = {}
        for word, count in read(address, f"{app}-out"):
            assert count is not None
            assert int(count) > seen.get(word, 0)
            seen[word] = int(count)
        assert one.end() == 0

    # An instance of Streams does not leave its group: it is missed after its session.
    with Admin(address) as admin:
        eventually(lambda: admin.describe_group(app).state == "Empty")
    wanted = ["--bootstrap-server", address, "--application-id", app, "--input-topics", f"{app}-in"]
    with application.tool("org.apache.kafka.tools.StreamsResetter", *wanted) as reset:
        assert reset.wait() == 0, reset.state()
    with Admin(address) as admin:
        assert sorted(admin.list_topics()) == [f"{app}-in", f"{app}-out"]
        end = sum(at.offset for at in admin.offsets(f"{app}-out", "end").values())

    # With a state directory of its own, as after the application's cleanUp(): all over again.
    with application.instance(app, "words", *conf, number=3) as three:

        def is_counted_again() -> bool:
            with Admin(address) as admin:
                now = sum(at.offset for at in admin.offsets(f"{app}-out", "end").values())
            return now > end and is_exact()

        eventually(is_counted_again, three)
        assert three.end() == 0
