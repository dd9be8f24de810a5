"""One broker for the whole folder; every test takes topics of its own.

With SEGBROKER_TEST_BOOTSTRAP=HOST:PORT the tests read that broker instead: the source is only
protocol, so they must pass against Apache Kafka as well.

Tests that have the one JVM of the folder are in session/; they carry the mark `spark`, as those do
that start one of their own.  The others use the source's readers directly, as Spark's worker
processes do.  Without pyspark none of them can be imported; `make test` installs it.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..support.daemon import Daemon, running
from .topics import Topics

if TYPE_CHECKING:
    pass

# A short life: nothing is optimised, the collector has no threads of its own, and the classes of
# Spark, which no test is about, are taken as they are (a fifth of the processor time of a start).
BRIEF_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)

collect_ignore_glob = [] if find_spec("pyspark") else ["test_*.py", "session"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever of these tests comes first starts the JVM, and a busy machine takes its time."""
    for item in items:
        is_in_jvm = {"spark", "jar_reader"} & set(getattr(item, "fixturenames", ()))
        if is_in_jvm or item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root: Path = tmp_path_factory.mktemp("spark-broker")
    with running(root / "data") as daemon:
        yield daemon


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    other = os.environ.get("SEGBROKER_TEST_BOOTSTRAP")
    if other is not None:
        return other
    daemon: Daemon = request.getfixturevalue("daemon")
    return daemon.address


@pytest.fixture
def segbroker_only() -> None:
    """For what no other broker does: a batch of transactions as one decision."""
    if "SEGBROKER_TEST_BOOTSTRAP" in os.environ:
        pytest.skip("the broker of SEGBROKER_TEST_BOOTSTRAP may not be a segbroker")


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Iterator[Topics]:
    topics = Topics(bootstrap)
    yield topics
    topics.close()


@pytest.fixture(scope="session", autouse=True)
def no_links_left() -> Iterator[None]:
    """A worker process keeps connections until it ends; here they end with the tests."""
    yield
    from segbroker.spark.fetching import LINKS

    while LINKS:
        LINKS.popitem()[1].close()


@pytest.fixture
def name() -> Callable[[], str]:
    """A maker of topic names that no other test or run has."""
    return lambda: f"spark-{secrets.token_hex(6)}"


@pytest.fixture
def brief_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """For programs with a virtual machine of their own, which ends soon: it compiles for a short
    life and has one thread to collect with, as those of the tests have by their settings."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", BRIEF_JAVA)


@pytest.fixture
def topic(topics: Topics, name: Callable[[], str]) -> str:
    """A topic of one partition."""
    found = name()
    topics.create(found)
    return found


@pytest.fixture
def target(topics: Topics, name: Callable[[], str]) -> str:
    """Another one, into which something goes."""
    found = name()
    topics.create(found)
    return found
