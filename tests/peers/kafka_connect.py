"""Kafka Connect's own integration tests and those of MirrorMaker, out of the jars with their tests.

Workers with connectors of the tests: offsets and configurations kept in topics, workers that
come and go, sources in transactions, one cluster copied into another.  They start a cluster
inside of their process: a class of ours (connect_harness/KafkaClusterTestKit.java), one below that
of Connect, starts a daemon instead.  Nothing else is changed.

3.9 is the last release whose tests of MirrorMaker are published.  A virtual machine per class.
"""

import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from . import junit
from .daemon_door import Door, door
from .maven import Artifact
from .places import Missing, unfinished
from .verdicts import Outcome, allow_list

VERSION: Final = "3.9.1"
KAFKA: Final = "org.apache.kafka"
MODULES: Final = ("connect-runtime", "connect-mirror")
PACKAGES: Final = (
    "org/apache/kafka/connect/integration/",
    "org/apache/kafka/connect/mirror/integration/",
)
ARTIFACTS: Final = (
    *(Artifact(KAFKA, name, VERSION) for name in MODULES),
    *(Artifact(KAFKA, name, VERSION, is_tests=True) for name in MODULES),
    Artifact(KAFKA, "connect-file", VERSION),
    Artifact(KAFKA, "kafka-clients", VERSION, is_tests=True),
    Artifact(KAFKA, "kafka-metadata", VERSION, is_tests=True),
    Artifact(KAFKA, "kafka-server-common", VERSION, is_tests=True),
    Artifact(KAFKA, "kafka_2.13", VERSION),
    Artifact(KAFKA, "kafka_2.13", VERSION, is_tests=True),
    # The versions that Kafka's own build has.
    Artifact("org.junit.platform", "junit-platform-console-standalone", "1.10.2"),
    Artifact("org.mockito", "mockito-junit-jupiter", "5.10.0"),
    Artifact("org.hamcrest", "hamcrest", "2.2"),
    Artifact("org.apache.httpcomponents", "httpclient", "4.5.14"),
    Artifact("org.bouncycastle", "bcpkix-jdk18on", "1.78.1"),
    Artifact("org.slf4j", "slf4j-reload4j", "1.7.36"),
)
HERE: Final = Path(__file__).parent
SOURCES: Final = (
    *(HERE / "connect_harness").iterdir(),
    *(HERE / "java_harness").iterdir(),
    *(HERE / "kafka_harness" / name for name in ("NewTopic.java", "ReplicaLimit.java")),
)
LOGGING: Final = HERE / "connect.log4j.properties"
# Not of a broker: what counts and waits in tests, and what is passed on between workers.
OTHERS: Final = ("StartAndStop", "RestForwarding")
# Those of all mirrors over again: by TLS, in transactions, with another client, with other names.
REPEATED: Final = (
    "IdentityReplicationIntegrationTest",
    "MirrorConnectorsIntegrationSSLTest",
    "MirrorConnectorsIntegrationTransactionsTest",
    "MirrorConnectorsWithCustomForwardingAdminIntegrationTest",
)
FIRST: Final = ("Mirror", "ExactlyOnce", "OffsetsApi")
CLASS_TIMEOUT_S: Final = 3_600


def play(
    folder: Path,
    words: list[str],
    at_once: int,
    told: Callable[[str], None],
    *,
    is_quick: bool = True,
) -> dict[str, Outcome]:
    """Run the suite, or the classes whose names hold one of `words`.

    Args:
        folder: gets a folder for each class, with its output, and the logs of the daemons.
        words: parts of names; none for all.
        at_once: so many classes beside each other.
        told: gets a line about each class.
        is_quick: one class of mirrors stands for all, unless others are asked for.

    Returns:
        test -> how it ended, by its class and method.
    """
    jars = junit.jars("kafka-connect", ARTIFACTS)
    tests = [jar for jar in jars if jar.name in {f"{name}-{VERSION}-test.jar" for name in MODULES}]
    # Some tests make plugins of sources that they look for in a folder.
    folders = [_unpacked(jar) for jar in tests]
    path = junit.compiled(sorted(SOURCES), [*folders, *(jar for jar in jars if jar not in tests)])
    chosen = [
        one for one in classes(tests) if not words or any(word in _short(one) for word in words)
    ]
    if is_quick and not words:
        chosen = [one for one in chosen if _short(one) not in REPEATED]
    chosen.sort(key=lambda one: not _short(one).startswith(FIRST))
    if not chosen:
        raise Missing("no class of that name")
    logs = folder / "daemons"
    logs.mkdir()
    with door(logs) as daemons, ThreadPoolExecutor(at_once) as pool:

        def one(name: str) -> dict[str, Outcome]:
            found = _play(name, path, folder, daemons)
            passed = sum(how is Outcome.PASSED for how in found.values())
            told(f"{_short(name):<65} {passed} of {len(found)} passed")
            return found

        done = list(pool.map(one, chosen))
    for test, fault in daemons.faults.items():
        told(f"the daemon of {test}: {fault}")
    return {test: how for found in done for test, how in found.items()}


def classes(tests: Iterable[Path]) -> list[str]:
    """The classes of these jars with integration tests, by their whole names.

    Those that start no cluster are left out.
    """
    found = set()
    for jar in tests:
        with zipfile.ZipFile(jar) as content:
            found |= {
                name.removesuffix(".class").replace("/", ".")
                for name in content.namelist()
                if name.startswith(PACKAGES) and "$" not in name and name.endswith("Test.class")
            }
    return sorted(
        one for one in found if "BaseTest" not in one and not _short(one).startswith(OTHERS)
    )


def _unpacked(jar: Path) -> Path:
    """The folder with what is in a jar; beside the folder of jars, and kept as they are."""
    place = jar.parent.parent / jar.stem
    if not place.exists():
        with unfinished(place) as work, zipfile.ZipFile(jar) as content:
            content.extractall(work)
    return place


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _play(name: str, path: str, folder: Path, daemons: Door) -> dict[str, Outcome]:
    short = _short(name)
    machine = junit.Machine(
        path,
        properties={
            "segbroker.door": str(daemons.port),
            "segbroker.test": short,
            "log4j.configuration": LOGGING.as_uri(),
        },
    )
    expected = [test for test in allow_list("kafka-connect") if test.startswith(f"{short}.")]
    return junit.play(
        machine, [f"--select-class={name}"], expected, folder / short, CLASS_TIMEOUT_S
    )
