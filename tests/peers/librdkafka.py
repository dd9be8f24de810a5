"""librdkafka's own C tests, out of the npm package of a client that is built on it.

The tree is built once, in about two minutes, without GSSAPI: nothing here uses it.  TLS, curl,
RapidJSON and Zstandard are wanted by a few tests; their headers are installed where that is
possible.

Each test runs in a process of its own against a fresh daemon: what one leaves behind, thousands of
topics among them, is not the next one's trouble.

Left out: the tests that talk to no broker or to librdkafka's own mock (they say nothing about
ours), and those that librdkafka itself runs by hand only.  The tests are told that the broker is
a Kafka 4.1: so they expect its answers, and leave out what it has dropped.  Those of share groups
are told of a Kafka 4.3.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..support.daemon import running
from . import kafka_tools, librdkafka_tokens
from .places import Missing, cache, need, run, unfinished, want_headers
from .verdicts import Outcome

PACKAGE: Final = "@confluentinc/kafka-javascript"
VERSION: Final = "1.10.1"
KAFKA_VERSION: Final = "4.1.0"
HEADERS: Final = {
    "openssl/ssl.h": "libssl-dev",
    "curl/curl.h": "libcurl4-openssl-dev",
    "rapidjson/document.h": "rapidjson-dev",
    "zstd.h": "libzstd-dev",
}
# The slowest one takes three minutes on a quiet machine; their own limits are of that order.
TEST_TIMEOUT_S: Final = 300
FULL_TIMEOUT_S: Final = 1_800

THREE_REPLICAS: Final = "rd_kafka_NewTopic_new(topicname, partition_cnt, replication_factor,"
ONE_REPLICA: Final = "rd_kafka_NewTopic_new(topicname, partition_cnt, 1,"

# Access rules are set by Kafka's own tool; what no rule is about is open, as in their cluster.
OPEN_RULES: Final = ("--authorizer", "acl", "--allow-everyone-if-no-acl-found")
WITH_RULES: Final = ("0081_", "0109_", "0115_", "0119_")

# Skipped by themselves where CI is set, as what they measure is not reliable there.
NOT_ON_CI: Final = ("0055_",)

# Share groups are finished since Kafka 4.2.  In the quick mode these tests do nothing, and pass.
SHARES: Final = ("017", "018")
SHARES_VERSION: Final = "4.3.1"

# It logs in by tokens, with a server of tokens beside its daemon; forty parts of some seconds.
BY_TOKENS: Final = ("0126_",)
NO_TOKENS: Final = librdkafka_tokens.Tokens((), "", {})

# Not run at all in the quick mode, though it takes seconds; or too long for the time of that mode.
NEVER_QUICK: Final = ("0082_", *BY_TOKENS, *SHARES)

# Members that begin one behind the other are one round in Kafka, which waits three seconds; the
# parts that count on it are left out in the quick mode.
KAFKAS_DELAY: Final = ("--group-initial-rebalance-delay-ms", "3000")
IN_ONE_ROUND: Final = ("0113_",)

_ENTRY: Final = re.compile(r"_TEST\(\s*(\w+),([^;]*?)(?=_TEST\(|\{NULL\})", re.DOTALL)


@dataclass(frozen=True)
class Test:
    """One test: its name, and the scenario ("default", "noautocreate") that it plays in."""

    name: str
    scenario: str


def tree() -> Path:
    """The built tree.  Raises Missing."""
    # Made anew when it is to have more of HEADERS.
    place = cache() / f"librdkafka-of-{VERSION}-{len(HEADERS)}"
    if not place.exists():
        need("npm", "gcc", "g++", "make")
        want_headers(HEADERS)
        cache().mkdir(parents=True, exist_ok=True)
        with unfinished(place) as work:
            run(["npm", "pack", f"{PACKAGE}@{VERSION}"], work)
            (archive,) = work.glob("*.tgz")
            run(["tar", "xzf", archive.name], work)
            archive.unlink()
            # The path of the libraries is given when the tests run: the folder may be renamed.
            (work / "package" / "deps" / "librdkafka").rename(work / "librdkafka")
            source = work / "librdkafka"
            patch(source / "tests" / "test.c")
            run(["./configure", "--disable-gssapi"], source)
            jobs = f"-j{os.cpu_count() or 1}"
            run(["make", jobs, "libs"], source)
            run(["make", "-C", "tests", jobs, "build"], source)
    return place / "librdkafka"


def patch(source: Path) -> None:
    """Some tests want three replicas of their topics, whatever they are about; one has to do."""
    text = source.read_text()
    assert text.count(THREE_REPLICAS) == 1, "test_admin_create_topic is not as it was"
    source.write_text(text.replace(THREE_REPLICAS, ONE_REPLICA))


def tests(source: Path) -> list[Test]:
    """The tests that a broker is needed for, in the order of the tree."""
    text = (source / "tests" / "test.c").read_text()
    text = text[text.index("struct test tests[] = {") :]
    found = []
    for name, rest in _ENTRY.findall(text[: text.index("{NULL}") + len("{NULL}")]):
        if "TEST_F_LOCAL" in rest or "TEST_F_MANUAL" in rest or name.endswith("_mock"):
            continue
        scenario = "noautocreate" if '"noautocreate"' in rest else "default"
        found.append(Test(name, scenario))
    return found


def play(
    folder: Path,
    wanted: Iterable[str],
    at_once: int,
    told: Callable[[str], None],
    *,
    is_quick: bool = True,
) -> dict[str, Outcome]:
    """Run the suite.

    Args:
        folder: gets a data directory and a log for each test.
        wanted: first parts of names; none for all.
        at_once: how many tests run side by side, each with its own daemon.
        told: called with a line as each test ends.
        is_quick: in librdkafka's quick mode: fewer messages, some parts of some tests left out.

    Returns:
        test -> how it ended.
    """
    source = tree()
    tools = kafka_tools.home()
    starts = tuple(wanted)
    chosen = [test for test in tests(source) if not starts or test.name.startswith(starts)]
    if not chosen:
        raise Missing("no test of that name")

    def one(test: Test) -> Outcome:
        began = time.monotonic()
        outcome = _play(test, source, tools, folder, is_quick)
        if is_quick and outcome is Outcome.SKIPPED:
            # Some have no part that is quick, or do not say that they skipped it.
            outcome = _play(test, source, tools, folder / "whole", is_quick=False)
        told(f"{test.name:<44} {outcome.value:<14} {time.monotonic() - began:6.1f} s")
        return outcome

    with ThreadPoolExecutor(at_once) as pool:
        return dict(zip((test.name for test in chosen), pool.map(one, chosen), strict=True))


def _play(test: Test, source: Path, tools: Path, folder: Path, is_quick: bool) -> Outcome:
    place = folder / test.name
    place.mkdir(parents=True)
    flags = [] if test.scenario == "default" else ["--no-auto-create-topics"]
    if test.name.startswith(WITH_RULES):
        flags += OPEN_RULES
    if test.name.startswith(IN_ONE_ROUND) and not is_quick:
        flags += KAFKAS_DELAY
    with ExitStack() as stack:
        tokens = NO_TOKENS
        if test.name.startswith(BY_TOKENS):
            tokens = stack.enter_context(librdkafka_tokens.serving(source, place))
        daemon = stack.enter_context(running(place / "data", *flags, *tokens.flags))
        conf = place / "test.conf"
        conf.write_text(f"bootstrap.servers={daemon.address}\n{tokens.settings}")
        environment = {
            **os.environ,
            **tokens.environment,
            "TESTS": test.name,
            "TEST_KAFKA_VERSION": (
                SHARES_VERSION if test.name.startswith(SHARES) else KAFKA_VERSION
            ),
            "RDKAFKA_TEST_CONF": str(conf),
            "KAFKA_PATH": str(tools),
            "BROKERS": daemon.address,
            "LD_LIBRARY_PATH": "../src:../src-cpp",
        }
        if test.name.startswith(NOT_ON_CI):
            environment.pop("CI", None)
        else:
            environment["CI"] = "1"  # three times as patient
        # One at a time, also those that librdkafka knows to fail on some systems.
        quick = ["-Q"] if is_quick and not test.name.startswith(NEVER_QUICK) else []
        # -L: some names begin those of tests that talk to no broker, which last for minutes.
        command = ["./test-runner", "-p1", "-L", *quick, "-s", test.scenario]
        log = place / "output"
        with log.open("w") as sink:
            process = subprocess.Popen(
                command,
                cwd=source / "tests",
                env=environment,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # it forks: all of it must end with it
            )
            try:
                process.wait(TEST_TIMEOUT_S if quick else FULL_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                return Outcome.LATE
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
    return ended(test.name, log.read_text(errors="replace"), process.returncode)


def ended(name: str, output: str, code: int) -> Outcome:
    """What the summary says of a test: it has a row with its name, state and time.

    In the quick mode a test all of whose parts are left out passes, in no time at all.
    """
    row = re.search(rf"^\|\S*\s*{name}\s*\|\s*(\w+)\s*\|\s*(\S+)", output, re.MULTILINE)
    if row is None:
        return Outcome.FAILED
    if row[1] == "SKIPPED" or (row[1] == "PASSED" and row[2] == "0.000s"):
        return Outcome.SKIPPED
    return Outcome.PASSED if row[1] == "PASSED" and code == 0 else Outcome.FAILED
