"""A Spark session in which `format("segbroker")` works, on a machine that has only Python.

`session()` finds or brings a Java, makes the workers run this Python, starts Spark on all cores
of this machine (or where `spark.master` says) and registers the source.  Everything can be set
otherwise; who builds a session of his own calls `ensure_java()` before it and `register(spark)`
after it.

Where the jar was built (`make jar`), it is among `spark.jars`, and what it can read it reads: see
segbroker.spark.jvm.  A session that runs already stays as it is.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from .data_source import SegbrokerDataSource
from .java import ensure_java

DEFAULTS = {
    "spark.master": "local[*]",
    "spark.app.name": "segbroker",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# For a session on this machine alone; a cluster has addresses of its own.
LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


# The logger of Spark's list of data sources.
REGISTRY = "org.apache.spark.sql.execution.datasources.DataSourceManager"

# Beside the modules themselves, also where those are links to them.
JAR = Path(__file__).resolve().parent / "jars" / "segbroker-spark.jar"


def session(conf: Mapping[str, str] | None = None) -> SparkSession:
    """The session, new or the one that runs already, with the source registered.

    conf: Spark's own settings; they win over those of spark-submit, and those over DEFAULTS here.
    Raises RuntimeError where there is no Java to be had.
    """
    ensure_java()
    told = {**_submitted(), **(conf or {})}
    # A session in Python looks at the variable only; the setting wins, as for spark-submit.
    python = told.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = python or sys.executable
    defaults = DEFAULTS
    if told.get("spark.master", DEFAULTS["spark.master"]).startswith("local"):
        defaults = {**LOCAL_DEFAULTS, **DEFAULTS}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {name: value for name, value in defaults.items() if name not in told}
    settings |= conf or {}
    if JAR.is_file():
        given = told.get("spark.jars", "").split(",")
        settings["spark.jars"] = ",".join(dict.fromkeys([*filter(None, given), str(JAR)]))
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _submitted() -> dict[str, str]:
    """What spark-submit was told, which has started the JVM already; empty without it."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def register(spark: SparkSession) -> None:
    """Make `format("segbroker")` known to a session without waiting for Spark's own look-up."""
    with _quiet(spark, REGISTRY):
        spark.dataSource.register(SegbrokerDataSource)


@contextmanager
def _quiet(spark: SparkSession, logger: str) -> Iterator[None]:
    """Without the warnings of one logger of the JVM, where the session has one.

    Spark warns that a source which it found by itself was replaced: here by the same one.
    """
    jvm = getattr(spark, "_jvm", None)  # a session of Spark Connect has none
    if jvm is None:
        yield
        return
    logging = jvm.org.apache.logging.log4j
    before = logging.LogManager.getLogger(logger).getLevel()
    logging.core.config.Configurator.setLevel(logger, logging.Level.ERROR)
    try:
        yield
    finally:
        logging.core.config.Configurator.setLevel(logger, before)
