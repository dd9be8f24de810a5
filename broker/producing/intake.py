"""One pass of the express way (express.py): what is received, and what becomes of it.

    sockets -> one call in C: receive from many, scan -> rows
        plain                              -> the run of its partition: one append for all of it
        plain, but idempotent, or watched  -> appended by itself
        the beginning of a request         -> carried to the next receive
        anything else                      -> the connection leaves, its task goes on with the bytes

C does most of the work: one call receives and scans, and two calls per run gather its batches and
send its replies (exchange.py).  Python decides who asks, where the batch goes, and where the reply
stands in the order of its connection.  Requests of one call that go the same *way* (same client,
version, partition and timeout) are looked up once.

A connection that carries half a request, or that is no socket of the system (in tests), is received
from by a call of its own.

A pass may end before it has reached every ready connection.  After that, the connection whose last
receive is longest ago comes first, until all have had their turn.  So a ready connection waits for
at most one receive of each of the others (docs/decisions/0171).

Limits: see express.py.
"""

import errno
import os
import select
import time
from array import array
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple
from uuid import UUID

from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.hot import SingleProduce
from segbroker.protocol.limits import TOPIC_NAME_SIZE_MAX
from segbroker.protocol.produce_scan import Column

from ..core import Core
from ..partitions.partition import Partition
from ..partitions.topic_ids import PRODUCE_SINCE, name_of
from .exchange import RESULTS, Exchange
from .lone import Lone
from .produce_run import Run
from .seat import CARRY_MAX, CREDIT_MAX, Seat, is_half
from .single_produce import append_single

ARENA_BYTES: Final = 512 << 10
SPACE_BYTES: Final = 64 << 10
"""What one receive may bring."""
PLAIN_FRAME_BYTES_MAX: Final = SPACE_BYTES + CARRY_MAX
"""No request that is taken here is larger; where less is allowed nobody parks."""
SPACE_BYTES_MIN: Final = 16 << 10
ROWS_MAX: Final = 1_024
CONNECTIONS_MAX: Final = 256
"""That one look at the sockets lists."""
TOGETHER_MAX: Final = 64
"""Connections that one call receives from; the clock is looked at behind it."""
PASS_S: Final = 0.005
RUNS_MAX: Final = 64
NAMES_MAX: Final = 10_000
_NOT_NOW: Final = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)

_RECEIVED_IN: Final = attrgetter("received_in")

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


class Way(NamedTuple):
    """Where a request went."""

    client: bytes | None
    run: Run
    version: int


class Intake:
    """The buffer that passes receive into, and the runs of the pass."""

    def __init__(
        self,
        core: Core,
        seats: dict[int, Seat],
        leave: Callable[[Seat, OSError | None], None],
    ) -> None:
        """seats: who is parked, by descriptor; leave: let the task of one go on."""
        self.requests = 0
        self.waiting: list[Partition] = []
        """Where something was appended in this pass that may wait to be durable."""
        self.begun: list[Run] = []
        """What was appended in this pass and is not settled."""
        self._in_turns_until = 0
        """The pass by which whoever was not reached has been listed again."""
        self._core = core
        self._seats = seats
        self._leave = leave
        self._scan = Exchange(ARENA_BYTES, ROWS_MAX, connections_max=TOGETHER_MAX)
        self._view = memoryview(self._scan.data)
        self._columns = self._scan.columns
        self._lone = Lone(core, self._scan)
        self._is_alone = False
        self._names: dict[bytes, str] = {}
        self._runs: dict[Partition, Run] = {}
        self._ways: dict[int, Way] = {}
        """By the row that was the first to go there, of the last call."""
        self._way: Way | None = None
        """Where the last row went, if it went into a run."""
        self._number = 0
        self._over = 0.0
        self._received = 0
        """Bytes of this pass."""
        self._at = self._rows = 0
        """How much of buffer and rows the pass has used."""

    def give_up(self) -> None:
        """Forget what was taken up and not appended: its connections are closed."""
        self._runs.clear()
        self._ways.clear()

    def take_up(self, ready: list[Seat], number: int, *, is_alone: bool) -> int:
        """Receive from these in pass `number` and append what is plain; how many requests.

        is_alone: there is one, who was alone in the pass before as well.
        """
        self._begin(number, is_alone)
        if is_alone and len(ready) == 1 and self.is_owed_nothing(ready[0]):
            seat = ready[0]
            served = self._received_alone(seat, *self._scan.receive_one(seat.fd, SPACE_BYTES))
        else:
            served = self._receive(ready)
        self._end(served)
        return served

    def hold(self, seat: Seat, epoll: select.epoll, number: int, nanoseconds: int) -> bool:
        """As `take_up` of one who was alone and is owed nothing, as soon as it brings anything,
        looked at for so long; False: it did not, or others are ready."""
        brought = self._scan.hold_one(epoll, seat.fd, nanoseconds, SPACE_BYTES)
        if brought is None:
            return False
        self._begin(number, True)
        self._end(self._received_alone(seat, *brought))
        return True

    def _begin(self, number: int, is_alone: bool) -> None:
        self._number = number
        self._is_alone = is_alone
        self._received = 0
        self.waiting.clear()

    def _end(self, served: int) -> None:
        counters = self._core.counters
        counters.tally.requests[_PRODUCE] += served
        counters.received_bytes += self._received
        self.requests += served
        if self._runs:
            self._append()

    def is_owed_nothing(self, seat: Seat) -> bool:
        """Whether this one may be received from and answered by the calls for who is alone."""
        return (
            seat.exchange_fd >= 0
            and not seat.carry
            and seat.peer.outbox.is_idle
            and self._core.quotas is None
        )

    def _receive(self, ready: list[Seat]) -> int:
        """Receive from these, and take up what is plain; how many requests."""
        self._over = time.perf_counter() + PASS_S
        self._at = self._rows = 0
        served = 0
        for some in self._in_turns(ready):
            fds, together, apart = array("i"), [], []
            for seat in some:
                outbox = seat.peer.outbox
                if outbox.unsent or outbox.broken or self._core.quotas is not None:
                    self._leave(seat, None)
                elif seat.carry or seat.exchange_fd < 0:
                    apart.append(seat)
                else:
                    fds.append(seat.fd)
                    together.append(seat)
            count, is_cut = self._receive_together(fds, together)
            served += count
            if not is_cut:
                count, is_cut = self._receive_apart(apart)
                served += count
            if is_cut:
                self._in_turns_until = self._number + len(self._seats) // CONNECTIONS_MAX + 1
                break
        return served

    def _in_turns(self, ready: list[Seat]) -> Iterable[Iterable[Seat]]:
        """Those who were received from in the same pass, longest ago first; all at once where the
        last passes have reached everybody.

        The kernel lists those who are always ready in the same order again and again, so many at a
        time, and a pass may not reach the last of them.
        """
        if self._number > self._in_turns_until:
            return (ready,)
        ready.sort(key=_RECEIVED_IN)
        return (list(some) for _, some in groupby(ready, _RECEIVED_IN))

    @property
    def _is_over(self) -> bool:
        """Whether this pass receives nothing more."""
        return (
            ARENA_BYTES - self._at < SPACE_BYTES_MIN + CARRY_MAX
            or self._rows == ROWS_MAX
            or self._core.ingest.full
            or time.perf_counter() >= self._over
        )

    def _receive_together(self, fds: "array[int]", seats: list[Seat]) -> tuple[int, bool]:
        """Receive from these with a call for many: (how many requests, whether some are left)."""
        results, served = self._scan.results, 0
        for begin in range(0, len(fds), TOGETHER_MAX):
            if self._is_over:
                return served, True
            some = fds[begin : begin + TOGETHER_MAX]
            count = self._scan.receive(
                some, self._at, self._rows, least=SPACE_BYTES_MIN + CARRY_MAX, most=SPACE_BYTES
            )
            place = 0
            for seat in seats[begin : begin + count]:
                at, size, first, rows, stop, way = results[place : place + RESULTS]
                place += RESULTS
                if size <= 0:
                    self._received_nothing(seat, size)
                    continue
                self._at = at + size
                self._rows = first + rows
                self._received += size
                seat.received_in = self._number
                seat.reads += 1
                if rows == 1 and stop == at + size and self._joins(seat, first, way):
                    served += 1
                else:
                    served += self._sort(seat, at, size, first, rows, stop, way)
            self._ways.clear()
            if count < len(some):
                return served, True
        return served, False

    def _received_nothing(self, seat: Seat, size: int) -> None:
        """It has closed, or this is the errno below 0."""
        if -size not in _NOT_NOW and seat.fd in self._seats:
            self._leave(seat, OSError(-size, os.strerror(-size)) if size else None)

    def _received_alone(self, seat: Seat, size: int, rows: int, stop: int) -> int:
        """As `_receive` of one who is owed nothing, which brought this."""
        if size <= 0:
            self._received_nothing(seat, size)
            return 0
        self._received += size
        seat.received_in = self._number
        seat.reads += 1
        self._over = time.perf_counter() + PASS_S
        return self._sort(seat, 0, size, 0, rows, stop, -1)

    def _receive_apart(self, seats: list[Seat]) -> tuple[int, bool]:
        """As `_receive_together`, one by one: behind what they carry, or from what is no socket of
        the system."""
        view, served = self._view, 0
        for seat in seats:
            if self._is_over:
                return served, True
            seat.received_in = self._number
            begin = self._at
            at = begin + len(seat.carry)
            view[begin:at] = seat.carry
            try:
                size = seat.sock.recv_into(view[at : at + SPACE_BYTES])
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as exc:
                self._leave(seat, exc)
                continue
            if not size:
                self._leave(seat, None)
                continue
            seat.carry = b""
            seat.reads += 1
            self._received += size
            self._at = at + size
            first = self._rows
            rows, stop = self._scan.scan(begin, self._at, first)
            self._rows += rows
            served += self._sort(seat, begin, self._at - begin, first, rows, stop, -1)
        return served, False

    def _joins(self, seat: Seat, row: int, way: int) -> bool:
        """Whether its one request goes where one before it went: taken up then."""
        known = self._ways.get(way)
        if known is None or known.client != seat.client or not seat.peer.outbox.is_idle:
            return False
        size = self._columns[_RECORDS_SIZE * ROWS_MAX + row]
        known.run.add(seat, known.version, row, row + 1, size)
        self._core.counters.produce_requests += 1
        seat.credit = CREDIT_MAX
        return True

    def _sort(
        self, seat: Seat, begin: int, size: int, first: int, rows: int, stop: int, way: int
    ) -> int:
        """Take up what is for here of what was received; how many requests."""
        if seat.fd not in self._seats:
            return 0  # it broke while others were appended
        outbox = seat.peer.outbox
        self._way = None
        taken = self._take(seat, first, min(rows, self._core.config.slots_max - len(outbox)))
        if taken < rows:
            stop = self._columns[_FRAME_BEGIN * ROWS_MAX + first + taken]
        elif rows == 1 and way >= 0 and self._way is not None:
            self._ways[way] = self._way
        if taken:
            seat.credit = CREDIT_MAX
        if stop < begin + size:
            seat.carry = bytes(self._view[stop : begin + size])
            if not is_half(seat.carry):
                seat.credit -= not taken
                self._leave(seat, None)
        return taken

    def _take(self, seat: Seat, first: int, count: int) -> int:
        """Take up these rows of one connection, as far as they are for here and the pass has time;
        how many."""
        clock, over = time.perf_counter, self._over
        columns, stride, view, core = self._columns, ROWS_MAX, self._view, self._core
        peer = seat.peer
        is_watched = core.authorizer is not None
        row, end = first, first + count
        while row < end:
            begin = columns[_CLIENT_BEGIN * stride + row]
            client = None if begin < 0 else view[begin : columns[_CLIENT_END * stride + row]]
            if client != seat.client:
                break
            version = columns[_VERSION * stride + row]
            begin = columns[_NAME_BEGIN * stride + row]
            if version >= PRODUCE_SINCE:
                name = name_of(core.topics, UUID(bytes=bytes(view[begin : begin + 16])))
            else:
                name = self._name(begin, columns[_NAME_END * stride + row])
            index = columns[_PARTITION * stride + row]
            partition = core.topics.served_partition(name, index)
            if partition is None:
                break
            timeout_ms = columns[_TIMEOUT * stride + row]
            if (
                is_watched
                or columns[_IS_TRACKED * stride + row]
                or not partition.handler.takes_runs
            ):
                if partition.handler.config.recompression is not None:
                    break  # which takes a lane
                if row > first and clock() >= over:
                    break
                self._append()  # what came before it is appended before it
                correlation_id = columns[_CORRELATION * stride + row]
                header = RequestHeader(_PRODUCE, version, correlation_id, None, 0)
                at = columns[_RECORDS_BEGIN * stride + row]
                records = view[at : at + columns[_RECORDS_SIZE * stride + row]]
                topic_id = partition.topic_id
                request = SingleProduce(-1, timeout_ms, name, index, records, topic_id)
                append_single(core, peer, header, request)
                self.waiting.append(partition)
                row += 1
                continue
            if (
                self._is_alone
                and end == first + 1
                and peer.outbox.is_idle
                and not partition.appends_waiting
            ):
                outcome = self._lone.produce(partition, seat, row, version, timeout_ms)
                if outcome:
                    core.counters.produce_requests += 1
                    if outcome is not True:
                        self.begun.append(outcome)
                        self.waiting.append(partition)
                    return 1
            run = self._runs.get(partition)
            if run is None or run.timeout_ms != timeout_ms:
                if run is not None or len(self._runs) == RUNS_MAX:
                    self._append()
                    if row > first and clock() >= over:
                        break
                run = self._runs[partition] = Run(core, self._scan, partition, timeout_ms)
            # A stretch that was begun alone has the rest of its rows behind it.
            until = min(row + (columns[_STRETCH * stride + row] or 1), end)
            size = sum(columns[_RECORDS_SIZE * stride + row : _RECORDS_SIZE * stride + until])
            run.add(seat, version, row, until, size)
            self._way = Way(seat.client, run, version)
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
        self._ways.clear()
        for run in runs:
            run.append(now_ms)
            if not run.done:
                self.begun.append(run)
                self.waiting.append(run.partition)
