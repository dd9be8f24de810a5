"""Members of a group by the protocol of KIP-848, against a real daemon."""

from collections.abc import Iterator
from typing import Any

import pytest

from segbroker.client import Admin

from ..support.daemon import Daemon, running
from ..support.waiting import until
from .test_groups import COUNT, Member, fill

NEW: Any = {"group_protocol": "consumer"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Members hear of what changes at once."""
    data = tmp_path_factory.mktemp("consumer-protocol") / "data"
    options = ("--group-consumer-heartbeat-interval-ms", "50")
    with running(data, "--durability", "disk", *options) as daemon:
        yield daemon


@pytest.fixture
def filled(daemon: Daemon, topic: str) -> str:
    fill(daemon.address, topic)
    return topic


def test_two_members_share_and_the_one_that_stays_takes_over(daemon: Daemon, filled: str) -> None:
    one = Member(daemon.address, filled, **NEW)
    until(lambda: len(one.values) == COUNT, one)
    two = Member(daemon.address, filled, **NEW)
    until(lambda: len(one.owned) == len(two.owned) == 2, one, two)
    one.stop()
    until(lambda: two.owned == {0, 1, 2, 3}, two)
    two.stop()
    assert two.values == []
    with Admin(daemon.address) as admin:
        assert admin.describe_group(filled).group_type == "consumer"
