"""From a frame to its handler: header, version, decode, call, reply.

Four kinds of handler, so that the common case pays for nothing:

    produce, fetch       fill their own slots; return something to await only when a partition
                         must be opened first
    ANSWERS              return a message at once
    SLOW_ANSWERS         return a message after work in a lane, or behind a lock; the connection
                         waits for it
    WAITING_ANSWERS      return a message when other clients have come, or the disk has it; the
                         connection reads on meanwhile

A new request is a row in one of these tables.  Its message goes into protocol/, the right that it
needs into guards/, its handler into apis/ or into the package that it is about.

A client may put 262,144 items into one request.  So one that is large, by its bytes or its items,
reaches the same handlers by a longer way: it waits until there is memory for its decoded form
(large_requests.py), is decoded in a lane, and is answered item by item with other requests in
between (pace.py); its reply is encoded in a lane.

A request of a few bytes may ask for as many rows.  So what will be a long answer (answer_sizes.py)
waits until there is memory for it (long_answers.py), which it has until it is in the socket.

Invariant: replies leave in the order of the requests.  An api key or version that is not served
closes the connection, as in Kafka; only ApiVersions in an unknown version is answered, in version
0, with the list.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias, cast

from segbroker.protocol.api_keys import (
    ApiKey,
    api_name,
    api_versions_response,
    is_served,
    is_vendor,
    why_unserved,
)
from segbroker.protocol.errors import ErrorCode, TooManyItems
from segbroker.protocol.headers import (
    RequestHeader,
    decode_request,
    encode_response,
    encode_vendor_response,
    frame_size,
    parse_request_header,
)
from segbroker.protocol.hot import decode_single_produce
from segbroker.protocol.messages_admin import DescribeTopicPartitionsRequest
from segbroker.protocol.messages_core import (
    ApiVersionsRequest,
    FetchRequest,
    ProduceRequest,
)
from segbroker.protocol.schema import Message

from .apis.acl_apis import create_acls, delete_acls, describe_acls
from .apis.answer_sizes import SIZED, answer_size, items_size, rows_count
from .apis.cluster import describe_cluster, find_coordinator
from .apis.config_admin import alter_configs, describe_configs, incremental_alter_configs
from .apis.consumer_group_apis import consumer_group_describe, consumer_group_heartbeat
from .apis.feature_levels import update_features
from .apis.group_admin import delete_groups, describe_groups, list_groups, offset_delete
from .apis.group_apis import heartbeat, join_group, leave_group, sync_group
from .apis.inventory import describe_log_dirs, describe_topic_partitions, list_config_resources
from .apis.later_reply import LaterReply, say_throttled
from .apis.marker_apis import write_txn_markers
from .apis.metadata import metadata
from .apis.offset_store import offset_commit, offset_commit_paced, offset_fetch
from .apis.placement import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
)
from .apis.quota_apis import alter_client_quotas, describe_client_quotas
from .apis.sasl_apis import sasl_authenticate, sasl_handshake
from .apis.share_group_apis import share_group_describe, share_group_heartbeat
from .apis.share_offset_apis import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from .apis.streams_descriptions import streams_group_describe
from .apis.streams_group_apis import streams_group_heartbeat
from .apis.topic_admin import create_partitions, create_topics, delete_records, delete_topics
from .apis.transaction_apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)
from .apis.transaction_queries import (
    describe_producers,
    describe_transactions,
    list_transactions,
)
from .apis.user_apis import alter_user_scram_credentials, describe_user_scram_credentials
from .call import Call
from .configuration.logs import NAME_TOLD_MAX
from .core import Core
from .fetching.fetch import fetch, fetch_large
from .fetching.offsets import list_offsets, offset_for_leader_epoch
from .guards.authorized import Unguarded, guard
from .peers.long_answers import LONG_BYTES, LongAnswer
from .peers.peer import Peer
from .peers.replies import Buffer, Outbox, further_of
from .producing.produce import produce, produce_paced
from .producing.single_produce import produce_single
from .share_fetching.share_acknowledge import share_acknowledge
from .share_fetching.share_fetch import share_fetch
from .tally import codes_of
from .vendor_apis import vendor_reply

# As plain numbers: an enum member costs a look-up per request.
_PRODUCE: Final = int(ApiKey.PRODUCE)
_FETCH: Final = int(ApiKey.FETCH)
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_DESCRIBE_TOPIC_PARTITIONS: Final = int(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
# Never large: each holds one value, however long; and who logs in would wait in the room of others.
_LOGINS: Final = frozenset({int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)})
# How clients may call themselves, since they do; as in Kafka, since it goes into logs.
_SOFTWARE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_SOFTWARE_SINCE: Final = 3

Answer: TypeAlias = Callable[[Core, Call[Any]], Message]
WaitingAnswer: TypeAlias = Callable[[Core, Call[Any], LaterReply], None]
SlowAnswer: TypeAlias = Callable[[Core, Call[Any]], Awaitable[Message]]


# A request up to this size is decoded on the loop; a larger one may hold thousands of items, so it
# is decoded, and its answer encoded, in a lane.
LARGE_BYTES: Final = 16 << 10
# A produce is large because of its records, which are not looked into: more is decoded at once.
# One that has more rows than ROWS_ON_LOOP_MAX is large because of them.
LARGE_PRODUCE_BYTES: Final = 256 << 10
# Only Produce carries data: 100,000 topics of a Metadata request are a quarter of this.
PLAIN_BYTES_MAX: Final = 8 << 20
# One of more items than this is large, whatever its bytes: 16 KiB hold five thousand names, and the
# rights to each of them are asked for in one go.
ITEMS_ON_LOOP_MAX: Final = 500
# But for these, which name topics by a few, go on piece by piece themselves, and come all the time.
_FETCHES: Final = frozenset(map(int, (ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)))
# More rows than this in an answer to a small request ("all topics", the settings of this broker a
# thousand times) are encoded in a lane too; so many items of a produce are decoded on the loop.
ROWS_ON_LOOP_MAX: Final = 2_000
# And so many where a guard looks at each of them again: all that may be done with a topic.
AMENDED_ROWS_ON_LOOP_MAX: Final = 250


class Unserved(Exception):
    """The request is none that we serve; the connection is closed."""


class Reply:
    """A slot whose reply is known from the start."""

    __slots__ = ("_outbox", "_parts", "done")

    restores: Final = False

    def __init__(self, outbox: Outbox, parts: list[Buffer]) -> None:
        """Takes its place in the line of `outbox`."""
        self._outbox = outbox
        self._parts = parts
        self.done = True
        outbox.push(self)
        if further := further_of(frame_size(parts)):
            outbox.weigh(further)

    def render(self) -> list[Buffer] | None:
        return self._parts

    def sent(self) -> None:
        if further := further_of(frame_size(self._parts)):
            self._outbox.weigh(-further)

    def stuck(self) -> None:
        pass

    def abandon(self) -> None:
        pass


ANSWERS: Final[dict[int, Answer]] = {
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
}

SLOW_ANSWERS: Final[dict[int, SlowAnswer]] = {
    ApiKey.METADATA: metadata,
    ApiKey.DESCRIBE_ACLS: describe_acls,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas,
    ApiKey.CREATE_ACLS: create_acls,
    ApiKey.DELETE_ACLS: delete_acls,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
    ApiKey.END_TXN: end_txn,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.HEARTBEAT: heartbeat,
    ApiKey.LEAVE_GROUP: leave_group,
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.DELETE_GROUPS: delete_groups,
    ApiKey.OFFSET_DELETE: offset_delete,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
    ApiKey.SHARE_GROUP_DESCRIBE: share_group_describe,
    ApiKey.STREAMS_GROUP_DESCRIBE: streams_group_describe,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: describe_share_group_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: alter_share_group_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: delete_share_group_offsets,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources,
    ApiKey.UPDATE_FEATURES: update_features,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    ApiKey.ELECT_LEADERS: elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
    ApiKey.DESCRIBE_QUORUM: describe_quorum,
    ApiKey.SASL_HANDSHAKE: sasl_handshake,
    ApiKey.SASL_AUTHENTICATE: sasl_authenticate,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
}

WAITING_ANSWERS: Final[dict[int, WaitingAnswer]] = {
    ApiKey.JOIN_GROUP: join_group,
    ApiKey.SYNC_GROUP: sync_group,
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
    ApiKey.SHARE_FETCH: share_fetch,
    ApiKey.SHARE_ACKNOWLEDGE: share_acknowledge,
    ApiKey.SHARE_GROUP_HEARTBEAT: share_group_heartbeat,
    ApiKey.STREAMS_GROUP_HEARTBEAT: streams_group_heartbeat,
}

# Of large requests those whose answer has rows for what there is, or comes when others have come:
# that is reckoned by whoever gives it.
_WITHOUT_ROWS: Final = (WAITING_ANSWERS.keys() - {ApiKey.OFFSET_COMMIT}) | {ApiKey.FETCH}


def handle(core: Core, peer: Peer, frame: memoryview) -> Awaitable[None] | None:
    """Handle one request. What is returned must be awaited before the next is handled.

    Raises:
        RemoteProtocolError: the frame is not a request.
        Unserved: the api or its version is not served.
    """
    header = parse_request_header(frame)
    peer.client_id = header.client_id
    key = header.api_key
    if core.quotas is not None:
        core.quotas.arrived(peer, len(frame), is_produce=key == _PRODUCE)
    tally = core.counters.tally
    if key == _API_VERSIONS:
        tally.requests[key] += 1
        _api_versions(core, peer, header, frame)
        return None
    if not is_served(key, header.api_version):
        tally.unserved += 1
        raise Unserved(why_unserved(key, header.api_version))
    tally.requests[key] += 1
    if key == _PRODUCE:
        if (single := decode_single_produce(frame, header)) is not None:
            return produce_single(core, peer, header, single)
        if len(frame) > LARGE_PRODUCE_BYTES:
            return _handle_large_produce(core, peer, header, frame)
        try:
            request = decode_request(frame, header, ROWS_ON_LOOP_MAX)
        except TooManyItems:
            return _handle_produce_of_many(core, peer, header, frame)
        return produce(core, peer, header, cast(ProduceRequest, request))
    if len(frame) > PLAIN_BYTES_MAX:
        raise Unserved(f"{api_name(key)} in {len(frame)} bytes, limit {PLAIN_BYTES_MAX}")
    if is_vendor(key):
        answer_vendor = _answer_large_vendor if len(frame) > LARGE_BYTES else _answer_vendor
        return answer_vendor(core, peer, header, frame)
    if len(frame) > LARGE_BYTES and key not in _LOGINS:
        return _handle_large(core, peer, header, frame)
    try:
        limit = None if key in _FETCHES else ITEMS_ON_LOOP_MAX
        request = decode_request(frame, header, limit)
    except TooManyItems:
        return _handle_large(core, peer, header, frame)
    if key == _FETCH:
        return fetch(core, peer, header, cast(FetchRequest, request))
    if (
        core.authorizer is not None
        and key == _DESCRIBE_TOPIC_PARTITIONS
        and not cast(DescribeTopicPartitionsRequest, request).topics
    ):  # the rights to all that there are
        return _handle_large(core, peer, header, frame)
    return _answer_on_loop(core, Call(peer, header, request))


def _answer_on_loop(core: Core, call: Call[Any]) -> Awaitable[None] | None:
    """Answer a request that is decoded, but for produce and fetch, as far as its sender may."""
    key = call.header.api_key
    if core.authorizer is not None:
        checked = _checked(core, call)
        if isinstance(checked, Message):
            _reply(core, call.peer, call.header, checked)
            return None
        call = checked
    if key in SIZED:
        return _answer_sized(core, call)
    if (answer := ANSWERS.get(key)) is not None:
        return _answer(core, call, answer(core, call))
    if (waiting := WAITING_ANSWERS.get(key)) is not None:
        _answer_later(core, call, waiting)
        return None
    return _answer_slowly(core, call, SLOW_ANSWERS[key])


def _checked(core: Core, call: Call[Any]) -> Call[Any] | Message:
    """The request without what its sender may not do, or the whole answer. Raises Unserved."""
    try:
        found = guard(core, call)
    except Unguarded as exc:
        raise Unserved(str(exc)) from exc
    if isinstance(found, Message):
        return found
    return call if found is None else replace(call, amend=found)


def _answer(core: Core, call: Call[Any], message: Message) -> Awaitable[None] | None:
    """Reply with what a handler says; to be awaited where a lane encodes it."""
    most = ROWS_ON_LOOP_MAX if call.amend is None else AMENDED_ROWS_ON_LOOP_MAX
    if rows_count(message, most) > most:
        return _finish_in_lane(core, call, message)
    if call.amend is not None:
        call.amend(message)
    _reply(core, call.peer, call.header, message)
    return None


def _answer_later(core: Core, call: Call[Any], answer: WaitingAnswer) -> None:
    slot = LaterReply(core, call)
    call.peer.outbox.push(slot)
    answer(core, call, slot)


async def _answer_slowly(core: Core, call: Call[Any], answer: SlowAnswer) -> None:
    if (pending := _answer(core, call, await answer(core, call))) is not None:
        await pending


async def _answer_sized(core: Core, call: Call[Any]) -> None:
    """As `_answer` or `_answer_slowly`, once there is room for an answer that will be long."""
    if (size := await answer_size(core, call)) <= LONG_BYTES:
        await _answer_one(core, call)
        return
    with core.long_answers.answer(call.peer) as place:
        if not place.may_begin(size):
            core.turn.end()
            await place.wait()
        await _answer_one(core, call)
        await _sent(core, place)


async def _answer_one(core: Core, call: Call[Any]) -> None:
    if (answer := ANSWERS.get(call.header.api_key)) is None:
        await _answer_slowly(core, call, SLOW_ANSWERS[call.header.api_key])
    elif (pending := _answer(core, call, answer(core, call))) is not None:
        await pending


async def _sent(core: Core, place: LongAnswer) -> None:
    """Until the answer is in the socket, and its room free again."""
    core.turn.end()
    await place.sent()


async def _handle_large_produce(
    core: Core, peer: Peer, header: RequestHeader, frame: memoryview
) -> None:
    try:
        request = await core.lanes.run(decode_request, frame, header, ROWS_ON_LOOP_MAX)
    except TooManyItems:
        await _handle_produce_of_many(core, peer, header, frame)
    else:
        await produce_paced(core, peer, header, cast(ProduceRequest, request))


async def _handle_produce_of_many(
    core: Core, peer: Peer, header: RequestHeader, frame: memoryview
) -> None:
    """A Produce that is large by its rows: like any other large request, but for its answer, which
    its connection does not wait for."""
    place = core.long_answers.answer(peer)
    try:
        if not await _produce_many(core, peer, header, frame, place):
            await place.wait()
            await _produce_many(core, peer, header, frame, place)
    except BaseException:
        place.leave()
        raise


async def _produce_many(
    core: Core, peer: Peer, header: RequestHeader, frame: memoryview, place: LongAnswer
) -> bool:
    """False: the answer will be long, and there is no room for it."""
    async with core.large_requests.room(peer.address[0], len(frame)):
        decoded, size = await core.lanes.run(_decode_large, frame, header)
        request = cast(ProduceRequest, decoded)
        if request.acks and not place.may_begin(size):
            return False
        await produce_paced(core, peer, header, request, place)
        return True


def _decode_large(frame: memoryview, header: RequestHeader) -> tuple[Message, int]:
    """A request, and how much room its answer takes, where that has a row for each of its items."""
    request = decode_request(frame, header)
    return request, 0 if header.api_key in _WITHOUT_ROWS else items_size(request)


async def _handle_large(core: Core, peer: Peer, header: RequestHeader, frame: memoryview) -> None:
    """As `handle`, with decoding and encoding in a lane. The frame stays while this is awaited."""
    with core.long_answers.answer(peer) as place:
        if not await _handle_in_lanes(core, peer, header, frame, place):
            await place.wait()  # with nothing in hand: others need the room of what was decoded
            await _handle_in_lanes(core, peer, header, frame, place)
        await _sent(core, place)


async def _handle_in_lanes(
    core: Core, peer: Peer, header: RequestHeader, frame: memoryview, place: LongAnswer
) -> bool:
    """False: the answer will be long, and there is no room for it."""
    async with core.large_requests.room(peer.address[0], len(frame)):
        request, size = await core.lanes.run(_decode_large, frame, header)
        if header.api_key == _FETCH:
            await fetch_large(core, peer, header, cast(FetchRequest, request))
            return True
        call: Call[Any] = Call(peer, header, request)
        if header.api_key in SIZED:
            size += await answer_size(core, call)
        if not place.may_begin(size):
            return False
        await _answer_in_lanes(core, call)
        return True


async def _answer_in_lanes(core: Core, call: Call[Any]) -> None:
    """As `_answer_on_loop`, a large one."""
    peer, header = call.peer, call.header
    key = header.api_key
    if core.authorizer is not None:
        checked = await core.lanes.run(_checked, core, call)
        if isinstance(checked, Message):
            await _reply_from_lane(core, peer, header, checked)
            return
        call = checked
    if key == ApiKey.OFFSET_COMMIT:
        await _finish_in_lane(core, call, await offset_commit_paced(core, call))
        return
    if (waiting := WAITING_ANSWERS.get(key)) is not None:
        _answer_later(core, call, waiting)
        return
    if (answer := ANSWERS.get(key)) is not None:
        # These only read what the loop replaces as a whole, so any thread may ask them.
        message = await core.lanes.run(answer, core, call)
    else:
        message = await SLOW_ANSWERS[key](core, call)
    await _finish_in_lane(core, call, message)


async def _finish_in_lane(core: Core, call: Call[Any], message: Message) -> None:
    if call.amend is not None:
        await core.lanes.run(call.amend, message)
    await _reply_from_lane(core, call.peer, call.header, message)


async def _reply_from_lane(core: Core, peer: Peer, header: RequestHeader, message: Message) -> None:
    say_throttled(peer, message)
    parts = await core.lanes.run(
        encode_response, message, header.api_key, header.api_version, header.correlation_id
    )
    core.counters.tally.add(header.api_key, await core.lanes.run(codes_of, message))
    Reply(peer.outbox, parts)
    core.turn.flush(peer.flush)


async def _answer_large_vendor(
    core: Core, peer: Peer, header: RequestHeader, frame: memoryview
) -> None:
    async with core.large_requests.room(peer.address[0], len(frame)):
        await _answer_vendor(core, peer, header, frame)


async def _answer_vendor(core: Core, peer: Peer, header: RequestHeader, frame: memoryview) -> None:
    body = await vendor_reply(core, peer, header, frame)
    if (error := body.get("error")) is not None:
        core.counters.tally.failed(header.api_key, error["code"])
    Reply(peer.outbox, encode_vendor_response(body, header.correlation_id))
    core.turn.flush(peer.flush)


def _reply(core: Core, peer: Peer, header: RequestHeader, message: Message) -> None:
    say_throttled(peer, message)
    core.counters.tally.answered(header.api_key, message)
    parts = encode_response(message, header.api_key, header.api_version, header.correlation_id)
    Reply(peer.outbox, parts)
    core.turn.flush(peer.flush)


def _api_versions(core: Core, peer: Peer, header: RequestHeader, frame: memoryview) -> None:
    code = ErrorCode.NONE
    if is_served(header.api_key, header.api_version):
        request = cast(ApiVersionsRequest, decode_request(frame, header))
        if header.api_version >= _SOFTWARE_SINCE and not (
            _SOFTWARE.fullmatch(request.client_software_name)
            and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            code = ErrorCode.INVALID_REQUEST
        elif request.client_software_name:
            # They are told in lines of the log, and kept as long as the connection.
            peer.software_name = request.client_software_name[:NAME_TOLD_MAX]
            peer.software_version = request.client_software_version[:NAME_TOLD_MAX]
    response, version = api_versions_response(
        header.api_version, vendor=peer.is_ours, levels=core.config.feature_levels
    )
    response.error_code = response.error_code or code
    core.counters.tally.failed(header.api_key, response.error_code)
    say_throttled(peer, response)
    parts = encode_response(response, header.api_key, version, header.correlation_id)
    Reply(peer.outbox, parts)
    core.turn.flush(peer.flush)
