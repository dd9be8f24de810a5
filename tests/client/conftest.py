"""One real daemon for the folder; every test takes topics of its own."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from segbroker.client import Admin

from ..support.daemon import Daemon, running

Run = Callable[..., object]
"""Runs an async function, under trio or asyncio."""


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    # A member of the newer protocol hears at once of what changes.
    flags = ("--durability", "disk", "--group-consumer-heartbeat-interval-ms", "50")
    with running(tmp_path_factory.mktemp("client") / "data", *flags) as daemon:
        yield daemon


_numbers = count()


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"client-{next(_numbers)}"


@pytest.fixture
def made(daemon: Daemon, topic: str) -> str:
    """It is there: a consumer that is opened before looks a few times, and says that it is not."""
    with Admin(daemon.address) as admin:
        admin.create_topic(topic)
    return topic


@pytest.fixture(params=["trio", "asyncio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an async function under one of the two backends, from a plain test."""
    import anyio

    def run(function: Callable[..., object], *args: object) -> object:
        return anyio.run(function, *args, backend=request.param)  # type: ignore[arg-type]

    return run
