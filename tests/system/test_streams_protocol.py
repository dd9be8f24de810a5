"""Applications of Kafka Streams with `group.protocol=streams` (KIP-1071), unmodified.

The broker has their topology, makes their internal topics and says who does which task.  Results
are exact though an instance and the broker are killed, and nobody joins again for that.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from segbroker.client import Admin

from ..peers import kafka_tools
from ..support.daemon import Daemon, running
from ..support.java import compiled
from ..support.kafka_program import STREAMS, jars
from ..support.program import eventually
from ..support.waiting import meanwhile
from .kafka_tool_runs import TOOLS
from .test_kafka_streams import EXACTLY_ONCE, Application, Feed, read, retained, table

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

PROTOCOL: Final = "group.protocol=streams"
# Dead members are missed early, and whoever starts has its tasks soon.
SOON: Final = (
    *("--group-streams-session-timeout-ms", "6000"),
    *("--group-streams-heartbeat-interval-ms", "500"),
    *("--group-streams-initial-rebalance-delay-ms", "500"),
)
GROUPS: Final = TOOLS + "streams.StreamsGroupCommand"


class StreamsApplication(Application):
    """Of the release in which the protocol is finished."""

    def __init__(self, broker: Daemon, cache: Path, folder: Path) -> None:
        self.address = broker.address
        self.broker = broker
        self._path = compiled([STREAMS], jars(cache, kafka_tools.SHARES), cache)
        self._folder = folder

    def crash(self) -> None:
        """The broker is killed and started again."""
        self.broker.stop(signal.SIGKILL)
        self.broker.again()

    def joined(self) -> int:
        """How often somebody has joined a group."""
        return len(self.broker.events("group_member_joined"))

    def standbys(self, app: str, count: int) -> None:
        """Have copies of states be kept."""
        with Admin(self.address) as admin:
            admin.alter_group_config(app, {"streams.num.standby.replicas": str(count)})


@pytest.fixture
def application(tmp_path: Path, release_cache: Path) -> Iterator[StreamsApplication]:
    with running(tmp_path / "data", *SOON) as broker:
        yield StreamsApplication(broker, release_cache, tmp_path)


def test_the_broker_makes_the_internal_topics_and_words_are_counted(
    application: StreamsApplication,
) -> None:
    app, address = "words", application.address
    application.topics(app, "in", "out")
    feed = Feed(address, f"{app}-in")
    feed.send(500)
    with application.instance(app, "words", PROTOCOL) as instance:
        instance.wait_for("state RUNNING")
        eventually(lambda: table(address, f"{app}-out") == feed.table(), instance)
        with Admin(address) as admin:
            changelog = admin.describe_topic(f"{app}-counts-changelog")
            group = admin.describe_group(app)
        assert (group.group_type, group.state) == ("streams", "Stable")
        (member,) = group.members
        assert [tuple(tp) for tp in member.partitions] == [
            (topic, n) for topic in (f"{app}-in", f"{app}-words-repartition") for n in range(2)
        ]
        assert changelog.config["cleanup.policy"].value == "compact"
        eventually(lambda: retained(address, f"{app}-words-repartition") == 0, instance)
        assert instance.end() == 0


def test_a_running_application_does_not_notice_that_its_broker_was_killed(
    application: StreamsApplication,
) -> None:
    app, address = "kept", application.address
    application.topics(app, "in", "out", partitions=4)
    feed = Feed(address, f"{app}-in")
    with (
        application.instance(app, "words", PROTOCOL, "num.stream.threads=2") as one,
        application.instance(app, "words", PROTOCOL, number=2) as two,
    ):
        one.wait_for("state RUNNING")
        two.wait_for("state RUNNING")
        feed.send(100)
        eventually(lambda: table(address, f"{app}-out") == feed.table(), one, two)
        joined = application.joined()
        for _ in range(2):
            application.crash()
            feed.send(100)
            eventually(lambda: table(address, f"{app}-out") == feed.table(), one, two)
        assert application.joined() == joined, "nobody has joined again"
        assert one.end() == two.end() == 0


def test_exactly_once_though_an_instance_and_the_broker_are_killed(
    application: StreamsApplication,
) -> None:
    app, address = "once", application.address
    application.topics(app, "in", "out", partitions=4)
    application.standbys(app, 1)
    conf = (PROTOCOL, *EXACTLY_ONCE)
    feed = Feed(address, f"{app}-in")

    def total() -> int:
        return sum(map(int, table(address, f"{app}-out").values()))

    with application.instance(app, "words", *conf) as one:
        with meanwhile(lambda: feed.send(10)):
            one.wait_for("state RUNNING")
            with application.instance(app, "words", *conf, number=2) as two:
                two.wait_for("state RUNNING")
                eventually(lambda: total() > 0, one, two)
                two.kill()
            # One has the dead one's tasks, by their standbys, when all is counted again.
            before = sum(feed.counts.values())
            eventually(lambda: total() > before, one)
        application.crash()
        feed.send(100)
        eventually(lambda: table(address, f"{app}-out") == feed.table(), one)
        # In each update a word came once more than in the one before, or several times.
        seen: dict[str, int] = {}
        for word, count in read(address, f"{app}-out"):
            assert count is not None
            assert int(count) > seen.get(word, 0)
            seen[word] = int(count)
        assert one.end() == 0


def test_kafkas_tool_lists_describes_resets_and_deletes(application: StreamsApplication) -> None:
    app, address = "told", application.address
    application.topics(app, "in", "out")
    feed = Feed(address, f"{app}-in")
    feed.send(50)

    def tool(*arguments: str) -> list[str]:
        with application.tool(GROUPS, "--bootstrap-server", address, *arguments) as program:
            assert program.wait() == 0, program.state()
            return list(program.lines)

    with application.instance(app, "words", PROTOCOL) as instance:
        eventually(lambda: table(address, f"{app}-out") == feed.table(), instance)
        assert app in tool("--list")
        assert any("Stable" in line for line in tool("--list", "--state"))
        assert any(
            "StreamThread-1" in line for line in tool("--describe", "--group", app, "--members")
        )
        assert any(f"{app}-in" in line for line in tool("--describe", "--group", app))
        assert any("Stable" in line for line in tool("--describe", "--group", app, "--state"))
        assert instance.end() == 0
    reset = ("--reset-offsets", "--group", app, "--to-earliest", "--execute", "--all-input-topics")
    assert any(f"{app}-in" in line for line in tool(*reset))
    assert any("successful" in line for line in tool("--delete", "--group", app))
    assert app not in tool("--list")
