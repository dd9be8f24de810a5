"""A process that was forked leaves its parent's clients alone, and hears that they are not its own.

In a process of its own: a fork beside other threads is what a test run is warned of.
"""

import subprocess
import sys

import pytest

from segbroker.client import Admin

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
    with Admin(daemon.address) as admin:
        admin.create_topic(topic)
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


# Two clients whose calls are taking a step, in a mapping of the caller's, while others are open.
BUSY_PROGRAM = """
import os, signal, sys, threading
from segbroker.client import Admin, ClosedError, Producer

address, topic = sys.argv[1:]
go = threading.Event()


class Slow(dict):
    def __init__(self):
        super().__init__({"segment.ms": "3600000"})
        self.is_asked = threading.Event()

    def items(self):
        self.is_asked.set()
        assert go.wait(60)
        return super().items()


def is_refused(use):
    try:
        use()
    except ClosedError as exc:
        return "forked" in str(exc)
    return False


with Admin(address) as first, Admin(address) as second, Producer(address) as producer:
    first.create_topic(topic)
    threads = []
    for admin in (first, second):
        changes = Slow()
        threads.append(threading.Thread(target=admin.alter_topic_config, args=(topic, changes)))
        threads[-1].start()
        assert changes.is_asked.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(60)
        uses = (first.list_topics, second.list_topics, lambda: producer.send(topic, b"child"))
        print([is_refused(use) for use in uses])
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    go.set()
    for thread in threads:
        thread.join(60)
    print(status, first.describe_topic(topic).config["segment.ms"].value)
"""


def test_every_client_is_told_though_calls_were_taking_a_step(daemon: Daemon, topic: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUSY_PROGRAM, daemon.address, topic],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[True, True, True]", "0 3600000"], done.stderr
    assert "Exception ignored" not in done.stderr


ASYNC_PROGRAM = """
import os, sys
import anyio
from segbroker.client import AsyncConsumer, AsyncProducer, ClosedError

address, topic, backend = sys.argv[1:]


async def is_refused(use):
    try:
        await use()
    except ClosedError as exc:
        return "forked" in str(exc)
    return False


async def main():
    async with (
        AsyncProducer(address, linger_ms=60_000) as producer,
        AsyncConsumer(address, topic, group=topic) as consumer,
    ):
        await (await producer.send(topic, b"before"))
        child = os.fork()
        if not child:
            uses = (
                lambda: producer.send(topic, b"child"),
                lambda: producer.send("other", b"child"),
                producer.flush,
                consumer.poll,
                consumer.aclose,
                producer.aclose,
            )
            print([await is_refused(use) for use in uses])
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        await (await producer.send(topic, b"after"))
        got = []
        while len(got) < 2:
            got += [record.value.decode() for record in await consumer.poll(timeout_ms=60_000)]
        print(status, sorted(got))


anyio.run(main, backend=backend)
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_forked_process_is_told_that_an_async_client_is_its_parents(
    daemon: Daemon, topic: str, backend: str
) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic)
    done = subprocess.run(
        [sys.executable, "-c", ASYNC_PROGRAM, daemon.address, topic, backend],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str([True] * 6), "0 ['after', 'before']"], done.stderr
