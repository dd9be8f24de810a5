"""One daemon for the whole folder; every test takes topics of its own."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from ..support.daemon import Daemon, running


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root: Path = tmp_path_factory.mktemp("system")
    with running(root / "data") as daemon:
        yield daemon


_numbers = count()


@pytest.fixture
def topic() -> Callable[[], str]:
    """A maker of names that no other test has."""
    return lambda: f"system-{next(_numbers)}"
