"""A process that was forked leaves its parent's clients alone, and hears that they are not its own.

In a process of its own: a fork beside other threads is what a test run is warned of.
"""

import subprocess
import sys

import pytest

from ..support.daemon import Daemon

PROGRAM = """
import os, sys
from segbroker.client import Admin, ClosedError, Consumer, Producer

address, topic, is_ended = sys.argv[1], sys.argv[2], sys.argv[3] == "ended"


def refused(what, use):
    try:
        use()
    except ClosedError as exc:
        print(what, "forked" in str(exc))


with (
    Producer(address, linger_ms=60_000) as producer,
    Consumer(address, topic, group=topic) as consumer,
    Admin(address) as admin,
):
    producer.send(topic, b"parent").result(60)
    before = producer.send(topic, b"parent's, under way")
    child = os.fork()
    if not child:
        refused("send", lambda: producer.send(topic, b"child"))
        refused("result", lambda: before.result(60))
        refused("flush", lambda: producer.flush(60))
        refused("poll", lambda: consumer.poll(timeout_ms=60_000))
        refused("admin", admin.list_topics)
        with Producer(address) as own:
            own.send(topic, b"child's own").result(60)
        sys.stdout.flush()
        if not is_ended:
            os._exit(0)
    else:
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        producer.flush(60)
        got = []
        while len(got) < 3:
            got += [record.value.decode() for record in consumer.poll(timeout_ms=60_000)]
        print(sorted(got))
"""


@pytest.mark.parametrize("end", ["ended", "left"])
def test_a_forked_process_is_told_and_its_parent_goes_on(
    daemon: Daemon, topic: str, end: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, daemon.address, topic, end],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "send True",
        "result True",
        "flush True",
        "poll True",
        "admin True",
        str(sorted(["parent", "parent's, under way", "child's own"])),
    ]
