"""`segbroker consume --share` against a real daemon."""

import json
import signal
import subprocess

import pytest

from segbroker.client import Admin, Producer

from ..client.replaying import TOPIC, Replaying
from ..client.scripted_shares import Script, batch
from ..support.daemon import Daemon
from .conftest import COMMAND, Run, environment


def fill(daemon: Daemon, topic: str, count: int) -> None:
    """Records "0", "1" ..., and a share group of that name at the first one."""
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
        admin.alter_share_offsets(topic, {(topic, 0): 0})
    with Producer(daemon.address) as producer:
        producer.send_many(topic, [b"%d" % n for n in range(count)])


def test_what_is_printed_is_accepted(run: Run, daemon: Daemon, topic: str) -> None:
    fill(daemon, topic, 7)
    first = run("consume", "--share", topic, "-n", "3", topic)
    assert (first.returncode, first.stderr, first.stdout) == (0, b"", b"0\n1\n2\n")
    lines = run("consume", "--share", topic, "-n", "4", "-J", topic).stdout.splitlines()
    seen = [json.loads(line) for line in lines]
    assert [(row["value"], row["delivery_count"]) for row in seen] == [
        (str(n), 1) for n in range(3, 7)
    ]
    with Admin(daemon.address) as admin:
        (stands,) = admin.share_offsets(topic).values()
    assert stands.offset == 7


def test_it_waits_for_more_and_ends_by_ctrl_c(daemon: Daemon, topic: str) -> None:
    fill(daemon, topic, 2)
    command = subprocess.Popen(
        [*COMMAND, "consume", "--share", topic, topic, "-q", "-b", daemon.address],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert command.stdout is not None
    with command.stdout as out:
        assert [out.readline(), out.readline()] == [b"0\n", b"1\n"]
        with Producer(daemon.address) as producer:
            producer.send(topic, b"2")
        assert out.readline() == b"2\n"
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 130


def test_what_was_accepted_in_vain_is_said_and_it_goes_on(run: Run) -> None:
    script = Script((batch(0, 2), [(0, 1, 1)]), (b"", []), (batch(2, 1), [(2, 2, 1)]))
    script.verdicts = [None]  # the connection ends, with the second question
    with Replaying(script.answers) as broker:
        done = run("consume", "--share", "g", "-n", "3", "-b", broker.address, TOPIC)
    assert (done.returncode, done.stdout) == (0, b"0\n1\n2\n")
    assert b"Again: 2 acknowledgements failed" in done.stderr


@pytest.mark.parametrize("words", [("-e",), ("-o", "end"), ("-p", "0"), ("--group", "g")])
def test_what_means_nothing_there(run: Run, topic: str, words: tuple[str, ...]) -> None:
    refused = run("consume", "--share", "g", *words, topic)
    assert refused.returncode == 2
    assert b"cannot be combined with --share" in refused.stderr
