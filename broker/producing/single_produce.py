"""The common Produce request: one batch for one partition, without a transaction.

It has the same rules and the same answers as produce.py, without the lists of rows: protocol.hot
reads the request and writes the reply, and the slot holds the numbers of its one row.  A request of
another shape takes the general path; so does the reply when there is an error to explain.

Why a second path at all: on CPython 3.11 a request costs about half as much here, and a producer
that sends small records one by one sends nothing else.

Invariant: for every request that fits, the reply is byte for byte that of produce.py (tested).
"""

from collections.abc import Awaitable, Iterator, Sequence
from itertools import islice
from typing import Final
from uuid import UUID

import trio

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode, RemoteProtocolError
from segbroker.protocol.headers import RequestHeader, encode_response, parse_request_header
from segbroker.protocol.hot import (
    SingleProduce,
    decode_single_produce,
    encode_single_produce_response,
)
from segbroker.protocol.messages_core import (
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseRecordError,
    ProduceResponseTopic,
)
from segbroker.protocol.record_batch import InvalidBatch

from ..core import Core
from ..error_map import STORAGE_FAILURES, record_errors, wire_error
from ..guards.authorized import check_write, may_write
from ..partitions.topic_ids import PRODUCE_SINCE, UNKNOWN, name_of
from ..peers.peer import Peer
from ..peers.replies import Buffer
from ..refused import Refused
from .appending import NOT_YET_DURABLE, append_batch
from .produce import AcksZeroRefused
from .remaking import config_to_remake, remade

BEHIND_MAX: Final = 512
"""Requests that are looked at for what has to be opened."""


class SingleProduceSlot:
    """The reply of one produce request with one row."""

    __slots__ = (
        "_append_time_ms",
        "_base_offset",
        "_code",
        "_core",
        "_header",
        "_index",
        "_message",
        "_name",
        "_peer",
        "_start_offset",
        "_timed",
        "_topic_id",
        "done",
        "record_errors",
    )

    restores: Final = False

    def __init__(
        self,
        core: Core,
        peer: Peer,
        header: RequestHeader,
        name: str,
        index: int,
        topic_id: UUID,
    ) -> None:
        self.done = False
        self._core = core
        self._peer = peer
        self._header = header
        self._name = name
        self._index = index
        self._topic_id = topic_id
        self._timed = False
        self._code = ErrorCode.NONE
        self._message: str | None = None
        # Which records of a batch were refused, where it was for single ones.
        self.record_errors: Sequence[ProduceResponseRecordError] = ()
        self._base_offset = self._append_time_ms = self._start_offset = -1

    def appended(self, base_offset: int, append_time_ms: int, start_offset: int) -> None:
        """The row's numbers."""
        self._base_offset = base_offset
        self._append_time_ms = append_time_ms
        self._start_offset = start_offset

    def begin_wait(self, timeout_ms: int) -> None:
        """The partition settles the row, or `timeout_ms` passes first."""
        timeout_ms = min(max(timeout_ms, 0), self._core.config.produce_timeout_max_ms)
        self._core.deadlines.add(trio.current_time() + timeout_ms / 1000, self)
        self._timed = True

    def settled(self, row: int, code: ErrorCode, message: str | None) -> None:
        if self.done:
            return  # timed out or abandoned meanwhile
        if code:
            self.refuse(code, message)
        self.finish()

    def expire(self) -> None:
        self.refuse(ErrorCode.REQUEST_TIMED_OUT, NOT_YET_DURABLE)
        self.finish()

    def refuse(self, code: ErrorCode, message: str | None) -> None:
        """Not done; the log start that is known by then is told all the same."""
        self._code = code
        self._message = message
        self._base_offset = self._append_time_ms = -1

    def finish(self) -> None:
        """The outcome is known."""
        self.done = True
        if self._code:
            self._core.counters.tally.failed(self._header.api_key, self._code)
        if self._timed:
            self._core.deadlines.forget()
        self._core.turn.flush(self._peer.flush)

    def raise_refused(self) -> None:
        """Say by an exception what a request without a reply cannot be told."""
        if self._code:
            raise AcksZeroRefused(self._name, self._index, self._code, self._message)

    def render(self) -> list[Buffer] | None:
        header = self._header
        if self._code:
            return self._render_error(header)
        return [
            encode_single_produce_response(
                header.api_version,
                header.correlation_id,
                self._name,
                self._index,
                base_offset=self._base_offset,
                log_append_time_ms=self._append_time_ms,
                log_start_offset=self._start_offset,
                throttle_time_ms=max(self._core.ingest.throttle_time_ms, self._peer.throttle_ms()),
                topic_id=self._topic_id,
            )
        ]

    def sent(self) -> None:
        pass

    def stuck(self) -> None:
        pass

    def abandon(self) -> None:
        if not self.done:
            self.finish()

    def _render_error(self, header: RequestHeader) -> list[Buffer]:
        return render_error(
            header,
            self._name,
            self._index,
            self._code,
            self._message,
            start_offset=self._start_offset,
            throttle_ms=max(self._core.ingest.throttle_time_ms, self._peer.throttle_ms()),
            record_errors=self.record_errors,
            topic_id=self._topic_id,
        )


def render_error(
    header: RequestHeader,
    name: str,
    index: int,
    code: ErrorCode,
    message: str | None,
    *,
    start_offset: int,
    throttle_ms: int,
    record_errors: Sequence[ProduceResponseRecordError],
    topic_id: UUID,
) -> list[Buffer]:
    """The reply to a request whose one row has failed."""
    row = ProduceResponsePartition(
        index=index,
        error_code=code,
        base_offset=-1,
        log_start_offset=start_offset,
        record_errors=list(record_errors),
        error_message=message,
    )
    topic = ProduceResponseTopic(name=name, topic_id=topic_id, partition_responses=[row])
    response = ProduceResponse(responses=[topic], throttle_time_ms=throttle_ms)
    return encode_response(response, header.api_key, header.api_version, header.correlation_id)


def produce_single(
    core: Core, peer: Peer, header: RequestHeader, request: SingleProduce
) -> Awaitable[None] | None:
    """Append what the request brought; as `produce.produce`, which says the rest."""
    request = _named(core, header, request)
    acks, _, name, index, records, _ = request
    if core.topics.served_partition(name, index) is None and core.topics.exists(name, index):
        return _open_and_append(core, peer, header, request)
    version = header.api_version
    if config_to_remake(core, peer, version, acks, name, index, records) is not None:
        return _remake_and_append(core, peer, header, request)
    append_single(core, peer, header, request)
    return None


def _named(core: Core, header: RequestHeader, request: SingleProduce) -> SingleProduce:
    """One by id gets the name that its topic has: anew whenever others may have had their turn, as
    it may have become that of another topic."""
    if header.api_version < PRODUCE_SINCE:
        return request
    return request._replace(topic=name_of(core.topics, request.topic_id))


async def _open_and_append(
    core: Core, peer: Peer, header: RequestHeader, request: SingleProduce
) -> None:
    if may_write(core, peer, request.topic):
        # Where it cannot be opened the row says so: it exists and has a storage error.
        keys = [(request.topic, request.partition), *_behind(core, peer)]
        await core.topics.open_all(keys, lambda name: may_write(core, peer, name))
    await _remake_and_append(core, peer, header, _named(core, header, request))


async def _remake_and_append(
    core: Core, peer: Peer, header: RequestHeader, request: SingleProduce
) -> None:
    broken, is_anew = None, False
    acks, _, name, index, sent, _ = request
    config = config_to_remake(core, peer, header.api_version, acks, name, index, sent)
    if config is not None:
        try:
            records = await remade(core, config, sent)
        except InvalidBatch as exc:
            broken = exc
        else:
            request, is_anew = request._replace(records=records), True
        request = _named(core, header, request)
    append_single(core, peer, header, request, broken, is_anew=is_anew)


def _behind(core: Core, peer: Peer) -> Iterator[tuple[str, int]]:
    """The partitions of the requests behind this one: they may have to be opened, too, and a client
    that spreads its records over a new topic has one request for each.  One that could not be
    opened is tried by its own request alone."""
    for frame in islice(peer.waiting(), BEHIND_MAX):
        try:
            header = parse_request_header(frame)
        except RemoteProtocolError:
            return
        if header.api_key == ApiKey.PRODUCE:
            request = decode_single_produce(frame, header)
            if request is None:
                continue
            name = request.topic or name_of(core.topics, request.topic_id)
            if (key := (name, request.partition)) not in core.topics.unopened:
                yield key


def append_single(
    core: Core,
    peer: Peer,
    header: RequestHeader,
    request: SingleProduce,
    broken: InvalidBatch | None = None,
    *,
    is_anew: bool = False,
) -> None:
    """Append what the request brought to a partition that is served, or does not exist.

    broken: why its batch could not be made as the topic wants it.  is_anew: it is.
    """
    acks, timeout_ms, name, index, records, topic_id = request
    peer.produces = True
    core.counters.produce_requests += 1
    slot = SingleProduceSlot(core, peer, header, name, index, topic_id)
    if acks:
        peer.outbox.push(slot)
    try:
        if name == UNKNOWN and header.api_version >= PRODUCE_SINCE:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic {topic_id}")
        if core.authorizer is not None:
            check_write(core.authorizer, peer, name)
        if broken is not None:
            raise broken
        partition, result = append_batch(
            core, header.api_version, acks, name, index, records, core.now_ms(), is_anew=is_anew
        )
    except (InvalidBatch, *STORAGE_FAILURES) as exc:
        slot.refuse(*wire_error(exc))
        slot.record_errors = record_errors(exc)
    except Refused as exc:
        slot.refuse(exc.code, exc.message)
    else:
        base_offset, last_offset, append_time_ms, start_offset, _ = result
        slot.appended(base_offset, append_time_ms, start_offset)
        if last_offset < partition.handler.high_watermark:
            partition.advanced()
        elif acks:
            partition.wait_durable(last_offset, len(records), slot, 0)
            slot.begin_wait(timeout_ms)
            return
        else:
            partition.wait_durable(last_offset, len(records), None, 0)
    if acks:
        slot.finish()
    else:
        slot.raise_refused()
