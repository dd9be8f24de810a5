"""Programs of Apache Kafka (Streams, Connect, its tools) as child processes, from Maven Central.

Each is a virtual machine of its own: seconds to start, so a test starts as few as it can.
"""

import subprocess
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from ..peers import kafka_tools
from ..peers.places import Missing
from .java import START_S, java
from .releases import alone
from .tools import require
from .waiting import until

CLIENTS: Final = Path(__file__).parent / "clients"
STREAMS: Final = CLIENTS / "StreamsApp.java"
END_S: Final = 120.0
# What a JVM that lives for seconds should not spend time on.
_FLAGS: Final = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


def jars(cache: Path) -> str:
    """A class path with all of Apache Kafka; a test without one is skipped with the reason.

    Args:
        cache: folder of the lock: two workers do not fetch the same.
    """
    java()
    require("mvn", "maven")
    with alone(cache / "kafka-programs"):
        try:
            # A compiler that is started as a module does not expand libs/*.
            return ":".join(map(str, sorted((kafka_tools.home() / "libs").glob("*.jar"))))
        except Missing as exc:
            pytest.skip(str(exc))


# For what a program does of which others were started, too, or one that was killed is missed.
eventually: Final = partial(until, deadline_s=START_S)


class Program:
    """A Java program in a process of its own, and the lines that it prints, as they come."""

    def __init__(self, path: str, main: str, arguments: Sequence[str], log: Path) -> None:
        """Start it.

        Args:
            path: class path.
            main: name of its class.
            arguments: what it is told.
            log: where its standard error goes.
        """
        self.lines: list[str] = []
        self._what = " ".join([main, *arguments])
        self._log = log.open("a+")
        self._process = subprocess.Popen(
            [java(), *_FLAGS, "-cp", path, main, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                self.lines.append(line.rstrip("\n"))

    def check(self) -> None:
        """Raise when it has ended."""
        code = self._process.poll()
        assert code is None, f"ended with {code}: {self.state()}"

    def state(self) -> str:
        """What it said last, and what it complained of."""
        self._log.seek(0)
        return f"{self._what}: said {self.lines[-8:]}; {self._log.read()[-4_000:]}"

    def wait_for(self, line: str, count: int = 1) -> None:
        """Wait until it has printed this line `count` times; a machine may be slow."""
        ends = time.monotonic() + START_S
        while self.lines.count(line) < count:
            self.check()
            assert time.monotonic() < ends, f"no {line!r} within {START_S:.0f} s: {self.state()}"
            time.sleep(0.05)

    def kill(self) -> None:
        """End it without a word (SIGKILL)."""
        self._process.kill()
        self._process.wait(END_S)
        self._thread.join(END_S)

    def end(self) -> int:
        """Write a line to it, which tells it to end; its exit code."""
        assert self._process.stdin is not None
        with self._process.stdin as stdin:
            stdin.write("\n")
        code = self._process.wait(END_S)
        self._thread.join(END_S)
        return code

    def wait(self, timeout_s: float = START_S) -> int:
        """Wait until it has ended by itself; its exit code."""
        code = self._process.wait(timeout_s)
        self._thread.join(END_S)
        return code

    def terminate(self) -> int:
        """Send SIGTERM; its exit code."""
        self._process.terminate()
        return self.wait()

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it, if it has not ended."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(END_S)
        self._thread.join(END_S)
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._log.close()
