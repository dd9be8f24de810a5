"""Members, transactions, TLS and SCRAM: the clients in Python and Java, newest and old releases.

The steps are in tests/support/clients/together.py.  A release does all of its steps in one process,
and several releases do theirs at a time: for the most part they wait for each other's sessions.
The newest and the oldest Python releases and the newest kafka-clients run always, those between
with `make matrix`; what came of it is the table in docs/compatibility.md.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ..support.clients import aiokafka_together, confluent_kafka_together, kafka_python_together
from ..support.clients.steps import Steps
from ..support.clients.together import AUTHORITY, PASSWORD, SECURED, USER
from ..support.java import NEWEST, program
from ..support.java import RELEASES as JAVA_RELEASES
from ..support.releases import Release, interpreter
from ..support.scenario import ROOT, Report, play
from ..support.scenario import cases as scenario_cases
from ..support.tools import require
from . import test_aiokafka, test_confluent_kafka_releases, test_kafka_python


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
BESIDE_EACH_OTHER = 3


@dataclass(frozen=True)
class Program:
    """All steps of one release of one client."""

    client: str
    release: str
    command: Callable[[Path], list[str]] = field(compare=False)

    def play(self, secured: str, folder: Path) -> Report:
        prefix = f"{self.client}-{self.release}"
        return play([*self.command(folder), secured, prefix, "-"], prefix)


def python(kind: Kind, release: Release) -> Program:
    return Program(
        kind.name,
        release.version,
        lambda folder: [str(interpreter(release, folder)), "-m", kind.module],
    )


JAVA_SOURCE = ROOT / "tests/support/clients/KafkaClientsTogether.java"
JAVA_STEPS = re.findall(r'steps\.put\("(\w+)"', JAVA_SOURCE.read_text())


def in_java(release: str) -> Program:
    return Program("java", release, lambda folder: program(JAVA_SOURCE.stem, folder, release))


@pytest.fixture(scope="module")
def reports(
    request: pytest.FixtureRequest, secured: str, release_cache: Path
) -> Iterator[dict[Program, Future[Report]]]:
    """What came of the programs of which this run has tests."""
    found = (getattr(item, "callspec", None) for item in request.session.items)
    programs = (call.params.get("of") for call in found if call is not None)
    wanted = {one: None for one in programs if isinstance(one, Program)}
    with ThreadPoolExecutor(BESIDE_EACH_OTHER) as pool:
        yield {one: pool.submit(one.play, secured, release_cache) for one in wanted}


def cases() -> Iterator[Any]:
    for kind in KINDS:
        for case in scenario_cases(kind.steps, kind.releases):
            release, step = case.values
            assert isinstance(release, Release)
            name = f"{kind.name}-{release.version}-{step}"
            yield pytest.param(python(kind, release), step, id=name, marks=case.marks)


@pytest.mark.parametrize(("of", "step"), list(cases()))
def test_together(of: Program, step: str, reports: dict[Program, Future[Report]]) -> None:
    reports[of].result().check(step)


@pytest.mark.parametrize("step", JAVA_STEPS)
@pytest.mark.parametrize(
    "of",
    [
        pytest.param(in_java(one), id=one, marks=[] if one == NEWEST else pytest.mark.matrix)
        for one in JAVA_RELEASES
    ],
)
def test_java_together(of: Program, step: str, reports: dict[Program, Future[Report]]) -> None:
    reports[of].result().check(step)


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
