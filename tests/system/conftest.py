"""One daemon for the whole folder; every test takes topics of its own.

With SEGBROKER_TEST_BOOTSTRAP=HOST:PORT the scenarios of foreign clients run against that broker
instead.  So one learns from Apache Kafka whether a step is right about Kafka.
"""

import os
import re
import secrets
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # in its __init__ all the same
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.net.inet import KafkaNetSocket

from segbroker.client import Admin, Producer

from ..support.certificates import Authority
from ..support.clients import lots
from ..support.clients.together import AUTHORITY, PASSWORD, SECURED, USER
from ..support.compatibility import page
from ..support.daemon import Daemon, running
from ..support.scenario import SCENARIO_TIMEOUT_S, Report, play
from ..support.tools import require
from .java_shares import JavaShares


class ForgottenSocket(socket.socket):
    """Closes itself without the warning that would fail whichever test is running then."""

    def __del__(self) -> None:
        self.close()


# kafka-python 3.0 that is closed while it connects forgets the socket of that connection.
KafkaNetSocket.socket = lambda self, *args: ForgottenSocket(*args)

Play = Callable[[Sequence[str]], Report]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test of a program of steps comes first has all of them wait for it."""
    for item in items:
        if {"play_once", "reports"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(2 * SCENARIO_TIMEOUT_S))


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root: Path = tmp_path_factory.mktemp("system")
    with running(root / "data") as daemon:
        yield daemon


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The broker that scenarios talk to."""
    other = os.environ.get("SEGBROKER_TEST_BOOTSTRAP")
    if other is not None:
        return other
    daemon: Daemon = request.getfixturevalue("daemon")
    return daemon.address


@pytest.fixture(scope="session")
def release_cache(request: pytest.FixtureRequest) -> Path:
    """Where releases of clients are kept from one run to the next."""
    cache = request.config.cache
    assert cache is not None
    return Path(cache.mkdir("clients"))


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with a plain listener and one with TLS and SCRAM; the plain one's address."""
    folder: Path = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    listeners = "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0"
    flags = ("--listeners", listeners, "--ssl-certificate", str(authority.server()))
    with running(folder / "data", *flags) as daemon:
        plain = daemon.address
        # The ready line has the first listener only.
        found = re.search(r'"SASL_SSL://([^"]+)"', daemon.log.read_text())
        assert found is not None
        guarded = found[1]
        admin = AdminClient({"bootstrap.servers": plain})
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        wanted = UserScramCredentialUpsertion(USER, scram, PASSWORD.encode())
        admin.alter_user_scram_credentials([wanted])[USER].result(60)
        os.environ[SECURED], os.environ[AUTHORITY] = guarded, str(authority.file)
        yield plain
        del os.environ[SECURED], os.environ[AUTHORITY]


@pytest.fixture(scope="session")
def java(bootstrap: str, release_cache: Path) -> Iterator[JavaShares]:
    """Java's share consumers, and its admin."""
    with JavaShares(bootstrap, release_cache) as java:
        yield java


@pytest.fixture
def name() -> str:
    """What no other test, and no other run, calls its topics, groups and consumers."""
    return f"shares-{next(_numbers)}-{secrets.token_hex(3)}"


@pytest.fixture(scope="session")
def ours(bootstrap: str) -> str:
    """First part of the names of the topics that our client filled for foreign ones to read."""
    prefix = f"ours-{secrets.token_hex(4)}"
    fill(bootstrap, prefix)
    return prefix


@pytest.fixture(scope="session")
def play_once(bootstrap: str, ours: str) -> Play:
    """Runs a scenario at its first use and gives back the same report after that."""
    reports: dict[tuple[str, ...], Report] = {}

    def play_or_recall(command: Sequence[str]) -> Report:
        if tuple(command) not in reports:
            prefix = f"scenario-{secrets.token_hex(4)}"
            reports[tuple(command)] = play([*command, bootstrap, prefix, ours], prefix)
        return reports[tuple(command)]

    return play_or_recall


def fill(bootstrap: str, prefix: str) -> None:
    with Admin(bootstrap) as admin:
        for codec in lots.CODECS:
            admin.create_topic(f"{prefix}-{codec}", partitions=1, config=lots.KEEP)
    for codec in lots.CODECS:
        with Producer(bootstrap, compression=codec) as producer:
            for n in range(lots.COUNT):
                producer.send(
                    f"{prefix}-{codec}",
                    lots.value(n),
                    key=lots.key(n),
                    headers=lots.headers(n),
                    partition=0,
                    timestamp_ms=lots.timestamp_ms(n),
                )


_outcomes: dict[str, str] = {}
PAGE = "SEGBROKER_COMPATIBILITY"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember how each test ended, for the table of clients."""
    if report.when == "call" or report.outcome != "passed":
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish() -> None:
    """Write the table of clients where the environment says; `make matrix` does."""
    if PAGE not in os.environ:
        return
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    said = subprocess.run([require("kcat"), "-V"], capture_output=True, text=True).stdout
    version = re.search(r"Version (\d+\.\d+\.\d+)", said)
    assert version is not None
    today = datetime.now(UTC).date().isoformat()
    text = page(_outcomes, kcat=version[1], commit=commit, date=today, command="make matrix")
    Path(os.environ[PAGE]).write_text(text)


_numbers = count()


@pytest.fixture
def topic() -> Callable[[], str]:
    """A maker of names that no other test has."""
    return lambda: f"system-{next(_numbers)}"
