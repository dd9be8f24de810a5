"""One broker and one Spark for the whole folder; every test takes topics of its own.

With SEGBROKER_TEST_BOOTSTRAP=HOST:PORT the tests read that broker instead: the source is only
protocol, so they must pass against Apache Kafka as well.

Tests that start the JVM carry the mark `spark`; the others use the source's readers directly, as
Spark's worker processes do.  Without pyspark none of them can be imported; `make test` installs it.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..support.daemon import Daemon, running
from .bare_machine import path_without_java
from .jar import JarReader
from .topics import Topics
from .warm_python import warm_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A short life: nothing is optimised, and the classes of Spark, which no test is about, are taken as
# they are (a fifth of the processor time of a start).
BRIEF_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)

collect_ignore_glob = [] if find_spec("pyspark") else ["test_*.py"]


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
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{BRIEF_JAVA} -XX:+UseSerialGC")


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


@pytest.fixture(scope="session")
def jar_reader(spark: "SparkSession") -> JarReader:
    """The jar's reader in the session's JVM; skipped where no jar was built."""
    from segbroker.spark.session import JAR

    if not JAR.is_file():
        pytest.skip("there is no jar: make jar builds it where there is a javac")
    return JarReader(spark)


@pytest.fixture(params=["python", pytest.param("jvm", marks=pytest.mark.spark)])
def reader(request: pytest.FixtureRequest) -> JarReader | None:
    """Both readers in turn: the jar's, or None for the one in Python."""
    found: JarReader | None = None
    if request.param == "jvm":
        found = request.getfixturevalue("jar_reader")
    return found


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session as a user builds it, on a machine without Java; nobody registers the source.

    Its workers are forks: a Python that starts anew for every query may take longer than the ten
    seconds that Spark gives it, when other tests have the processors.
    """
    from pyspark.sql import SparkSession

    from segbroker.spark import ensure_java
    from segbroker.spark.session import JAR

    root = tmp_path_factory.mktemp("spark")
    quiet = root / "log4j2.properties"
    quiet.write_text("rootLogger.level = off\n")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        # A query that fails where it must not says why, down to its cause.
        "spark.sql.pyspark.jvmStacktrace.enabled": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet} {BRIEF_JAVA}",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.pollingDelay": "10ms",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        "spark.local.dir": str(root / "local"),
    }
    if JAR.is_file():
        settings["spark.jars"] = str(JAR)
    builder = SparkSession.builder.master("local[2]").appName("segbroker-tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with warm_python(root) as python, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(python))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PATH", str(path_without_java(root / "bin")))
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        patch.delenv("JAVA_HOME", raising=False)
        ensure_java()
        spark = builder.getOrCreate()
        # The JVM keeps the environment it was started in; other tests get theirs back.
        patch.undo()
        yield spark
        spark.stop()
