"""Suites in Java: their jars from Maven Central, a run of JUnit's console, how each test ended.

Apache Kafka publishes its tests as jars beside its own.  They start brokers inside of their own
process: classes of ours, compiled against theirs and before them in the class path, start daemons
instead.  Nothing else of theirs is changed.

A virtual machine plays some classes and writes a report when it ends.  Whoever is expected in it
and is not there has failed, or was late if the machine had to be ended.
"""

import os
import signal
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from xxhash import xxh3_64_hexdigest

from .maven import Artifact, copy_jars, pom
from .places import cache, need, run, unfinished
from .verdicts import Outcome

CONSOLE: Final = "org.junit.platform.console.ConsoleLauncher"
# Two of them run beside each other, and their daemons.
MACHINE: Final = ("-Xmx700m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
REPORT: Final = "TEST-*.xml"


@dataclass(frozen=True)
class Machine:
    """What the tests are run with.

    Attributes:
        class_path: jars and folders; who comes first wins.
        settings: of JUnit, by its names.
        properties: of the virtual machine.
    """

    class_path: str
    settings: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


def jars(name: str, artifacts: Iterable[Artifact]) -> list[Path]:
    """Jars and all that they need, fetched once and kept.

    Args:
        name: of the folder, which is further named after the artifacts.
        artifacts: with versions: what is fetched again is the same.

    Raises:
        Missing: without java, mvn or the registry.
    """
    wanted = pom(artifacts)
    place = cache() / f"{name}-{xxh3_64_hexdigest(wanted.encode())}"
    if not place.exists():
        need("java")
        with unfinished(place) as work:
            copy_jars(wanted, work)
    return sorted((place / "libs").glob("*.jar"))


def compiled(sources: Sequence[Path], class_path: Sequence[Path]) -> str:
    """The class path with the classes of these sources before it; compiled once and kept.

    Raises:
        Missing: without a compiler, or when it finds a mistake.
    """
    need("javac")
    path = ":".join(map(str, class_path))
    content = b"".join(source.read_bytes() for source in sources) + path.encode()
    place = cache() / f"{sources[0].stem}-{xxh3_64_hexdigest(content)}"
    if not place.exists():
        with unfinished(place) as work:
            run(["javac", "-nowarn", "-cp", path, "-d", str(work), *map(str, sources)], work)
    return f"{place}:{path}"


def play(
    machine: Machine,
    selection: Sequence[str],
    expected: Iterable[str],
    folder: Path,
    limit_s: float,
) -> dict[str, Outcome]:
    """Run some tests in one virtual machine.

    Args:
        machine: what they are run with.
        selection: what JUnit's console is told to play: `--select-class=NAME` and the like.
        expected: tests that have to say how they ended, by the names of `ends`.
        folder: gets the output and the report.
        limit_s: the machine is ended after so many seconds, with all that it has started.

    Returns:
        test -> how it ended.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = ["java", *MACHINE, *(f"-D{key}={it}" for key, it in machine.properties.items())]
    command += [f"-Djava.io.tmpdir={folder}", "-cp", machine.class_path, CONSOLE, "execute"]
    command += [f"--config={key}={it}" for key, it in machine.settings.items()]
    command += ["--disable-banner", "--disable-ansi-colors", "--details=testfeed"]
    command += [f"--reports-dir={folder}", *selection]
    is_late = False
    with (folder / "output").open("w") as sink:
        process = subprocess.Popen(
            command, cwd=folder, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            is_late = True
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    found: dict[str, Outcome] = {}
    for report in folder.glob(REPORT):
        found |= ends(report.read_text())
    silent = Outcome.LATE if is_late else Outcome.FAILED
    return {**dict.fromkeys(expected, silent), **found}


def ends(report: str) -> dict[str, Outcome]:
    """How each test of a report ended, by `Class.method(parameters)[repetition]`.

    The class is without its package.
    """
    said: dict[str, Outcome] = {}
    for test in ET.fromstring(report).iter("testcase"):
        name = f"{test.attrib['classname'].rpartition('.')[2]}.{test.attrib['name']}"
        if test.find("failure") is not None or test.find("error") is not None:
            said[name] = Outcome.FAILED
        elif test.find("skipped") is not None:
            said[name] = Outcome.SKIPPED
        else:
            said[name] = Outcome.PASSED
    return said
