"""The express way: plain Produce requests of many connections, read, appended and synced together.

    parked connections -> one epoll -> | receive each, scan (protocol.produce_scan)      |
                                       | a run per partition: one append, one WAL frame  | a pass
                                       | one sync for all, replies                       |
    anything else a connection brings -> given to its task, which goes the general way

A connection that produces parks here instead of waiting in the loop: while it sends plain requests
its task does not run at all, so what a request costs is its share of a pass.  All that is not
plain, or meets anything unusual (a partition that is not open, a full connection, a reply that its
peer does not take, quotas) makes the connection leave with the
bytes that nobody has looked at yet; its task goes on with them.  So there is one place that says
what is legal, and the answers are the same both ways (tested).

| limit | at it |
|---|---|
| ARENA_BYTES, rows, CONNECTIONS_MAX of a pass | the others come with the next pass |
| PASS_S of a pass | the same; who was received from longest ago comes first then |
| RUNS_MAX partitions of an append | they are appended, others come behind them |
| TURN_S of passes without a break | the loop's other tasks run |
| ingest budget | no connection is read, as everywhere |
| slots_max of a connection | it leaves |
| half a request of more than CARRY_MAX bytes | it leaves |
| `frame_bytes_max` below PLAIN_FRAME_BYTES_MAX | nobody parks: it is checked the general way |

When nobody is ready the loop waits up to SYNC_S for the sync that others wait for: to be woken by
way of a socket, and to compete with the WAL's thread for the interpreter meanwhile, costs more than
a quick sync takes.  After one that was not quick nothing is waited for during PAUSE_S, so a slow
disk holds up whoever else there is for a part in twenty of the time, half a millisecond at once.

Who was alone in this pass and in the one before has its request appended, synced and answered in
one go, without a place in any queue (lone.py).

After replies the sockets are looked at for up to HOLD_S more, as long as that pays: going to sleep
and being woken costs more than it takes a lone client to come again.

Invariants: a connection is parked here or its task runs, never both; bytes that were received are
either answered here or given to the task, in order.
"""

import select
import time
from typing import Final

import structlog
import trio

from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.hot import SingleProduce
from segbroker.protocol.limits import TOPIC_NAME_SIZE_MAX
from segbroker.protocol.produce_scan import Column, ProduceScan

from ..core import Core
from ..loop.callbacks import Callbacks
from ..partitions.partition import Partition
from .lone import Lone
from .produce_run import Run
from .seat import CARRY_MAX, CREDIT_MAX, Seat, is_half
from .single_produce import append_single

log = structlog.get_logger()

ARENA_BYTES: Final = 512 << 10
SPACE_BYTES: Final = 64 << 10
"""What one receive may bring."""
PLAIN_FRAME_BYTES_MAX: Final = SPACE_BYTES + CARRY_MAX
"""No request that is taken here is larger; where less is allowed nobody parks."""
SPACE_BYTES_MIN: Final = 16 << 10
ROWS_MAX: Final = 1_024
CONNECTIONS_MAX: Final = 256
PASS_S: Final = 0.005
TURN_S: Final = 0.001
HOLD_S: Final = 0.00008
SYNC_S: Final = 0.0005
PAUSE_S: Final = 0.01
HOLDS_MAX: Final = 8
RUNS_MAX: Final = 64
HOLD_REST: Final = 64
"""Turns without a look after HOLDS_MAX in vain; then it is tried once."""
NAMES_MAX: Final = 10_000

_PRODUCE: Final = 0
# As plain numbers: an enum member costs a look-up per request.
(
    _FRAME_BEGIN,
    _FRAME_END,
    _VERSION,
    _CORRELATION,
    _CLIENT_BEGIN,
    _CLIENT_END,
    _NAME_BEGIN,
    _NAME_END,
    _PARTITION,
    _TIMEOUT,
    _RECORDS_BEGIN,
    _RECORDS_SIZE,
    _OFFSETS_COUNT,
    _MAX_TIMESTAMP,
    _IS_TRACKED,
    _STRETCH,
) = (int(column) for column in Column)


class Express:
    """All connections that are parked, and the passes over them."""

    def __init__(self, core: Core, call_soon: object) -> None:
        """call_soon: that of the DiskManager; one that can be waited for is."""
        self.passes = 0
        self.requests = 0
        self._core = core
        self._callbacks = call_soon if isinstance(call_soon, Callbacks) else None
        self._not_before = 0.0
        self._waiting: list[Partition] = []
        self._epoll = select.epoll()
        self._seats: dict[int, Seat] = {}
        self._scan = ProduceScan(ARENA_BYTES, ROWS_MAX)
        self._view = memoryview(self._scan.data)
        self._columns = self._scan.columns
        self._names: dict[bytes, str] = {}
        self._runs: dict[Partition, Run] = {}
        self._begun: list[Run] = []
        self._left = False
        self._is_cut = False
        self._last = -1
        """Who was ready in the last pass, if that was one alone."""
        self._lone = Lone(core)
        self._is_alone = False
        """Whether that one is alone in this pass, too."""
        self._holds = HOLDS_MAX
        self._ready: list[tuple[int, int]] = []
        """Who was ready at the last look, if that was not in a pass."""

    async def park(self, seat: Seat) -> bytes:
        """Wait until the connection brings what is not for here: those bytes, if any were read.

        Raises OSError: the connection is broken.
        """
        client_id = seat.peer.client_id
        seat.client = None if client_id is None else client_id.encode()
        try:
            self._epoll.register(seat.fd, select.EPOLLIN)
        except OSError as exc:  # the system has no room for another one
            log.warning("express_refused", error=str(exc))
            seat.credit = 0
            return b""
        seat.task = trio.lowlevel.current_task()
        self._seats[seat.fd] = seat

        def abort(_: object) -> trio.lowlevel.Abort:
            self._remove(seat)
            return trio.lowlevel.Abort.SUCCEEDED

        seat.error = None
        await trio.lowlevel.wait_task_rescheduled(abort)
        if seat.error is not None:
            raise seat.error
        brought, seat.carry = seat.carry, b""
        return brought

    def _remove(self, seat: Seat) -> None:
        del self._seats[seat.fd]
        if not self._epoll.closed:
            self._epoll.unregister(seat.fd)

    def _leave(self, seat: Seat, error: OSError | None = None) -> None:
        """Let its task go on, with what is carried."""
        self._remove(seat)
        self._left = True
        seat.error = error
        assert seat.task is not None, "it was parked"
        trio.lowlevel.reschedule(seat.task)

    async def run(self) -> None:
        """Pass after pass, for ever."""
        with self._epoll:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                await self._run_turn()

    async def _run_turn(self) -> None:
        """Passes until nobody is ready and nobody is expected."""
        clock, ingest = time.perf_counter, self._core.ingest
        over = clock() + TURN_S
        while True:
            if ingest.full:
                await ingest.wait_room()
            if not (self._pass() or self._wait_synced() or self._hold(over)):
                return
            if self._left or clock() >= over:
                self._left = False
                await trio.lowlevel.checkpoint()
                over = clock() + TURN_S

    def _wait_synced(self) -> bool:
        """Nobody is ready: wait a moment for the sync that others wait for; whether it is done."""
        if self._callbacks is None or not self._waiting:
            return False
        clock = time.perf_counter
        now = clock()
        if now < self._not_before:
            return False
        until = now + SYNC_S
        while any(partition.appends_waiting for partition in self._waiting):
            if not self._callbacks.wait(until - now):
                self._not_before = clock() + PAUSE_S  # the disk is slow, the loop has other work
                break
            now = clock()
            if now >= until:
                break
        else:
            self._waiting.clear()
            return True
        return False

    def _hold(self, until: float) -> bool:
        """Look for more for a moment, if that paid lately; whether there is."""
        if self._holds <= 0:
            self._holds -= 1
            if self._holds > -HOLD_REST:
                return False
            self._holds = 1
        clock, poll = time.perf_counter, self._epoll.poll
        until = min(until, clock() + HOLD_S)
        while clock() < until:
            if ready := poll(0, CONNECTIONS_MAX):
                self._ready = ready
                self._holds = HOLDS_MAX
                return True
        self._holds -= 1
        return False

    def _pass(self) -> bool:
        """Serve whoever is ready; whether anybody was answered. Never raises."""
        ready, self._ready = self._ready or self._epoll.poll(0, CONNECTIONS_MAX), []
        if not ready:
            return False
        self.passes += 1
        self._waiting.clear()
        served = 0
        only = ready[0][0] if len(ready) == 1 else -1
        self._is_alone = only >= 0 and only == self._last
        self._last = only
        met = [seat for fd, _ in ready if (seat := self._seats.get(fd)) is not None]
        try:
            served = self._receive(self._in_turn([fd for fd, _ in ready]))
            self._append()
        except Exception:  # a bug: those whose requests were lost in it are closed
            log.exception("express_failed")
            self._runs.clear()
            for seat in met:  # also who has left meanwhile: nobody would answer its run
                if not seat.peer.outbox.broken:
                    self._core.counters.connections_failed += 1
                    seat.peer.outbox.break_off()
        self._core.turn.end()
        # A sync that is done here leaves nothing to wait for.
        self._core.turn.end_pass(lone=self._is_alone)
        for run in self._begun:
            run.begin_wait()
        self._begun.clear()
        return served > 0

    def _in_turn(self, ready: list[int]) -> list[int]:
        """These, whoever was received from longest ago first: the kernel lists those who are
        always ready in the same order again and again, and a pass may not reach the last."""
        if self._is_cut:
            seats = self._seats
            ready.sort(key=lambda fd: seats[fd].received_in if fd in seats else 0)
        return ready

    def _receive(self, ready: list[int]) -> int:
        """Receive from these, and take up what is plain; how many requests."""
        scan, view, clock = self._scan, self._view, time.perf_counter
        core = self._core
        over = clock() + PASS_S
        at = rows = served = 0
        self._is_cut = True
        for fd in ready:
            seat = self._seats.get(fd)
            if seat is None:
                continue
            if ARENA_BYTES - at < SPACE_BYTES_MIN + CARRY_MAX or rows == ROWS_MAX:
                break
            if core.ingest.full or clock() >= over:
                break
            outbox = seat.peer.outbox
            if outbox.unsent or outbox.broken or core.quotas is not None:
                self._leave(seat)
                continue
            seat.received_in = self.passes
            begin = at
            if seat.carry:
                at += len(seat.carry)
                view[begin:at] = seat.carry
            try:
                size = seat.sock.recv_into(view[at : at + SPACE_BYTES])
            except (BlockingIOError, InterruptedError):
                at = begin
                continue
            except OSError as exc:
                self._leave(seat, exc)
                at = begin
                continue
            if not size:
                self._leave(seat)
                at = begin
                continue
            seat.carry = b""
            seat.reads += 1
            at += size
            count, stop = scan.scan(begin, at, rows)
            taken = self._take(seat, rows, min(count, core.config.slots_max - len(outbox)), over)
            if taken < count:
                stop = self._columns[_FRAME_BEGIN * ROWS_MAX + rows + taken]
            rows += count
            served += taken
            if taken:
                seat.credit = CREDIT_MAX
            if stop < at:
                seat.carry = bytes(view[stop:at])
                if not is_half(seat.carry):
                    seat.credit -= not taken
                    self._leave(seat)
        else:
            self._is_cut = False
        core.counters.requests += served
        self.requests += served
        return served

    def _take(self, seat: Seat, first: int, count: int, over: float) -> int:
        """Take up these rows of one connection, as far as they are for here and there is time
        until `over`; how many."""
        clock = time.perf_counter
        columns, stride, view, core = self._columns, ROWS_MAX, self._view, self._core
        peer = seat.peer
        is_watched = core.authorizer is not None
        row, end = first, first + count
        while row < end:
            begin = columns[_CLIENT_BEGIN * stride + row]
            client = None if begin < 0 else view[begin : columns[_CLIENT_END * stride + row]]
            if client != seat.client:
                break
            name = self._name(
                columns[_NAME_BEGIN * stride + row], columns[_NAME_END * stride + row]
            )
            index = columns[_PARTITION * stride + row]
            partition = core.topics.served_partition(name, index)
            if partition is None:
                break
            timeout_ms = columns[_TIMEOUT * stride + row]
            version = columns[_VERSION * stride + row]
            at = columns[_RECORDS_BEGIN * stride + row]
            if (
                is_watched
                or columns[_IS_TRACKED * stride + row]
                or not partition.handler.takes_runs
            ):
                if row > first and clock() >= over:
                    break
                self._append()  # what came before it is appended before it
                correlation_id = columns[_CORRELATION * stride + row]
                header = RequestHeader(_PRODUCE, version, correlation_id, None, 0)
                records = view[at : at + columns[_RECORDS_SIZE * stride + row]]
                request = SingleProduce(-1, timeout_ms, name, index, records)
                append_single(core, peer, header, request)
                self._waiting.append(partition)
                row += 1
                continue
            if (
                self._is_alone
                and end == first + 1
                and peer.outbox.is_idle
                and not partition.appends_waiting
            ):
                outcome = self._lone.produce(
                    partition,
                    timeout_ms,
                    peer,
                    version,
                    columns[_CORRELATION * stride + row],
                    view[at : at + columns[_RECORDS_SIZE * stride + row]],
                    columns[_OFFSETS_COUNT * stride + row],
                    columns[_MAX_TIMESTAMP * stride + row],
                )
                if outcome:
                    core.counters.produce_requests += 1
                    if outcome is not True:
                        self._begun.append(outcome)
                        self._waiting.append(partition)
                    return 1
            run = self._runs.get(partition)
            if run is None or run.timeout_ms != timeout_ms:
                if run is not None or len(self._runs) == RUNS_MAX:
                    self._append()
                    if row > first and clock() >= over:
                        break
                run = self._runs[partition] = Run(core, partition, timeout_ms)
            # A stretch that was begun alone has the rest of its rows behind it.
            until = min(row + (columns[_STRETCH * stride + row] or 1), end)
            sizes = columns[_RECORDS_SIZE * stride + row : _RECORDS_SIZE * stride + until]
            begins = columns[_RECORDS_BEGIN * stride + row : _RECORDS_BEGIN * stride + until]
            run.add(
                peer,
                version,
                columns[_CORRELATION * stride + row : _CORRELATION * stride + until],
                [view[at : at + size] for at, size in zip(begins, sizes, strict=True)],
                sizes,
                columns[_OFFSETS_COUNT * stride + row : _OFFSETS_COUNT * stride + until],
                columns[_MAX_TIMESTAMP * stride + row : _MAX_TIMESTAMP * stride + until],
            )
            core.counters.produce_requests += until - row
            row = until
        return row - first

    def _name(self, begin: int, end: int) -> str:
        """The name of a topic; empty where it cannot be one."""
        if end - begin > TOPIC_NAME_SIZE_MAX:
            return ""  # whatever is remembered here is bounded by this, too
        encoded = bytes(self._view[begin:end])
        name = self._names.get(encoded)
        if name is None:
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            try:
                name = encoded.decode()
            except UnicodeDecodeError:
                name = ""
            self._names[encoded] = name
        return name

    def _append(self) -> None:
        """Append what was taken up so far."""
        if not self._runs:
            return
        now_ms = self._core.now_ms()
        runs = list(self._runs.values())
        self._runs.clear()
        for run in runs:
            run.append(now_ms)
            if not run.done:
                self._begun.append(run)
                self._waiting.append(run.partition)
