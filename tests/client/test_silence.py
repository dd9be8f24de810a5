"""What a broker has not said is told of; what its client was not there to hear is not."""

import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from segbroker.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    Producer,
    thread_driver,
)
from segbroker.client.clock import now_ms
from segbroker.client.silence import Silence
from segbroker.protocol.api_keys import ApiKey

from ..support.cutting_proxy import CuttingProxy
from ..support.daemon import Daemon, running
from ..support.ports import port_of
from ..support.waiting import until, within_one_of

LIMIT_MS = 1_000


def test_a_silence_is_told_once_for_each_limit() -> None:
    silence = Silence()
    assert silence.due_ms(LIMIT_MS) is None
    assert not silence.is_too_long(5_000, LIMIT_MS)
    for at_ms in (5_000, 5_500):
        silence.wanted(at_ms)
    told = [at for at in range(5_000, 9_000, 10) if silence.is_too_long(at, LIMIT_MS)]
    assert told == [6_000, 7_000, 8_000]
    silence.over()
    assert silence.due_ms(LIMIT_MS) is None
    silence.wanted(20_000)
    assert not silence.is_too_long(20_990, LIMIT_MS)


@pytest.mark.parametrize("limit_ms", [LIMIT_MS, 30_000, 7])
def test_who_looks_when_it_is_due_hears_of_a_silence_in_time(limit_ms: int) -> None:
    silence = Silence()
    silence.wanted(0)
    looks: list[int] = []
    while not looks or not silence.is_too_long(looks[-1], limit_ms):
        due_ms = silence.due_ms(limit_ms)
        assert due_ms is not None
        looks.append(due_ms)
    assert looks[-1] == limit_ms
    assert len(looks) == 4


def test_who_stood_still_listens_before_it_tells_of_a_silence_also_the_second_time() -> None:
    silence = Silence()
    silence.wanted(0)
    assert not silence.is_too_long(100_000, LIMIT_MS)
    assert not silence.is_too_long(100_100, LIMIT_MS)
    assert not silence.is_too_long(200_000, LIMIT_MS)
    told = [at for at in range(200_000, 202_000, 10) if silence.is_too_long(at, LIMIT_MS)]
    assert told == [200_400, 201_400]


def test_who_is_always_late_hears_of_a_silence_all_the_same() -> None:
    """A loop that jobs of 450 ms, or of longer than the limit, keep busy."""
    for job_ms in (450, 5_000):
        silence = Silence()
        silence.wanted(0)
        looks = range(0, 14 * job_ms, job_ms)
        told = [at for at in looks if silence.is_too_long(at, LIMIT_MS)]
        assert told == [4 * job_ms, 8 * job_ms, 12 * job_ms]


def stand_still(process: "subprocess.Popen[str]", for_ms: int) -> None:
    """No condition but the time itself."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(for_ms / 1000)
    process.send_signal(signal.SIGCONT)


READING = """
import sys
from segbroker.client import {kind}
address, topic, within_ms = sys.argv[1:]
options = dict(group="{kind}-" + topic, api_timeout_ms=int(within_ms))
with {kind}(address, topic, **options) as consumer:
    for record in consumer:
        print(record.value.decode(), flush=True)
        if record.value == b"last":
            break
"""


@pytest.mark.parametrize("kind", ["Consumer", "ShareConsumer"])
def test_a_reader_that_was_stopped_does_not_say_that_no_broker_answers(
    daemon: Daemon, topic: str, kind: str
) -> None:
    """As by Ctrl-Z, or with its machine: what the broker said meanwhile is here."""

    def goes_on(within_ms: int) -> None:
        name = f"{topic}-{within_ms}"
        with Admin(daemon.address) as admin:
            admin.create_topic(name, partitions=1)
            admin.alter_share_offsets(f"ShareConsumer-{name}", {(name, 0): 0})
        words = [sys.executable, "-c", READING.format(kind=kind)]
        with (
            Producer(daemon.address) as producer,
            subprocess.Popen(
                [*words, daemon.address, name, str(within_ms)], stdout=subprocess.PIPE, text=True
            ) as reader,
        ):
            assert reader.stdout is not None
            producer.send(name, b"first")
            assert reader.stdout.readline() == "first\n"
            stand_still(reader, within_ms + 1_000)
            producer.send(name, b"last")
            assert reader.stdout.read() == "last\n"

    within_one_of((2_000, 15_000), goes_on)


@pytest.mark.parametrize("kind", [AsyncConsumer, AsyncShareConsumer])
def test_a_job_that_keeps_the_loop_to_itself_is_no_silence_of_the_broker(
    daemon: Daemon,
    topic: str,
    run: Callable[..., object],
    kind: type[AsyncConsumer | AsyncShareConsumer],
) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
        admin.alter_share_offsets(f"{topic}-shared", {(topic, 0): 0})
    with Producer(daemon.address) as producer:
        producer.send(topic, b"v")
    group = topic if kind is AsyncConsumer else f"{topic}-shared"

    async def main(within_ms: int) -> None:
        async with kind(
            daemon.address, topic, group=group, api_timeout_ms=within_ms, fetch_wait_ms=100
        ) as consumer:
            assert await consumer.poll(timeout_ms=60_000)
            for _ in range(4):
                assert await consumer.poll(timeout_ms=100) == []
                time.sleep(1.4 * within_ms / 1000)  # noqa: ASYNC251 - the job

    within_one_of((1_000, 5_000), lambda within_ms: run(main, within_ms))


def test_an_answer_that_came_while_a_job_kept_the_loop_to_itself_is_one(
    daemon: Daemon, topic: str, run: Callable[..., object]
) -> None:
    """The time of its question is over when the loop goes on."""

    async def main(within_ms: int) -> None:
        async def work() -> None:
            for _ in range(3):
                await anyio.lowlevel.checkpoint()  # it is sent
            time.sleep(1.5 * within_ms / 1000)  # noqa: ASYNC251 - the job
            await admin.describe_cluster()

        async with AsyncAdmin(daemon.address, request_timeout_ms=within_ms) as admin:
            await admin.create_topic(f"{topic}-{within_ms}-before")
            for number in range(3):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(admin.create_topic, f"{topic}-{within_ms}-{number}")
                    tasks.start_soon(work)

    within_one_of((500, 5_000), lambda within_ms: run(main, within_ms))


def test_what_was_acknowledged_while_a_job_kept_the_loop_to_itself_is_delivered(
    daemon: Daemon, topic: str, run: Callable[..., object]
) -> None:
    """The job outlasts delivery_timeout_ms, behind that all has been sent."""

    async def main(within_ms: int) -> None:
        async with AsyncProducer(
            daemon.address, linger_ms=0, delivery_timeout_ms=within_ms, request_timeout_ms=within_ms
        ) as producer:
            await (await producer.send(topic, b"before"))
            for _ in range(3):
                deliveries = [await producer.send(topic, b"v") for _ in range(100)]
                batches = [delivery.place()[0] for delivery in deliveries]
                while not all(batch.attempts or batch.done for batch in batches):
                    await anyio.lowlevel.checkpoint()  # done unsent: its time was over before
                time.sleep(1.5 * within_ms / 1000)  # noqa: ASYNC251 - the job
                for delivery in deliveries:
                    await delivery

    within_one_of((500, 5_000), lambda within_ms: run(main, within_ms))


class Stopped(selectors.DefaultSelector):
    """What a thread looks at whose process is stopped just behind a look: an answer comes then."""

    def __init__(self, clock: list[int]) -> None:
        super().__init__()
        self.is_armed = False
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self.is_armed:
            return super().select(timeout)
        waits_until_s = time.monotonic() + 2
        while time.monotonic() < waits_until_s:
            events = super().select(timeout)
            wakes = [event for event in events if event[0].data is None]
            if len(wakes) < len(events):
                self.is_armed = False
                self._clock[0] += 600_000
                return wakes
        return events  # it was woken to send what is to be answered


def test_an_answer_that_came_while_a_producer_was_stopped_behind_a_look_is_one(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process that is busy the thread spends much of its time there."""
    clock = [0]
    monkeypatch.setattr(thread_driver, "now_ms", lambda: now_ms() + clock[0])
    selector = Stopped(clock)
    monkeypatch.setattr(selectors, "DefaultSelector", lambda: selector)
    with Producer(daemon.address, linger_ms=0) as producer:
        producer.send(topic, b"before", partition=0).result()
        selector.is_armed = True
        producer._driver._wake()
        assert producer.send(topic, b"v", partition=0).result().offset == 1


CHANGING = """
import sys
from segbroker.client import Admin
address, topic, within_ms = sys.argv[1:]
with Admin(address, request_timeout_ms=int(within_ms)) as admin:
    admin.create_topic(topic)
print("done")
"""


def test_an_answer_that_came_while_its_client_was_stopped_is_one(tmp_path: Path) -> None:
    """Its time is over when the client goes on, and it has not been read."""
    data = tmp_path / "data"

    def is_one(within_ms: int) -> None:
        name = f"t-{within_ms}"
        proxy.hold_at(ApiKey.CREATE_TOPICS)
        command = [sys.executable, "-c", CHANGING, proxy.address, name, str(within_ms)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            assert proxy.is_held.wait(60)
            client.send_signal(signal.SIGSTOP)
            proxy.release()
            with Admin(daemon.address) as admin:
                until(lambda: name in admin.list_topics())
            stand_still(client, within_ms)
            assert client.stdout.read() == "done\n"

    with (
        CuttingProxy(("127.0.0.1", port_of(data))) as proxy,
        running(data, "--advertised", proxy.address) as daemon,
    ):
        within_one_of((1_000, 10_000), is_one)
