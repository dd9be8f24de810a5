"""The broker: opens the data directory, listens, serves, drains, closes.

    run()  open the manager -> bind -> serve ... drain() -> stop accepting
                                                         -> stop reading, answer what is in flight
                                                         -> (deadline) cut the other connections
                                                         -> sync and close the manager
    tasks: metrics page, around all of it
           accept | one per connection | deadlines | turn | express way | watchdog | chores
           | signing keys | signals; when needed: a drain of a slow reader, a read in a lane

This module makes the parts of a broker, in the order in which they need each other, and the nursery
that all tasks live in.  It handles no request: connections/ turns bytes into frames, requests.py
turns frames into calls.  All parts are in one `Core` (core.py).

With `handle_signals` the first SIGTERM or SIGINT drains, the second cuts the connections, and
SIGHUP rereads the certificate.  Without it signals are left alone: for tests, and for brokers
inside other programs.

Invariants: the manager is closed however `run` ends; no task outlives `run`; once a drain has
begun, no request waits for new records.
"""

import math
import select
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

from segbroker.protocol.kernel import KERNEL_IS_NATIVE
from segbroker.segments.directory.cleaner import Cleaner
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.directory.scrubbing import Scrubber
from segbroker.segments.wal.journal import WalConfig

from .access.address_limits import AddressLimits
from .access.audit import Audit
from .access.authentication import Authentication
from .access.authorizer import Authorizer
from .access.listener_limits import Gate, ListenerLimits
from .access.quotas import Quotas
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
from .configuration.connection_overrides import parse_overrides
from .configuration.descriptors import divide
from .configuration.file_system import file_system_of
from .configuration.locked_out import locked_out
from .configuration.settings import BrokerSettings
from .connections.connection import Connection, Shelf, reset_on_close
from .connections.handshakes import Handshakes
from .connections.watchdog import watch
from .core import Core, wall_ms
from .groups.group_settings import GroupSettings
from .groups.groups import Groups
from .groups.viewers import sight_of
from .loop.callbacks import Callbacks
from .loop.deadlines import Deadlines
from .loop.half_requests import HalfRequests
from .loop.ingest import Ingest
from .loop.lanes import Lanes
from .loop.pool import BufferPool
from .loop.turn import Turn, end_passes
from .partitions.topics import Topics
from .peers.listener import Listener, accept_all, bind_all
from .peers.tls import Certificate
from .principal import parse_principals
from .producing.express import Express
from .producing.intake import PLAIN_FRAME_BYTES_MAX
from .reconfiguring import default_quotas, limit_open, reconfigure
from .shares.shares import Shares
from .transactions.coordinator import Coordinator
from .transactions.markers import Markers
from .transactions.producer_ids import ProducerIds
from .transactions.transaction_upkeep import TransactionUpkeep

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
        self._listeners: list[Listener] = []
        self._connections: set[Connection] = set()
        self._handshakes = Handshakes()
        self._limits: AddressLimits
        self._draining = trio.Event()
        self.pages: Pages | None = None
        self._metrics_bound: tuple[str, int] | None = None
        self._core: Core | None = None
        self._lanes: Lanes | None = None
        self._shelf = Shelf(config.frame_bytes_max)
        self._half = HalfRequests(config.request_bytes_max, config.request_bytes_per_ip_max)

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
        return self._half.held_bytes

    def drain(self) -> None:
        """Begin to end: `run` returns when what is in flight is answered. May be called again."""
        self._draining.set()

    async def reload_certificate(self) -> None:
        """Read the files of all certificates again: for connections from now on.  At any time: also
        of a broker that starts, or ends."""
        for certificate in self._certificates:
            assert self._lanes is not None, "before there is one they were there"
            await self._lanes.run(certificate.reload)

    @property
    def _certificates(self) -> list[Certificate]:
        """Those of the listeners, each once."""
        found = (one.certificate for one in self._listeners)
        return list(dict.fromkeys(one for one in found if one is not None))

    async def run(
        self,
        *,
        handle_signals: bool = False,
        task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until drained. `task_status` gets the address when connections are accepted.

        Raises:
            StorageError: the data directory cannot be opened or closed.
            OSError: an address cannot be bound, the certificate cannot be used.
        """
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
            self._listeners = await bind_all(self.config)
            try:
                await self._serve(manager, lanes, handle_signals, task_status)
            finally:
                for listener in self._listeners:
                    listener.sock.close()
        finally:
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
        settings = BrokerSettings(self.config, manager)
        config = settings.config
        turn = Turn()
        ingest = Ingest(config.ingest_bytes_max)
        deadlines = Deadlines(turn.end)
        topics = Topics(manager, config, lanes, ingest, turn)
        await topics.choose_defaults()
        producer_ids = ProducerIds(manager, lanes)
        authentication = Authentication(manager, config, lanes)
        await lanes.run(authentication.prepare)
        if authentication.keys is not None:
            await authentication.keys.start()
        async with trio.open_nursery() as services:
            spawn = partial(_spawn, services)
            markers = Markers(topics, lanes, turn)
            coordinator = Coordinator(manager, config, markers, producer_ids, spawn, self._now_ms)
            quotas = Quotas(manager, default_quotas(config))
            self._limits = AddressLimits(
                most=config.connections_per_ip_max,
                overrides=parse_overrides(config.connections_per_ip_overrides),
                rate=config.connections_per_ip_per_second,
                quotas=quotas,
            )
            group_settings = GroupSettings(manager, config)
            authorizer = _authorizer_of(config, manager)
            groups = Groups(
                manager,
                config,
                deadlines,
                group_settings,
                turn.end,
                partial(sight_of, authorizer),
                coordinator.table.pending,
                self._now_ms,
            )
            group_settings.on_change = groups.settings_changed
            self._core = core = Core(
                config=config,
                settings=settings,
                descriptors=divide(self._descriptors_max, config),
                file_system=file_system_of(config.data) if self._manager is None else None,
                group_settings=group_settings,
                topics=topics,
                refusals=topics.refusals,
                producer_ids=producer_ids,
                groups=groups,
                shares=Shares(
                    manager,
                    topics,
                    group_settings,
                    deadlines,
                    lanes,
                    spawn,
                    turn.end,
                    self._now_ms,
                ),
                transactions=coordinator,
                transaction_upkeep=TransactionUpkeep(
                    coordinator, manager, config, markers, spawn, self._now_ms
                ),
                authentication=authentication,
                lanes=lanes,
                pool=BufferPool(config.fetch_buffer_bytes_max),
                ingest=ingest,
                turn=turn,
                deadlines=deadlines,
                spawn=spawn,
                bound=self.address,
                started_ms=self._now_ms(),
                started_at=trio.current_time(),
                now_ms=self._now_ms,
                open_connections=self._connections.__len__,
                listener_limits=ListenerLimits(config.listener_specs, config),
                scrubber=Scrubber(manager, config.scrub_bytes_per_second, config.scrub_interval_ms),
                cleaner=Cleaner(
                    manager,
                    config.cleaner_bytes_per_second,
                    config.cleaner_buffer_bytes,
                    config.cleaner_backoff_ms,
                ),
                authorizer=authorizer,
                all_quotas=quotas,
                quotas=quotas if quotas.is_active else None,
            )
            settings.on_change = partial(reconfigure, core, self._limits, self._half)
            if config != self.config:
                settings.on_change(self.config, config)
            core.transaction_upkeep.start()
            topics.on_opened = core.transaction_upkeep.partition_opened
            services.start_soon(core.deadlines.run)
            services.start_soon(turn.run)
            services.start_soon(end_passes, turn, manager.call_soon)
            if self._takes_express and config.frame_bytes_max >= PLAIN_FRAME_BYTES_MAX:
                self.express = Express(core, manager.call_soon)
                services.start_soon(self.express.run)
            services.start_soon(watch, core, self._connections)
            services.start_soon(keep_house, core)
            services.start_soon(scrub, core)
            services.start_soon(tell_stuck, core)
            services.start_soon(reopen, core)
            services.start_soon(clean, core)
            if authentication.keys is not None:
                services.start_soon(authentication.keys.run)
            if certificates := self._certificates:
                services.start_soon(watch_certificates, core, certificates)
            async with trio.open_nursery() as serving:
                if handle_signals:
                    await services.start(self._obey_signals, serving.cancel_scope)
                accepting = trio.CancelScope()
                serving.start_soon(self._accept_until, accepting, serving)
                self._say_started(core)
                if self.pages is not None:
                    self.pages.started(core, self._listeners, self._live_sent_bytes)
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

    def _live_sent_bytes(self) -> int:
        """What the connections that are open have sent."""
        return sum(connection.outbox.sent_bytes for connection in self._connections)

    def _say_started(self, core: Core) -> None:
        log.info(
            "broker_started",
            address=join_address(*core.bound),
            listeners=[str(listener) for listener in self._listeners],
            data=self.config.data,
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

    async def _accept_until(self, ended: trio.CancelScope, serving: trio.Nursery) -> None:
        with ended:
            async with trio.open_nursery() as accepting:
                for listener in self._listeners:
                    gate = self.core.listener_limits.gates[listener.spec.name]
                    accepted = partial(self._accept, serving, listener, gate)
                    accepting.start_soon(accept_all, listener.sock, accepted, gate)
        for listener in self._listeners:
            trio.lowlevel.notify_closing(listener.sock)
            listener.sock.close()

    def _accept(
        self,
        serving: trio.Nursery,
        listener: Listener,
        gate: Gate,
        sock: socket.socket,
        address: tuple[str, int],
    ) -> None:
        core, limits, now = self.core, self._limits, trio.current_time()
        gate.arrived(now)
        if self._draining.is_set():
            reset_on_close(sock)
            sock.close()
            return
        why = limits.why_refused(address[0], now)
        if len(self._connections) >= (most := core.descriptors.connections):
            few = most < core.config.connections_max
            reason = "too few file descriptors (LimitNOFILE)" if few else "too many connections"
            why = {"limit": most, "reason": reason}
        if why is not None:
            core.counters.connections_refused += 1
            facts = {**why, "listener": listener.spec.name}
            limits.refused(address[0], now, facts, core.closing_lines)
            sock.close()
            return
        connection = Connection(
            core,
            sock,
            address,
            listener=listener,
            shelf=self._shelf,
            half=self._half,
            express=self.express,
        )
        core.counters.connections += 1
        self._connections.add(connection)
        limits.opened(address[0])
        gate.opened()
        if listener.protocol.is_tls or listener.protocol.is_sasl:
            self._handshakes.begin(connection, core.config.handshakes_max)
        serving.start_soon(self._run_connection, connection, gate)

    async def _run_connection(self, connection: Connection, gate: Gate) -> None:
        log.debug("connection_opened", **connection.name())
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self._limits.closed(connection.peer.address[0])
            gate.closed()
            self._handshakes.closed(connection)
            log.debug("connection_closed", **connection.name())


def call_soon_here() -> Callbacks:
    """A `call_soon` for the DiskManager of this loop."""
    return Callbacks()


def _authorizer_of(config: BrokerConfig, manager: DiskManager) -> Authorizer | None:
    if config.authorizer == "none":
        return None
    return Authorizer(
        manager,
        super_users=parse_principals(config.super_users),
        allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found,
        audit=Audit(lines_max=config.audit_lines_max, allowed_too=config.audit_allowed),
    )


def _wal_of(config: BrokerConfig) -> WalConfig:
    return WalConfig(
        shards=config.wal_shards,
        file_bytes=config.wal_file_bytes,
        shard_bytes=config.wal_bytes_max // config.wal_shards,
    )


def _spawn(nursery: trio.Nursery, task: Callable[[], Awaitable[None]]) -> None:
    nursery.start_soon(_guarded, task)


async def _guarded(task: Callable[[], Awaitable[None]]) -> None:
    try:
        await task()
    except Exception:
        log.exception("task_failed")
