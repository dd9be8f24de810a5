"""The broker: opens the data directory, listens, serves, drains, closes.

    run    metrics page (its listener is there before the data is read)
             certificates       read before the data: a wrong file is said at once, each time
             bind_all           so is an address that another one has; nobody can connect yet
             manager.open       recovery; in a lane
               listen_all       whoever connects from here on waits in the backlog
                 assemble       the parts (assembling.py); nothing runs yet
                   services     tasks of the parts: deadlines, turn, express way, watchdog, chores
                     serving    accept, and a task per connection

    end    from the inside outwards; nothing ends before what it serves
           serving    drain() -> no more is accepted or read, what is in flight is answered
                              -> (drain_timeout_ms, or a second signal) cut the others
           services   scrub and cleaner stop at their next step, the tasks are cancelled
           listeners  closed, if they are not yet
           manager    synced and closed, also when anything above has failed
           metrics    the page that says how it goes is the last to end

This module makes no part and handles no request: it says what starts and ends, and in which order.

With `handle_signals` the first SIGTERM or SIGINT drains, the second cuts the connections, and
SIGHUP rereads the certificate.  Without it signals are left alone: for tests, and for brokers
inside other programs.

Invariants: the manager is closed however `run` ends; no task outlives `run`; once a drain has
begun, no request waits for new records.
"""

import math
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

from segbroker.protocol.kernel import KERNEL_IS_NATIVE
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.wal.journal import WalConfig

from .assembling import assemble
from .chores import (
    clean,
    keep_house,
    reopen,
    scrub,
    tell_stuck,
    tell_sums,
    watch_certificates,
)
from .configuration.config import BrokerConfig, join_address
from .configuration.descriptors import divide
from .configuration.file_system import file_system_of
from .configuration.locked_out import locked_out
from .connections.admission import Admission
from .connections.connection import Connection
from .connections.watchdog import watch
from .core import Core, wall_ms
from .loop.callbacks import Callbacks
from .loop.lanes import Lanes
from .loop.tasks import Tasks
from .loop.turn import end_passes
from .peers.listener import Listener, bind_all, certificates_of, listen_all
from .peers.tls import Certificate
from .producing.express import Express
from .producing.intake import PLAIN_FRAME_BYTES_MAX
from .reconfiguring import limit_open, reconfigure

if TYPE_CHECKING:
    from .metrics.pages import Pages

log = structlog.get_logger()

RESERVE_BYTES: Final = 1 << 20
"""Room kept on the volume of the data directory, for a start on a full disk."""


class Broker:
    """One broker. `await run()` in a nursery; `address` once it has started; `drain()` to end."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        manager: DiskManager | None = None,
        now_ms: Callable[[], int] = wall_ms,
        express: bool = hasattr(select, "epoll"),
        descriptors_max: int | None = None,
    ) -> None:
        """
        Args:
            config: the settings.
            manager: one to serve instead of that of `config.data` (tests: in memory); it is
                opened and closed here. Its `call_soon` should be that of `call_soon_here`.
            now_ms: the clock of timestamps and ages; deadlines are on trio's.
            express: whether what plain producers send takes the express way (express.py);
                False: the general one, as everywhere but on Linux. For tests.
            descriptors_max: how many the process may have, so that what is open stays below it
                (configuration/descriptors.py); None: nobody has said.
        """
        self.config = config
        self._descriptors_max = descriptors_max
        self._now_ms = now_ms
        self._manager = manager
        self._takes_express = express
        self.express: Express | None = None
        """Where connections wait that produce; None: there is no such way here."""
        self._certificates: dict[str, Certificate] = {}
        self._listeners: list[Listener] = []
        self._connections: set[Connection] = set()
        self._admission: Admission | None = None
        self._draining = trio.Event()
        self.pages: Pages | None = None
        self._metrics_bound: tuple[str, int] | None = None
        self._core: Core | None = None
        self._lanes: Lanes | None = None

    @property
    def address(self) -> tuple[str, int]:
        """host and port of the first listener; known once `run` has started."""
        return self.listeners[0].bound

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """host and port of the metrics page; known once `run` has started.  None: there is none."""
        return self._metrics_bound

    @property
    def listeners(self) -> list[Listener]:
        """Where it listens, in the order of the configuration; known once `run` has started."""
        assert self._listeners, "the broker has not started"
        return self._listeners

    @property
    def core(self) -> Core:
        """The parts that requests work with: for tests and statistics."""
        assert self._core is not None, "the broker has not started"
        return self._core

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._connections)

    @property
    def draining(self) -> bool:
        """Whether the broker has begun to end."""
        return self._draining.is_set()

    @property
    def half_request_bytes(self) -> int:
        """Bytes held of requests that are not whole yet."""
        assert self._admission is not None, "the broker has not started"
        return self._admission.half.held_bytes

    def drain(self) -> None:
        """Begin to end: `run` returns when what is in flight is answered. May be called again."""
        self._draining.set()

    async def reload_certificate(self) -> None:
        """Read the files of all certificates again: for connections from now on.  At any time: also
        of a broker that starts, or ends."""
        for certificate in self._own_certificates():
            assert self._lanes is not None, "it is there before them"
            with suppress(trio.ClosedResourceError):  # it has ended meanwhile
                await self._lanes.run(certificate.reload)

    def _own_certificates(self) -> list[Certificate]:
        """Those of the listeners, each once."""
        return list(dict.fromkeys(self._certificates.values()))

    async def run(
        self,
        *,
        handle_signals: bool = False,
        task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until drained. `task_status` gets the address when connections are accepted.

        Raises:
            StorageError: the data directory cannot be opened or closed.
            InvalidConfig: the settings name what is not there.
            OSError: an address cannot be bound, the certificate cannot be used.
        """
        try:
            await self._run_beside_pages(handle_signals, task_status)
        finally:
            if self._lanes is not None:
                self._lanes.close()

    async def _run_beside_pages(
        self, handle_signals: bool, task_status: trio.TaskStatus[tuple[str, int]]
    ) -> None:
        if not self.config.metrics_listen:
            await self._run(handle_signals, task_status)
            return
        # Not at the top: it takes longer to import than all else that a start without it needs.
        from .metrics.http_server import listen
        from .metrics.pages import Pages

        self.pages = pages = Pages()
        server = await listen(self.config.metrics_listen, pages)
        self._metrics_bound = server.bound
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run)
            try:
                await self._run(handle_signals, task_status)
            except Exception as exc:  # as it is: a nursery would put it into a group
                failure = exc
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _run(
        self, handle_signals: bool, task_status: trio.TaskStatus[tuple[str, int]]
    ) -> None:
        """The broker, from the opening of its data to the closing."""
        self._lanes = lanes = Lanes(self.config.lanes)
        self._certificates = certificates_of(self.config, self._now_ms)
        self._listeners = await bind_all(self.config, self._certificates)
        try:
            await self._open(lanes, handle_signals, task_status)
        finally:
            self._close_listeners()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.sock.close()

    async def _open(
        self,
        lanes: Lanes,
        handle_signals: bool,
        task_status: trio.TaskStatus[tuple[str, int]],
    ) -> None:
        """Serve what the data directory has, and close it."""
        manager = self._manager or DiskManager(
            self.config.data,
            call_soon=call_soon_here(),
            clock=time.perf_counter,
            flushers=self.config.flushers,
            wal=_wal_of(self.config),
            retention_interval_ms=self.config.retention_interval_ms,
            now_ms=self._now_ms(),
            reserve_bytes=RESERVE_BYTES,
        )
        manager.partitions.producer_expiration_ms = self.config.producer_id_expiration_ms
        limit_open(manager, divide(self._descriptors_max, self.config))
        await lanes.run(manager.open)
        log.info("recovery_reported", **manager.report.summary())
        try:
            listen_all(self.config, self._listeners)
            await self._serve(manager, lanes, handle_signals, task_status)
        finally:
            self._close_listeners()
            with trio.CancelScope(shield=True):
                await lanes.run(manager.close)
            log.info("broker_stopped")

    async def _serve(
        self,
        manager: DiskManager,
        lanes: Lanes,
        handle_signals: bool,
        task_status: trio.TaskStatus[tuple[str, int]],
    ) -> None:
        """Serve what `manager` has, from the first accept to the last answer."""
        tasks = Tasks()
        self._core = core = await assemble(
            self.config,
            manager,
            lanes,
            tasks.spawn,
            bound=self.address,
            certificates=self._own_certificates(),
            descriptors_max=self._descriptors_max,
            file_system=file_system_of(self.config.data) if self._manager is None else None,
            open_connections=self._connections.__len__,
            now_ms=self._now_ms,
        )
        if self._takes_express and core.config.frame_bytes_max >= PLAIN_FRAME_BYTES_MAX:
            self.express = Express(core, manager.call_soon)
        self._admission = Admission(core, self._connections, self.express, self._draining)
        async with trio.open_nursery() as services:
            tasks.begin(services)
            await self._start(services, core, self._admission)
            async with trio.open_nursery() as serving:
                if handle_signals:
                    await services.start(self._obey_signals, serving.cancel_scope)
                accepting = trio.CancelScope()
                serving.start_soon(
                    self._admission.accept_until, accepting, self._listeners, serving
                )
                self._say_started(core)
                if self.pages is not None:
                    self.pages.started(core, self._live_sent_bytes)
                task_status.started(core.bound)
                await self._draining.wait()
                accepting.cancel()
                serving.cancel_scope.deadline = (
                    trio.current_time() + core.config.drain_timeout_ms / 1000
                )
                self._finish_requests(core)
            # Every connection has ended by itself, or was cut off at the deadline.
            core.scrubber.stop()
            core.cleaner.stop()
            services.cancel_scope.cancel()
        tell_sums(core, math.inf)

    async def _start(self, services: trio.Nursery, core: Core, admission: Admission) -> None:
        """Have the parts go on with what they do without being asked."""
        core.settings.on_change = partial(reconfigure, core, admission.limits, admission.half)
        if core.config != self.config:  # by what was changed before this start
            core.settings.on_change(self.config, core.config)
        await core.transaction_upkeep.start()
        core.topics.on_opened = core.transaction_upkeep.partition_opened
        services.start_soon(core.deadlines.run)
        services.start_soon(core.turn.run)
        services.start_soon(end_passes, core.turn, core.topics.manager.call_soon)
        if self.express is not None:
            services.start_soon(self.express.run)
        services.start_soon(watch, core, self._connections)
        for chore in (keep_house, scrub, tell_stuck, reopen, clean):
            services.start_soon(chore, core)
        if core.authentication.keys is not None:
            services.start_soon(core.authentication.keys.run)
        if core.certificates:
            services.start_soon(watch_certificates, core)

    def _live_sent_bytes(self) -> int:
        """What the connections that are open have sent."""
        return sum(connection.outbox.sent_bytes for connection in self._connections)

    def _say_started(self, core: Core) -> None:
        log.info(
            "broker_started",
            address=join_address(*core.bound),
            listeners=[str(listener) for listener in self._listeners],
            data=self.config.data,
            cluster_id=core.topics.manager.cluster_id,
            file_system=None if core.file_system is None else core.file_system.kind,
            topics=len(core.topics.all),
            native_kernel=KERNEL_IS_NATIVE,
        )
        if core.file_system is not None and core.file_system.weakness is not None:
            kind, mount_point, effect = core.file_system
            log.warning("durability_weak", kind=kind, mount_point=mount_point, effect=effect)
        if not KERNEL_IS_NATIVE:
            log.warning("kernel_missing", effect="the pure-Python twin serves; it is slower")
        if core.descriptors.are_few:
            log.warning("descriptors_few", **core.descriptors.facts())
        protocols = [listener.protocol for listener in self._listeners]
        for event, advice in locked_out(core.topics.manager, core.config, protocols):
            log.warning(event, advice=advice)

    def _finish_requests(self, core: Core) -> None:
        """Read no further request; long polls are answered with what there is."""
        log.info("drain_began", connections=len(self._connections))
        core.is_draining = True
        for connection in self._connections:
            connection.drain()
        for partition in core.topics.served.values():
            for fetch in tuple(partition.fetches):
                fetch.complete()
        core.groups.close()
        core.turn.end()

    async def _obey_signals(
        self,
        serving: trio.CancelScope,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """The first signal drains, the second cuts off; a third finds Python's own handler."""
        wanted = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        with trio.open_signal_receiver(*wanted) as signals:
            task_status.started()
            async for number in signals:
                log.info("signal_received", signal=signal.Signals(number).name)
                if number == signal.SIGHUP:
                    await self.reload_certificate()
                    continue
                if self._draining.is_set():
                    serving.cancel()
                    break
                self.drain()


def call_soon_here() -> Callbacks:
    """A `call_soon` for the DiskManager of this loop."""
    return Callbacks()


def _wal_of(config: BrokerConfig) -> WalConfig:
    return WalConfig(
        shards=config.wal_shards,
        file_bytes=config.wal_file_bytes,
        shard_bytes=config.wal_bytes_max // config.wal_shards,
    )
