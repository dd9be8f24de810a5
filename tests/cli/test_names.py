"""Names that somebody chose, on the terminal of somebody else."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from segbroker.client import Acl, Admin

from ..support.daemon import running
from .conftest import segbroker

# Clears the screen, sets the title of the window, begins a row of its own.
NAME = "\x1b[2J\x1b]0;title\x07\nforged"
ESCAPED = r"\x1b[2J\x1b]0;title\x07\nforged"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker with a group, a rule and a quota of that name."""
    flags = ("--authorizer", "acl", "--super-users", "User:ANONYMOUS")
    with running(tmp_path_factory.mktemp("names") / "data", *flags) as daemon:
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": daemon.address}
        theirs = AdminClient(settings)
        theirs.create_topics([NewTopic("t", 1)])["t"].result(60)
        consumer = Consumer({**settings, "group.id": NAME, "client.id": NAME})
        consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
        consumer.close()
        with Admin(daemon.address) as ours:
            ours.create_acls([Acl(f"User:{NAME}", "read", "group", NAME)])
            ours.alter_quotas({"user": NAME}, {"request_rate": 1e6})
        yield daemon.address


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (("group", "list"), 1),
        (("group", "list", "--long"), 2),
        (("group", "describe", NAME), 4),
        (("acl", "list"), 2),
        (("quota", "list"), 2),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else None,
)
def test_a_name_writes_nothing_to_a_terminal_but_itself(
    address: str, words: tuple[str, ...], rows: int
) -> None:
    done = segbroker(*words, env={"SEGBROKER_BOOTSTRAP": address})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert len(lines) == rows
    assert any(ESCAPED in line for line in lines)
    assert all(line.isprintable() for line in lines)
