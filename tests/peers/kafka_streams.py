"""Kafka Streams' own integration tests, out of the jar with its tests.

They count, join, window, restore and query, with and without transactions, while instances come
and go.  They start a cluster of Kafka inside of their process: a class of ours of the same name
starts a daemon instead (streams_harness/EmbeddedKafkaCluster.java).  Nothing else is changed.

Kafka moved them to a module that is not published with 4.0: 3.9 is the last release that has them.

A virtual machine per class; it has the class's daemons.  Most of the time the tests wait: for a
member that was closed without a word, for 45 s, as with Kafka.
"""

import re
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from . import junit
from .daemon_door import Door, door
from .maven import Artifact
from .places import Missing
from .verdicts import Outcome, allow_list

VERSION: Final = "3.9.1"
KAFKA: Final = "org.apache.kafka"
PACKAGE: Final = "org/apache/kafka/streams/integration/"
CLUSTER: Final = b"EmbeddedKafkaCluster"
ARTIFACTS: Final = (
    Artifact(KAFKA, "kafka-streams", VERSION),
    Artifact(KAFKA, "kafka-streams", VERSION, is_tests=True),
    Artifact(KAFKA, "kafka-streams-test-utils", VERSION),
    Artifact(KAFKA, "kafka-clients", VERSION, is_tests=True),
    Artifact(KAFKA, "kafka-server-common", VERSION, is_tests=True),
    Artifact(KAFKA, "kafka_2.13", VERSION),
    Artifact(KAFKA, "kafka_2.13", VERSION, is_tests=True),
    Artifact(KAFKA, "kafka-tools", VERSION),
    # The versions that Kafka's own build has.
    Artifact("org.junit.platform", "junit-platform-console-standalone", "1.10.2"),
    Artifact("org.mockito", "mockito-junit-jupiter", "5.10.0"),
    Artifact("org.hamcrest", "hamcrest", "2.2"),
    Artifact("org.bouncycastle", "bcpkix-jdk18on", "1.78.1"),
    Artifact("org.slf4j", "slf4j-reload4j", "1.7.36"),
)
HARNESS: Final = Path(__file__).parent / "streams_harness"
SHARED: Final = Path(__file__).parent / "java_harness"
# Waits six times for a probing rebalance, which comes after a minute at the earliest.
WAITS_FOR_MINUTES: Final = ("HighAvailabilityTaskAssignorIntegrationTest",)
# The longest of a quick run, first: the others are done beside them.
FIRST: Final = ("EosIntegrationTest", "KStreamRepartitionIntegrationTest")
CLASS_TIMEOUT_S: Final = 1_800


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
        is_quick: without those that wait for minutes, unless they are asked for.

    Returns:
        test -> how it ended, by its class and method.
    """
    jars = junit.jars("kafka-streams", ARTIFACTS)
    (tests,) = (jar for jar in jars if jar.name == f"kafka-streams-{VERSION}-test.jar")
    # Several have a log4j.properties; some tests look for what Streams logs by that of its own.
    path = junit.compiled(
        sorted([*HARNESS.iterdir(), *SHARED.iterdir()]),
        [tests, *(jar for jar in jars if jar != tests)],
    )
    chosen = [one for one in classes(tests) if not words or any(word in one for word in words)]
    if is_quick and not words:
        chosen = [one for one in chosen if one not in WAITS_FOR_MINUTES]
    chosen.sort(key=lambda one: one not in FIRST)
    if not chosen:
        raise Missing("no class of that name")
    logs = folder / "daemons"
    logs.mkdir()
    with door(logs) as daemons, ThreadPoolExecutor(at_once) as pool:

        def one(name: str) -> dict[str, Outcome]:
            found = _play(name, path, folder, daemons)
            passed = sum(how is Outcome.PASSED for how in found.values())
            told(f"{name:<65} {passed} of {len(found)} passed")
            return found

        done = list(pool.map(one, chosen))
    for test, fault in daemons.faults.items():
        told(f"the daemon of {test}: {fault}")
    return {test: how for found in done for test, how in found.items()}


def classes(tests: Path) -> list[str]:
    """The classes of a jar whose tests start a cluster, without their package.

    Those that start none say nothing about a broker.
    """
    with zipfile.ZipFile(tests) as jar:
        files = (
            one for one in jar.namelist() if one.startswith(PACKAGE) and CLUSTER in jar.read(one)
        )
        names = {re.split(r"\$|\.class$", one.removeprefix(PACKAGE))[0] for one in files}
    return sorted(one for one in names if one.endswith("Test") and not one.startswith("Abstract"))


def _play(name: str, path: str, folder: Path, daemons: Door) -> dict[str, Outcome]:
    machine = junit.Machine(
        path, properties={"segbroker.door": str(daemons.port), "segbroker.test": name}
    )
    chosen = [f"--select-class={PACKAGE.replace('/', '.')}{name}"]
    # A nested class's name begins with that of the one around it.
    expected = [
        test for test in allow_list("kafka-streams") if test.startswith((f"{name}.", f"{name}$"))
    ]
    return junit.play(machine, chosen, expected, folder / name, CLASS_TIMEOUT_S)
