"""Members, transactions, TLS and SCRAM: every Python client of the matrix, newest and old.

The steps are in tests/support/clients/together.py.  They run with `make matrix`, as do the old
releases of everything else; what came of it is the table in docs/compatibility.md.
"""

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from ..support.clients import aiokafka_together, confluent_kafka_together, kafka_python_together
from ..support.clients.steps import Steps
from ..support.clients.together import AUTHORITY, PASSWORD, SECURED, USER
from ..support.java import RELEASES as JAVA_RELEASES
from ..support.java import class_path, java
from ..support.releases import Release, interpreter
from ..support.scenario import ROOT, Report, play
from ..support.tools import require
from . import test_aiokafka, test_confluent_kafka_releases, test_kafka_python

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Kind:
    """One library: its steps, the module that runs them, its releases."""

    name: str
    steps: Steps
    module: str
    releases: list[Release]


KINDS = [
    Kind(
        "confluent-kafka",
        confluent_kafka_together.STEPS,
        confluent_kafka_together.__name__,
        test_confluent_kafka_releases.RELEASES,
    ),
    Kind(
        "kafka-python",
        kafka_python_together.STEPS,
        kafka_python_together.__name__,
        test_kafka_python.RELEASES,
    ),
    Kind(
        "aiokafka",
        aiokafka_together.STEPS,
        aiokafka_together.__name__,
        test_aiokafka.RELEASES,
    ),
]
CASES = [
    pytest.param(kind, release, step.name, id=f"{kind.name}-{release.version}-{step.name}")
    for kind in KINDS
    for release in kind.releases
    for step in kind.steps.of_release(release.version)
]


@pytest.mark.parametrize(("kind", "release", "step"), CASES)
def test_together(
    kind: Kind, release: Release, step: str, secured: str, release_cache: Path
) -> None:
    prefix = f"{kind.name}-{release.version}-{step}"
    command = [str(interpreter(release, release_cache)), "-m", kind.module, secured, prefix, "-"]
    play([*command, step], prefix).check(step)


JAVA_SOURCE = ROOT / "tests/support/clients/KafkaClientsTogether.java"
JAVA_STEPS = re.findall(r'steps\.put\("(\w+)"', JAVA_SOURCE.read_text())


@pytest.fixture(scope="module")
def java_reports(secured: str, release_cache: Path) -> Callable[[str], Report]:
    """What a release of kafka-clients did; it runs all its steps at the first question."""

    @cache
    def report(release: str) -> Report:
        path = class_path(release, release_cache)
        command = [java(), "-XX:TieredStopAtLevel=1", f"-Dsource={JAVA_SOURCE}"]
        prefix = f"java-{release}"
        return play([*command, "-cp", path, str(JAVA_SOURCE), secured, prefix, "-"], prefix)

    return report


@pytest.mark.parametrize("step", JAVA_STEPS)
@pytest.mark.parametrize("release", JAVA_RELEASES)
def test_java_together(release: str, step: str, java_reports: Callable[[str], Report]) -> None:
    java_reports(release).check(step)


def kcat(*words: str, stdin: str = "") -> list[str]:
    run = subprocess.run(
        [require("kcat"), *words], input=stdin, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_kcat_together_secured(secured: str) -> None:
    secure = ["-b", os.environ[SECURED], "-X", "security.protocol=SASL_SSL"]
    secure += [
        "-X",
        f"ssl.ca.location={os.environ[AUTHORITY]}",
        "-X",
        "sasl.mechanisms=SCRAM-SHA-256",
    ]
    secure += ["-X", f"sasl.username={USER}", "-X", f"sasl.password={PASSWORD}"]
    lines = [f"line {n}" for n in range(100)]
    kcat(*secure, "-P", "-t", "kcat-secured", "-p", "0", stdin="\n".join(lines))
    seen = kcat(*secure, "-C", "-t", "kcat-secured", "-p", "0", "-o", "beginning", "-e", "-q")
    assert seen == lines
