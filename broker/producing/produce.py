"""Produce: check, append, and answer when the durability class is met.

    frame -> each partition: check batch -> append -> visible now?  -> row done
                                                  \\-> not yet      -> row waits in its partition
    all rows done, or the deadline passed -> the slot is done -> its reply leaves in its turn

A batch is appended when its request is read, even if earlier requests of the connection still wait;
only the reply stands in line.  Errors are per partition and never close the connection, with one
exception: acks=0 has no reply that could carry them, so its connection is closed, as in Kafka.

Invariant: a waiting row is settled exactly once, by its partition; if that comes after the deadline
it is counted but no longer answered.
"""

from collections.abc import Awaitable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Final

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import RequestHeader, encode_response, frame_size
from segbroker.protocol.messages_core import (
    ProduceRequest,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from segbroker.protocol.record_batch import InvalidBatch
from segbroker.protocol.schema import records_view

from ..core import Core
from ..error_map import STORAGE_FAILURES, record_errors, wire_error
from ..guards.authorized import check_write, may_write
from ..loop.pace import Pace
from ..partitions import topic_ids
from ..partitions.partition import Partition
from ..peers.long_answers import LongAnswer
from ..peers.peer import Peer
from ..peers.replies import Buffer
from ..refused import Refused
from ..tally import codes_of
from .appending import NOT_YET_DURABLE, append_batch
from .implicit_adds import add_partitions, lacks_partitions
from .remaking import TOGETHER_MAX, Anew, Row, remake_rows, wants_remaking

_NONE: Final[Mapping[int, InvalidBatch | None]] = MappingProxyType({})
_BY_ID: Final = topic_ids.PRODUCE_SINCE
ROWS_AT_ONCE: Final = 100
"""Partitions of a request that are appended to before others have their turn: each is a write, and
may be a file to be opened or made."""
ROWS_PER_SLOT: Final = 32
"""So many rows of a reply that is not sent count as a request of their own."""


class AcksZeroRefused(Exception):
    """A produce without reply failed; closing is the only way to say so."""

    def __init__(self, name: str, index: int, code: ErrorCode, message: str | None) -> None:
        super().__init__(f"{name}-{index}: {code.name}: {message}")


class ProduceSlot:
    """The reply of one produce request, until every row is settled."""

    __slots__ = (
        "_core",
        "_further",
        "_header",
        "_is_settled",
        "_is_whole",
        "_parts",
        "_peer",
        "_place",
        "_response",
        "_rows",
        "_timed",
        "_waiting",
        "done",
    )

    restores: Final = False

    def __init__(
        self, core: Core, peer: Peer, header: RequestHeader, place: LongAnswer | None
    ) -> None:
        """place: the room that the reply takes until it is sent, of a request with very many items;
        it is encoded in a lane."""
        self.done = False
        self._place = place
        self._core = core
        self._peer = peer
        self._header = header
        self._response = ProduceResponse(responses=[])
        self._rows: list[ProduceResponsePartition] = []
        # Ordinals of the rows that wait for their durability.
        self._waiting: set[int] = set()
        # All rows are in: not yet while others have their turn between two of them.
        self._is_whole = False
        # The outcome of each is known: not done yet where a lane encodes the reply.
        self._is_settled = False
        self._parts: list[Buffer] = []
        self._timed = False
        self._further = 0
        """As how many further requests it counts until it is sent."""

    def add_topic(self, asked: ProduceRequestTopic) -> ProduceResponseTopic:
        """Begin the rows of a topic."""
        topic = ProduceResponseTopic(
            name=asked.name, topic_id=asked.topic_id, partition_responses=[]
        )
        self._response.responses.append(topic)
        return topic

    def add_row(self, topic: ProduceResponseTopic, row: ProduceResponsePartition) -> None:
        """A row whose outcome is known."""
        topic.partition_responses.append(row)
        self._rows.append(row)

    def add_waiting_row(
        self,
        topic: ProduceResponseTopic,
        row: ProduceResponsePartition,
        partition: Partition,
        last_offset: int,
        size: int,
    ) -> None:
        """A row whose append waits for the high watermark of its partition."""
        ordinal = len(self._rows)
        self.add_row(topic, row)
        self._waiting.add(ordinal)
        partition.wait_durable(last_offset, size, self, ordinal)

    def begin(self, timeout_ms: int) -> None:
        """All rows are in: done now, or when they are settled, or after `timeout_ms`."""
        if self._is_settled:
            return  # abandoned meanwhile
        self._is_whole = True
        self._further = len(self._rows) // ROWS_PER_SLOT
        if self._further:
            self._peer.outbox.weigh(self._further)
        if not self._waiting:
            self._settle()
            return
        timeout_ms = min(max(timeout_ms, 0), self._core.config.produce_timeout_max_ms)
        self._core.deadlines.add(trio.current_time() + timeout_ms / 1000, self)
        self._timed = True

    def settled(self, row: int, code: ErrorCode, message: str | None) -> None:
        if self._is_settled:
            return  # timed out or abandoned meanwhile
        self._waiting.discard(row)
        if code:
            _refuse(self._rows[row], code, message)
        if self._is_whole and not self._waiting:
            self._settle()

    def expire(self) -> None:
        if self._is_settled:
            return  # its reply is being encoded
        for row in self._waiting:
            _refuse(self._rows[row], ErrorCode.REQUEST_TIMED_OUT, NOT_YET_DURABLE)
        self._settle()

    def render(self) -> list[Buffer] | None:
        if self._parts:
            return self._parts
        self._say_throttled()
        return self._encoded()

    def sent(self) -> None:
        if self._further:
            self._peer.outbox.weigh(-self._further)
        self._leave()

    def stuck(self) -> None:
        pass

    def abandon(self) -> None:
        if not self._is_settled:
            self._settle(is_abandoned=True)
        self._leave()

    def _leave(self) -> None:
        if self._place is not None:
            self._place.leave()

    def _settle(self, *, is_abandoned: bool = False) -> None:
        """Of each row is known what became of it: nobody changes one any more."""
        self._is_settled = True
        if self._place is not None and not is_abandoned:
            self._say_throttled()
            self._core.spawn(partial(self._finish_in_lane, self._place))
            return
        try:
            self._core.counters.tally.answered(self._header.api_key, self._response)
        finally:  # nobody comes again for what is settled
            self._finish()

    async def _finish_in_lane(self, place: LongAnswer) -> None:
        """In a lane; then until the client has taken it."""
        lanes, tally = self._core.lanes, self._core.counters.tally
        try:
            tally.add(self._header.api_key, await lanes.run(codes_of, self._response))
            self._parts = await lanes.run(self._encoded)
            self._response, self._rows = ProduceResponse(responses=[]), []  # many times as large
        finally:  # what failed fails again when it is to leave, and closes its connection
            self._finish()
            self._core.turn.end()
        await place.hold(frame_size(self._parts))

    def _finish(self) -> None:
        self.done = True
        if self._timed:
            self._core.deadlines.forget()
        self._core.turn.flush(self._peer.flush)

    def _say_throttled(self) -> None:
        self._response.throttle_time_ms = max(
            self._core.ingest.throttle_time_ms, self._peer.throttle_ms()
        )

    def _encoded(self) -> list[Buffer]:
        header = self._header
        return encode_response(
            self._response, header.api_key, header.api_version, header.correlation_id
        )


def produce(
    core: Core, peer: Peer, header: RequestHeader, request: ProduceRequest
) -> Awaitable[None] | None:
    """Append what the request brought. Returns something to await when a partition must be
    opened first; until it is done the connection reads nothing further.

    Raises:
        AcksZeroRefused: a partition refused a batch that was sent with acks=0.
    """
    if header.api_version >= _BY_ID:
        topic_ids.name_topics(core.topics, request.topic_data)
    if sum(len(topic.partition_data) for topic in request.topic_data) > ROWS_AT_ONCE:
        return produce_paced(core, peer, header, request)
    served = core.topics.served
    closed = [key for key in _keys(request) if key not in served and core.topics.exists(*key)]
    if closed or lacks_partitions(core, header, request):
        return _open_and_append(core, peer, header, request, closed)
    if wants_remaking(core, peer, header, request):
        return produce_paced(core, peer, header, request)
    for _ in _append_all(core, peer, header, request):
        pass
    return None


async def produce_paced(
    core: Core,
    peer: Peer,
    header: RequestHeader,
    request: ProduceRequest,
    place: LongAnswer | None = None,
) -> None:
    """As `produce`, for a request of hundreds of partitions, or whose batches are made anew:
    others get their turn between.

    place: the room of a reply with very many rows, which it gives back from now on.
    """
    if header.api_version >= _BY_ID:
        await topic_ids.name_topics_paced(core.topics, request.topic_data)
    await _open_all(core, peer, _keys(request))
    unadded = ErrorCode.NONE
    if lacks_partitions(core, header, request):
        unadded = await add_partitions(core, peer, request)
    pace = Pace()
    anew: Anew = {}
    appending = _append_all(core, peer, header, request, unadded, anew, place, is_paced=True)
    rows = _rows(request)
    while some := list(islice(rows, TOGETHER_MAX)):
        for number, (_, asked) in enumerate(some):
            await remake_rows(core, peer, header, request.acks, some, number, anew)
            next(appending)
            asked.records = None  # which may be far larger now than what came
            core.turn.end()
            await pace.step()
    for _ in appending:
        raise AssertionError("a row was added meanwhile")


async def _open_and_append(
    core: Core,
    peer: Peer,
    header: RequestHeader,
    request: ProduceRequest,
    closed: list[tuple[str, int]],
) -> None:
    await _open_all(core, peer, closed)
    if wants_remaking(core, peer, header, request):
        await produce_paced(core, peer, header, request)
        return
    unadded = ErrorCode.NONE
    if lacks_partitions(core, header, request):
        unadded = await add_partitions(core, peer, request)
    if header.api_version >= _BY_ID:  # meanwhile a name may have become that of another topic
        topic_ids.name_topics(core.topics, request.topic_data)
    for _ in _append_all(core, peer, header, request, unadded):
        pass


async def _open_all(core: Core, peer: Peer, keys: Iterable[tuple[str, int]]) -> None:
    """Of one that may not be written, or cannot be opened, its row says so."""
    await core.topics.open_all(keys, lambda name: may_write(core, peer, name))


def _rows(request: ProduceRequest) -> Iterator[Row]:
    for topic in request.topic_data:
        for partition in topic.partition_data:
            yield topic, partition


def _keys(request: ProduceRequest) -> Iterator[tuple[str, int]]:
    for topic in request.topic_data:
        for partition in topic.partition_data:
            yield topic.name, partition.index


def _append_all(
    core: Core,
    peer: Peer,
    header: RequestHeader,
    request: ProduceRequest,
    unadded: ErrorCode = ErrorCode.NONE,
    anew: Mapping[int, InvalidBatch | None] = _NONE,
    place: LongAnswer | None = None,
    *,
    is_paced: bool = False,
) -> Iterator[None]:
    """Append everything; yields after each row, where a caller may let others run: `is_paced`.

    unadded: why partitions could not be made part of the transaction.  anew: what became of rows
    whose batches are made anew, before it is their turn.
    """
    peer.produces = True
    core.counters.produce_requests += 1
    slot = ProduceSlot(core, peer, header, place)
    if request.acks:
        peer.outbox.push(slot)
    now = core.now_ms()
    refused: AcksZeroRefused | None = None
    for topic in request.topic_data:
        rows = slot.add_topic(topic)
        for asked in topic.partition_data:
            row = ProduceResponsePartition(index=asked.index, base_offset=-1)
            if is_paced:
                now = core.now_ms()
                if header.api_version >= _BY_ID:
                    topic.name = topic_ids.name_of(core.topics, topic.topic_id)
            try:
                if topic.name == topic_ids.UNKNOWN and header.api_version >= _BY_ID:
                    raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic {topic.topic_id}")
                if core.authorizer is not None:
                    check_write(core.authorizer, peer, topic.name, request.transactional_id)
                if (why := anew.get(id(asked))) is not None:
                    raise why
                partition, result = append_batch(
                    core,
                    header.api_version,
                    request.acks,
                    topic.name,
                    asked.index,
                    asked.records,
                    now,
                    transactional_id=request.transactional_id,
                    unadded=unadded,
                    is_anew=id(asked) in anew,
                )
            except (InvalidBatch, *STORAGE_FAILURES) as exc:
                _refuse(row, *wire_error(exc))
                row.record_errors = record_errors(exc)
            except Refused as exc:
                _refuse(row, exc.code, exc.message)
            else:
                last_offset, size = result.last_offset, len(records_view(asked.records))
                row.base_offset = result.base_offset
                row.log_append_time_ms = result.log_append_time_ms
                row.log_start_offset = result.log_start_offset
                if last_offset < partition.handler.high_watermark:
                    partition.advanced()
                elif request.acks:
                    slot.add_waiting_row(rows, row, partition, last_offset, size)
                    yield
                    continue
                else:
                    partition.wait_durable(last_offset, size, None, 0)
            slot.add_row(rows, row)
            if row.error_code and not request.acks and refused is None:
                code = ErrorCode.of(row.error_code)
                refused = AcksZeroRefused(topic.name, asked.index, code, row.error_message)
            yield
    if refused is not None:  # the connection is closed, behind the rows that could be appended
        raise refused
    if request.acks:
        slot.begin(request.timeout_ms)


def _refuse(row: ProduceResponsePartition, code: ErrorCode, message: str | None) -> None:
    row.error_code = code
    row.error_message = message
    row.base_offset = -1
    row.log_append_time_ms = -1
