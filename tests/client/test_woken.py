"""Who has nothing to do sleeps, for minutes; what its caller wants is seen to at once."""

import math
from collections.abc import Callable
from typing import Any, Final

import anyio
import pytest

from segbroker.client import AsyncConsumer, Consumer, Producer, ShareConsumer
from segbroker.client.clock import now_ms

from ..support.daemon import Daemon
from ..support.waiting import DEADLINE_S, until
from .conftest import Run

SLEEP_MS: Final = 20 * 60_000
"""The client looks up after half of it: long after the test has given up."""
DEADLINE_MS: Final = DEADLINE_S * 1000

Wants = Callable[[Any, str], object]
"""Has a consumer read a topic."""

WANTS: dict[str, Wants] = {
    "subscribe": lambda consumer, topic: consumer.subscribe([topic]),
    "assign": lambda consumer, topic: consumer.assign([(topic, 0)]),
}


@pytest.fixture
def filled(daemon: Daemon, made: str) -> str:
    with Producer(daemon.address) as producer:
        producer.send(made, b"one", partition=0)
    return made


def is_asleep(consumer: Any) -> bool:  # noqa: ANN401 - of each kind
    """Until long after the test has given up."""
    asleep_until_ms: float = consumer._driver._asleep_until_ms
    return math.isfinite(asleep_until_ms) and asleep_until_ms > now_ms() + 2 * DEADLINE_MS


def options() -> dict[str, Any]:
    times = ("request_timeout_ms", "api_timeout_ms", "metadata_max_age_ms")
    return dict.fromkeys(times, SLEEP_MS)


@pytest.mark.parametrize("want", WANTS.values(), ids=WANTS)
def test_what_is_to_be_read_is_asked_for_at_once(daemon: Daemon, filled: str, want: Wants) -> None:
    with Consumer(daemon.address, **options()) as consumer:
        until(lambda: is_asleep(consumer))
        want(consumer, filled)
        assert [record.value for record in consumer.poll(timeout_ms=DEADLINE_MS)] == [b"one"]


def test_what_is_resumed_is_fetched_at_once(daemon: Daemon, filled: str) -> None:
    with Consumer(daemon.address, **options()) as consumer:
        consumer.assign([(filled, 0)])
        consumer.pause()
        until(lambda: is_asleep(consumer))
        consumer.resume()
        assert [record.value for record in consumer.poll(timeout_ms=DEADLINE_MS)] == [b"one"]


def test_a_group_is_joined_at_once(daemon: Daemon, filled: str) -> None:
    with Consumer(daemon.address, group=filled, start="start", **options()) as consumer:
        until(lambda: is_asleep(consumer))
        consumer.subscribe([filled])
        assert [record.value for record in consumer.poll(timeout_ms=DEADLINE_MS)] == [b"one"]


def test_a_share_group_is_joined_at_once(daemon: Daemon, filled: str) -> None:
    with ShareConsumer(daemon.address, group=filled, **options()) as consumer:
        until(lambda: is_asleep(consumer))
        consumer.subscribe([filled])
        consumer.poll(timeout_ms=0)
        until(lambda: bool(consumer.assignment))


async def becomes_asleep(consumer: Any) -> None:  # noqa: ANN401 - of each kind
    """It may sleep for ever: a socket wakes it as well."""
    with anyio.fail_after(DEADLINE_S):
        while consumer._driver._asleep_until_ms < now_ms() + 2 * DEADLINE_MS:  # noqa: ASYNC110
            await anyio.sleep(0.01)


@pytest.mark.parametrize("want", WANTS.values(), ids=WANTS)
def test_an_async_consumer_asks_at_once(run: Run, daemon: Daemon, filled: str, want: Wants) -> None:
    async def scenario() -> None:
        async with AsyncConsumer(daemon.address, **options()) as consumer:
            await becomes_asleep(consumer)
            want(consumer, filled)
            got = await consumer.poll(timeout_ms=DEADLINE_MS)
        assert [record.value for record in got] == [b"one"]

    run(scenario)


def test_an_async_member_joins_at_once(run: Run, daemon: Daemon, filled: str) -> None:
    async def scenario() -> None:
        async with AsyncConsumer(
            daemon.address, group=filled, start="start", **options()
        ) as consumer:
            await becomes_asleep(consumer)
            consumer.subscribe([filled])
            got = await consumer.poll(timeout_ms=DEADLINE_MS)
        assert [record.value for record in got] == [b"one"]

    run(scenario)
