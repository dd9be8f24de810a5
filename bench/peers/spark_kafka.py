"""Spark's own Kafka connector: its jars, from Maven Central, or `Missing` with the reason.

    spark-sql-kafka-0-10             the connector: of the Spark that is installed, or the last
                                     that Central gives
    spark-token-provider-kafka-0-10  delegation tokens, of which it takes four small classes; where
                                     Central does not give it, stand-ins (spark_connector/*.java)
                                     that know of no tokens are compiled instead
    kafka-clients, commons-pool2     what both need

The stand-ins are for measuring and comparing without tokens, and no part of segbroker.
"""

import shutil
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pyspark

from .programs import INSTALL_TIMEOUT_S, Missing, maven

GROUP = "org.apache.spark"
CONNECTOR = "spark-sql-kafka-0-10_2.13"
TOKENS = "spark-token-provider-kafka-0-10_2.13"
# Of the same interfaces as the Spark that is wanted here.
OTHER_VERSION = "4.2.0"
NEEDED = (
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
SOURCES = Path(__file__).parent / "spark_connector"


@cache
def spark_kafka_jars() -> Path:
    """The folder with the connector's jars and what they need."""
    found = version("pyspark")
    try:
        return maven(f"spark-kafka-{found}", (GROUP, CONNECTOR, found))
    except Missing as whole:
        for each in dict.fromkeys((found, OTHER_VERSION)):
            try:
                artifacts = ((GROUP, CONNECTOR, each), *NEEDED)
                folder = maven(f"spark-kafka-{each}-alone", *artifacts, transitive=False)
            except Missing:
                continue
            _stand_in(folder)
            return folder
        raise Missing(str(whole)) from None


def _stand_in(folder: Path) -> None:
    """Compile the stand-ins for the token provider into a jar of the folder."""
    target = folder / "stand-in.jar"
    if target.exists():
        return
    if shutil.which("javac") is None or shutil.which("jar") is None:
        raise Missing(f"{TOKENS} is not to be had, and no javac for what stands in for it")
    classes = folder.parent / "stand-in"
    jars = Path(pyspark.__file__).parent / "jars"
    sources = sorted(map(str, SOURCES.glob("*.java")))
    compile_them = ["javac", "--release", "17", "-cp", f"{jars}/*", "-d", str(classes), *sources]
    pack = ["jar", "--create", "--file", str(target), "-C", str(classes), "."]
    for command in (compile_them, pack):
        run = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
        if run.returncode:
            raise Missing(f"{command[0]} failed: {run.stderr.strip()[:500]}")
