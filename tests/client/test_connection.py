"""One connection: negotiation, order of replies, deadlines, nonsense from the peer."""

from functools import partial

import pytest

from segbroker.client.connection import Connection, State
from segbroker.client.errors import ConnectionLost, PeerError, TimedOut, UnsupportedByBroker
from segbroker.client.login import Login
from segbroker.client.security import Security
from segbroker.client.spoken import SPOKEN, Reply
from segbroker.protocol.api_keys import ApiKey, ApiVersionRange, is_vendor, request_class
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import encode_response
from segbroker.protocol.messages_core import (
    ApiVersionsResponse,
    ApiVersionsResponseKey,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)

from .simulated import World


def connection() -> Connection:
    made = Connection("broker", 9092, client_id="test", deadline_ms=5_000)
    made.connected()
    return made


def receive(connection: Connection, data: bytes, now_ms: int = 0) -> None:
    connection.get_buffer()[: len(data)] = data
    connection.received(len(data), now_ms)


def versions(
    ranges: dict[int, tuple[int, int]], *, correlation_id: int = 1, version: int = 3, error: int = 0
) -> bytes:
    reply = ApiVersionsResponse(
        error_code=error,
        api_keys=[
            ApiVersionsResponseKey(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in ranges.items()
        ],
    )
    return b"".join(encode_response(reply, ApiKey.API_VERSIONS, version, correlation_id))


def test_only_who_has_not_answered_yet_is_said_to_want_tls() -> None:
    asking = connection()
    asking.received(0, 0)
    assert "TLS or a login (security=)?" in str(asking.error)

    idle = ready({ApiKey.METADATA: (0, 12)})
    idle.received(0, 0)
    assert "does this port want" not in str(idle.error)

    told: list[object] = []
    lost = ready({ApiKey.METADATA: (0, 12)})
    lost.request(
        MetadataRequest(topics=None),
        lambda reply, _: told.append(reply),
        deadline_ms=1_000,
    )
    lost.received(0, 0)
    assert told == [lost.error]
    assert "TLS" not in str(lost.error)
    assert "does this port want a login (security=)?" in str(lost.error)


def ready(ranges: dict[int, tuple[int, int]]) -> Connection:
    made = connection()
    receive(made, versions(ranges))
    made.outgoing.clear()
    return made


def metadata(correlation_id: int) -> bytes:
    reply = MetadataResponse(brokers=[], topics=[])
    return b"".join(encode_response(reply, ApiKey.METADATA, 5, correlation_id))


def keep(got: list[str], name: str, reply: Reply, now_ms: int) -> None:
    assert isinstance(reply, MetadataResponse)
    got.append(name)


def test_the_first_request_asks_for_versions_and_says_who_we_are() -> None:
    data = b"".join(connection().outgoing)
    assert data[4:8] == bytes.fromhex("0012 0004")
    assert b"segbroker-python" in data


def test_every_api_we_speak_is_one_that_we_can_encode() -> None:
    for key, spoken in SPOKEN.items():
        if is_vendor(key):
            continue  # a map is encoded by what it holds
        low, high = request_class(key).message_versions
        assert low <= spoken.min <= spoken.max <= high, key.name


@pytest.mark.parametrize(
    ("theirs", "version"),
    [((0, 20), 12), ((0, 5), 5), ((5, 5), 5), ((9, 30), 12), ((13, 14), None), ((0, 0), None)],
)
def test_the_highest_version_that_both_know_is_used(
    theirs: tuple[int, int], version: int | None
) -> None:
    assert SPOKEN[ApiKey.METADATA] == ApiVersionRange(1, 12)
    assert ready({ApiKey.METADATA: theirs}).version_for(ApiKey.METADATA) == version


@pytest.mark.parametrize(("says", "asked"), [({18: (0, 3)}, 3), ({}, 0), ({18: (0, 9)}, 3)])
def test_a_broker_that_does_not_know_our_version_is_asked_with_one_that_it_knows(
    says: dict[int, tuple[int, int]], asked: int
) -> None:
    made = connection()
    made.outgoing.clear()
    receive(made, versions(says, version=0, error=35))
    assert b"".join(made.outgoing)[4:8] == bytes.fromhex("0012") + asked.to_bytes(2, "big")
    receive(made, versions({3: (0, 5)}, version=asked, correlation_id=2))
    assert made.is_ready
    assert made.version_for(ApiKey.METADATA) == 5


@pytest.mark.parametrize(("newest", "asked"), [(0, [0]), (3, [0, 3]), (4, [0, 4])])
def test_a_broker_that_hangs_up_is_asked_with_0_the_next_time_and_then_with_what_it_knows(
    newest: int, asked: list[int]
) -> None:
    """One that was only going away tells its features again."""
    world = World()
    world.broker.newest[ApiKey.API_VERSIONS] = newest
    world.engine.step(world.now_ms)
    (first,) = world.engine.network.take_opening()
    first.connected()
    first.lost(ConnectionLost("hung up"), world.now_ms)
    world.run(lambda: world.engine.cluster.replies_count > 0)
    assert world.broker.asked_versions == asked
    (now,) = world._links
    assert ("transaction.version" in now.features) == (newest >= 3)


def test_replies_are_matched_in_order_however_the_network_cuts_them() -> None:
    stream = metadata(2) + metadata(3)
    for cut in range(len(stream) + 1):
        made = ready({ApiKey.METADATA: (0, 5)})
        got: list[str] = []
        for name in ("first", "second"):
            on_reply = partial(keep, got, name)
            made.request(MetadataRequest(topics=[]), on_reply, deadline_ms=9)
        if cut:
            receive(made, stream[:cut])
        if cut < len(stream):
            receive(made, stream[cut:])
        assert got == ["first", "second"]


@pytest.mark.parametrize(
    "nonsense",
    [
        metadata(77),
        bytes.fromhex("7fffffff"),
        bytes.fromhex("ffffffff"),
        bytes.fromhex("00000006 00000002 ffff"),
    ],
)
def test_nonsense_from_the_peer_ends_the_connection_and_fails_what_is_in_flight(
    nonsense: bytes,
) -> None:
    made = ready({ApiKey.METADATA: (0, 5)})
    replies: list[Reply] = []
    for _ in range(2):
        made.request(MetadataRequest(topics=[]), lambda r, t: replies.append(r), deadline_ms=9)
    receive(made, nonsense)
    assert made.state is State.CLOSED
    assert [type(reply) for reply in replies] == [PeerError, PeerError]


def test_a_reply_that_nobody_asked_for_ends_the_connection() -> None:
    made = ready({ApiKey.METADATA: (0, 5)})
    receive(made, metadata(2))
    assert isinstance(made.error, PeerError)


def test_the_end_of_the_stream_fails_what_is_in_flight() -> None:
    made = ready({ApiKey.METADATA: (0, 5)})
    replies: list[Reply] = []
    made.request(MetadataRequest(topics=[]), lambda r, t: replies.append(r), deadline_ms=9)
    made.received(0, 0)
    (error,) = replies
    assert isinstance(error, ConnectionLost)
    assert error.retryable


def test_a_reply_that_is_late_ends_the_connection() -> None:
    made = ready({ApiKey.METADATA: (0, 5)})
    made.request(MetadataRequest(topics=[]), lambda r, t: None, deadline_ms=100)
    made.expire(99)
    assert made.is_ready
    assert made.next_deadline_ms() == 100
    made.expire(100)
    assert isinstance(made.error, TimedOut)


@pytest.mark.parametrize("is_connected", [False, True])
def test_connecting_and_negotiating_have_a_deadline(is_connected: bool) -> None:
    made = Connection("broker", 9092, client_id="test", deadline_ms=5_000)
    if is_connected:
        made.connected()
    made.expire(4_999)
    assert made.state is not State.CLOSED
    made.expire(5_000)
    assert isinstance(made.error, TimedOut)


def test_a_request_that_the_broker_does_not_know_is_refused_before_it_is_sent() -> None:
    made = ready({ApiKey.PRODUCE: (3, 8)})
    with pytest.raises(UnsupportedByBroker, match="METADATA"):
        made.request(MetadataRequest(topics=[]), lambda r, t: None, deadline_ms=9)
    assert not made.outgoing
    assert not made.in_flight


def test_what_was_sent_in_part_goes_on_where_it_stopped() -> None:
    made = ready({ApiKey.METADATA: (0, 5)})
    made.outgoing.extend([b"abc", bytearray(b"def"), memoryview(b"ghi")])
    taken = b""
    for size in (1, 3, 4, 1):
        taken += b"".join(made.outgoing)[:size]
        made.sent(size)
    assert taken == b"abcdefghi"
    assert not made.outgoing


def test_a_request_without_a_reply_is_done_when_it_is_sent_and_has_a_deadline_until_then() -> None:
    made = ready({ApiKey.PRODUCE: (3, 8)})
    told: list[object] = []
    for number in range(2):
        made.send_unanswered(
            ProduceRequest(acks=0, timeout_ms=9, topic_data=[]),
            lambda number=number: told.append(number),  # type: ignore[misc]
            lambda error, _, number=number: told.append((number, type(error))),  # type: ignore[misc]
            deadline_ms=100 + number,
        )
    size = sum(map(len, made.outgoing))
    made.sent(size - 1)
    assert told == [0]
    assert made.next_deadline_ms() == 101
    made.expire(100)
    assert made.is_ready
    made.expire(101)
    assert told == [0, (1, TimedOut)]
    assert "did not take a request in time" in str(made.error)
    made.sent(1)  # of a thread that was just at it
    assert len(told) == 2


def test_a_broker_that_refuses_to_say_its_versions_is_said_to() -> None:
    made = connection()
    receive(made, versions({}, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version=4))
    assert str(made.error) == "broker:9092: ApiVersions answered error code 31"


def test_a_broker_without_logins_is_asked_for_none() -> None:
    security = Security(mechanism="PLAIN", user="u", password="p")
    made = Connection(
        "broker", 9092, client_id="test", deadline_ms=5_000, new_login=partial(Login, security, {})
    )
    made.connected()
    receive(made, versions({ApiKey.METADATA: (0, 12)}))
    assert str(made.error) == "broker:9092: the broker knows no logins"
