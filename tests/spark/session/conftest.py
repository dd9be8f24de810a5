"""One Spark for the whole folder: here are the files of tests that take it, by its fixtures.

The tests of this folder go to one worker (tests/conftest.py), so that there is one virtual machine
of it.  A test elsewhere cannot have these fixtures; those beside the folder read and write as
Spark's worker processes do, or start a program.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ..bare_machine import path_without_java
from ..conftest import BRIEF_JAVA
from ..jar import JarReader
from ..warm_python import warm_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
