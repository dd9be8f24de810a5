"""The world under the real code: every door to clock, chance, threads and sockets leads there.

| door | in | leads to |
|---|---|---|
| `threading`, `SimpleQueue`, ThreadPoolExecutor | all of segments/ | threads.py |
| `queue` | broker/loop/callbacks.py | threads.py |
| `Workers` | broker/loop/lanes.py | a thread of threads.py for each job |
| trio.to_thread.run_sync | broker/access/key_source.py | a thread of threads.py |
| trio.lowlevel.wait_readable, wait_writable, notify_closing | broker/, client/ | network.py |
| select.epoll | broker/producing/express.py | poller.py |
| `bind` | broker/server.py | a listener of network.py |
| `socket` | client/transport.py | sockets of network.py |
| time.perf_counter | connection.py, express.py, intake.py, pace.py | the world's, with slow steps |
| monotonic_ns, time_ns | client/clock.py | the world's |
| Random() | client/* | streams of the seed |
| uuid4 | broker/groups/group_members.py, consumer_group_apis.py | a stream of the seed |
| trio's scheduler | trio | sorted, then shuffled by the seed |

Why patches and no seams in the product: each door is one name in one module, the hot path keeps
its direct calls, and a door that somebody adds shows itself as two traces of one seed.
"""

import logging
import queue
import select
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import UUID

import anyio._backends._trio as anyio_trio
import structlog
import trio
import trio._core._run as trio_run

import segbroker.broker.apis.consumer_group_apis
import segbroker.broker.connections.connection
import segbroker.broker.groups.group_members
import segbroker.broker.loop.callbacks
import segbroker.broker.loop.lanes
import segbroker.broker.loop.pace
import segbroker.broker.peers.listener
import segbroker.broker.producing.express
import segbroker.broker.producing.intake
import segbroker.client
import segbroker.client.clock
import segbroker.client.transport

from . import threads
from .network import Listener, Network, SimSocket
from .poller import Poller
from .world import World

# What the broker logs when it has met a bug of its own.
BUGS = frozenset(
    {
        "callback_failed",
        "deadline_failed",
        "flush_failed",
        "slot_not_abandoned",
        "slot_not_released",
        "turn_failed",
        "task_failed",
        "request_failed",
        "share_fetch_failed",
        "reply_failed",
        "lane_read_failed",
        "express_failed",
        "flush_crashed",
        "housekeeping_crashed",
    }
)

_REAL_LOCK, _REAL_RLOCK = type(threading.Lock()), type(threading.RLock())


async def _wait_writable(thing: Any) -> None:  # noqa: ANN401
    await thing.wait_writable()


def _notify_closing(thing: SimSocket | Listener) -> None:
    thing.close()


@contextmanager
def _replaced(changes: list[tuple[object, str, object]]) -> Iterator[None]:
    kept = [(where, name, getattr(where, name)) for where, name, _ in changes]
    for where, name, new in changes:
        setattr(where, name, new)
    try:
        yield
    finally:
        for where, name, old in kept:
            setattr(where, name, old)


def _modules(room: str) -> list[ModuleType]:
    prefix = f"segbroker.{room}."
    return [module for name, module in sorted(sys.modules.items()) if name.startswith(prefix)]


def _threads_of_segments() -> list[tuple[object, str, object]]:
    changes: list[tuple[object, str, object]] = []
    for module in _modules("segments"):
        for name, value in sorted(vars(module).items()):
            if value is threading:
                changes.append((module, name, threads.threading_module))
            elif getattr(value, "__module__", "") in ("_queue", "queue") and name in (
                "SimpleQueue",
                "Queue",
            ):
                changes.append((module, name, threads.SimpleQueue))
            elif value is ThreadPoolExecutor:
                changes.append((module, name, threads.Pool))
            elif isinstance(value, _REAL_LOCK):
                changes.append((module, name, threads.Lock()))
            elif isinstance(value, _REAL_RLOCK):
                changes.append((module, name, threads.RLock()))
    return changes


def _chance_of_client(world: World) -> list[tuple[object, str, object]]:
    chance = world.stream("clients")

    def seeded(*arguments: Any) -> Random:  # noqa: ANN401
        return Random(*arguments) if arguments else Random(chance.getrandbits(64))

    return [
        (module, "Random", seeded)
        for module in _modules("client")
        if getattr(module, "Random", None) is Random
    ]


@contextmanager
def simulated(world: World, network: Network, first: threads.Threads) -> Iterator[None]:
    """Everything inside happens in `world`.  `first` are the threads until a process starts."""

    async def wait_readable(thing: Any) -> None:  # noqa: ANN401
        await (network.numbered[thing] if isinstance(thing, int) else thing).wait_readable()

    async def bind(host: str, port: int) -> Listener:
        return Listener(network, (host, port))

    def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    sockets = SimpleNamespace(
        **{name: getattr(socket, name) for name in dir(socket) if name.isupper()}
    )
    sockets.socket = lambda *_: SimSocket(network)
    sockets.getaddrinfo = getaddrinfo
    timing = SimpleNamespace(perf_counter=world.perf_counter)
    polling = SimpleNamespace(epoll=lambda: Poller(network), EPOLLIN=select.EPOLLIN)
    queues = SimpleNamespace(SimpleQueue=threads.SimpleQueue, Empty=queue.Empty)

    ids = world.stream("uuids")

    def uuid4() -> UUID:
        return UUID(int=ids.getrandbits(128), version=4)

    threads.use(first)
    trio_run._r.seed(f"{world.seed}/scheduler")
    changes: list[tuple[object, str, object]] = [
        (trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        (trio.lowlevel, "wait_readable", wait_readable),
        (trio.lowlevel, "wait_writable", _wait_writable),
        (trio.lowlevel, "notify_closing", _notify_closing),
        (anyio_trio, "wait_readable", wait_readable),
        (anyio_trio, "wait_writable", _wait_writable),
        (anyio_trio, "notify_closing", _notify_closing),
        (segbroker.broker.peers.listener, "bind", bind),
        (segbroker.broker.groups.group_members, "uuid4", uuid4),
        (segbroker.broker.apis.consumer_group_apis, "uuid4", uuid4),
        (segbroker.broker.loop.callbacks, "queue", queues),
        (segbroker.broker.loop.lanes, "Workers", threads.Workers),
        (segbroker.broker.connections.connection, "time", timing),
        (segbroker.broker.producing.express, "select", polling),
        (segbroker.broker.producing.express, "time", timing),
        (segbroker.broker.producing.intake, "time", timing),
        (segbroker.broker.loop.pace, "time", timing),
        (segbroker.client.transport, "socket", sockets),
        (segbroker.client.clock, "monotonic_ns", world.monotonic_ns),
        (segbroker.client.clock, "time_ns", world.wall_ns),
        *_threads_of_segments(),
        *_chance_of_client(world),
    ]
    with _replaced(changes), patch.object(trio.to_thread, "run_sync", threads.run_in_thread):
        structlog.configure(processors=[_Listening(world)], cache_logger_on_first_use=False)
        # Brokers that are away are what this is about; lines about them would hide the verdicts.
        client_log = logging.getLogger("segbroker.client")
        client_log.disabled = True
        try:
            yield
        finally:
            client_log.disabled = False
            structlog.reset_defaults()


class _Listening:
    """A structlog processor: log lines go to the trace, those about bugs to the verdict."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(self, logger: object, method: str, event: Any) -> Any:  # noqa: ANN401
        name = event["event"]
        if name in BUGS:
            error = sys.exc_info()[1]
            if not isinstance(error, threads.Killed):
                said = "".join(traceback.format_exception(error)) if error else ""
                self._world.violation(f"the broker logged {name}: {error!r}\n{said}")
        self._world.trace("log", name, event.get("topic", ""), event.get("error", ""))
        raise structlog.DropEvent
