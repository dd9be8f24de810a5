"""The pytest fixtures.  They come by themselves with an installed segbroker (entry point pytest11).

    segbroker           a broker that is new for each test
    segbroker_session   one broker for the whole run: for tests that take topics of their own
    --segbroker-log-level   what they log: from warning on, unless it says otherwise

Nothing is imported before a fixture is asked for: see the package's docstring.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .embedded import EmbeddedBroker


def pytest_addoption(parser: pytest.Parser) -> None:
    """What the brokers of the fixtures log."""
    parser.getgroup("segbroker").addoption(
        "--segbroker-log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="What a segbroker of the fixtures logs where structlog is not configured.",
    )


@pytest.fixture
def segbroker(pytestconfig: pytest.Config) -> "Iterator[EmbeddedBroker]":
    """A segbroker in memory, new for this test and ended with it: `segbroker.address`."""
    from .embedded import EmbeddedBroker

    with EmbeddedBroker(log_level=pytestconfig.getoption("--segbroker-log-level")) as broker:
        yield broker


@pytest.fixture(scope="session")
def segbroker_session(pytestconfig: pytest.Config) -> "Iterator[EmbeddedBroker]":
    """A segbroker in memory for the whole run; tests share its topics and its clock."""
    from .embedded import EmbeddedBroker

    with EmbeddedBroker(log_level=pytestconfig.getoption("--segbroker-log-level")) as broker:
        yield broker
