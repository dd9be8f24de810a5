"""What a broker makes, starts and ends, and in which order (server.py, assembling.py)."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
import trio

from segbroker.broker.assembling import assemble
from segbroker.broker.configuration.config import BrokerConfig, InvalidConfig, merge
from segbroker.broker.core import Core, wall_ms
from segbroker.broker.loop.lanes import Lanes
from segbroker.broker.server import Broker
from segbroker.segments.directory.manager import DiskManager

from ..support.wire_client import connect, fetch_request
from .conftest import PATIENT, Events, manager

SERVICES = [
    "loop.deadlines.Deadlines.run",
    "loop.turn.Turn.run",
    "loop.turn.end_passes",
    "connections.watchdog.watch",
    "chores.keep_house",
    "chores.scrub",
    "chores.tell_stuck",
    "chores.reopen",
    "chores.clean",
]
ACCEPT = "peers.listener.accept_all"
CONNECTION = "connections.admission.Admission._run"
DATA = "the data"


class Lives(trio.abc.Instrument):
    """The tasks of the broker that began, and those that ended, in order."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.began.append(_plain(task.name))

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.ended.append(_plain(task.name))


def _plain(name: str) -> str:
    return name.removeprefix("segbroker.broker.")


@contextmanager
def looked_at() -> Iterator[Lives]:
    lives = Lives()
    trio.lowlevel.add_instrument(lives)
    try:
        yield lives
    finally:
        trio.lowlevel.remove_instrument(lives)


async def assembled(
    config: BrokerConfig,
    held: DiskManager,
    spawn: Callable[[Callable[[], Awaitable[None]]], None],
) -> Core:
    return await assemble(
        config,
        held,
        Lanes(1),
        spawn,
        bound=("127.0.0.1", 9092),
        certificates=(),
        descriptors_max=None,
        file_system=None,
        open_connections=lambda: 0,
        now_ms=wall_ms,
    )


async def test_nothing_runs_while_the_parts_are_made() -> None:
    held = manager()
    held.open()
    spawned: list[object] = []
    with looked_at() as lives:
        core = await assembled(merge({}), held, spawned.append)
    assert not lives.began
    assert not spawned
    assert core.bound == ("127.0.0.1", 9092)
    held.close()


async def test_a_part_that_cannot_be_made_ends_the_start_before_anything_runs(
    events: Events,
) -> None:
    keys = {"sasl_oauthbearer_jwks_endpoint_url": "file:///there/is/none"}
    broker = Broker(merge({"listen": "127.0.0.1:0", **keys}), manager=manager())
    with looked_at() as lives, pytest.raises(InvalidConfig, match="jwks_endpoint_url"):
        await broker.run()
    assert not lives.began
    assert events.named("broker_stopped"), "its data was closed"


async def test_nothing_begins_behind_or_ends_before_what_it_serves() -> None:
    held = manager()
    close = held.close
    with looked_at() as lives:

        def closed() -> None:
            lives.ended.append(DATA)
            close()

        vars(held)["close"] = closed
        broker = Broker(merge({"listen": "127.0.0.1:0", **PATIENT}), manager=held)
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            async with connect(broker.address) as client:
                await client.create("t")
                await client.send(fetch_request("t", 0, wait_ms=600_000), 12)
                while len(broker.core.deadlines) < 1:
                    await trio.lowlevel.checkpoint()
                broker.drain()
    assert [name for name in lives.began if name in SERVICES] == SERVICES
    assert lives.began.index(SERVICES[-1]) < lives.began.index(ACCEPT)
    assert lives.began.index(ACCEPT) < lives.began.index(CONNECTION)
    ends = {name: lives.ended.index(name) for name in (*SERVICES, ACCEPT, CONNECTION, DATA)}
    assert max(ends[ACCEPT], ends[CONNECTION]) < min(ends[name] for name in SERVICES)
    assert max(ends[name] for name in SERVICES) < ends[DATA]
