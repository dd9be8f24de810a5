"""Programs of Apache Kafka (Streams, Connect, its tools) as child processes, from Maven Central.

Each is a virtual machine of its own: seconds to start, so a test starts as few as it can.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from ..peers import kafka_tools
from ..peers.places import Missing
from .java import java
from .program import Program
from .releases import alone
from .tools import require

CLIENTS: Final = Path(__file__).parent / "clients"
STREAMS: Final = CLIENTS / "StreamsApp.java"
# What a JVM that lives for seconds should not spend time on.
_FLAGS: Final = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


def jars(cache: Path, version: str = kafka_tools.VERSION) -> str:
    """A class path with all of Apache Kafka; a test without one is skipped with the reason.

    Args:
        cache: folder of the lock: two workers do not fetch the same.
    """
    java()
    require("mvn", "maven")
    with alone(cache / "kafka-programs"):
        try:
            # A compiler that is started as a module does not expand libs/*.
            return ":".join(map(str, sorted((kafka_tools.home(version) / "libs").glob("*.jar"))))
        except Missing as exc:
            pytest.skip(str(exc))


def program(
    path: str, main: str, arguments: Sequence[str], log: Path, flags: Sequence[str] = ()
) -> Program:
    """Start a Java program.

    Args:
        path: class path.
        main: name of its class.
        arguments: what it is told.
        log: where its standard error goes.
        flags: of its virtual machine, beside those of every program here.
    """
    command = [java(), *_FLAGS, *flags, "-cp", path, main, *arguments]
    return Program(command, log, what=" ".join([main, *arguments]))
