"""Who asks about very many things asks in pieces, and each piece has the time of a call."""

from collections.abc import Callable, Mapping

import pytest

from segbroker.client import Admin, Producer, TopicPartition, administration, lists, lookups
from segbroker.client.engine import Call
from segbroker.client.errors import PolicyViolation, TimedOut
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import DeleteRecordsRequest
from segbroker.protocol.messages_core import ListOffsetsRequest, ListOffsetsResponse

from ..support.daemon import Daemon
from .simulated import Broker, World

PARTITIONS = 95
PIECE = 10
SLOW_MS = 20_000
"""Three such answers are more than a call may take."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(lookups, "PARTITIONS_MAX", PIECE)
    world = World(brokers=2, api_timeout_ms=50_000)
    world.cluster.create("wide", PARTITIONS)
    return world


def offsets_with(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Broker, ListOffsetsResponse], None]
) -> None:
    answer = Broker._offsets

    def changed(self: Broker, request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = answer(self, request)
        change(self, response)
        return response

    monkeypatch.setattr(Broker, "_offsets", changed)


def asked(world: World) -> list[int]:
    """The partitions of each ListOffsets."""
    requests = (r for broker in world.cluster.brokers.values() for r in broker.requests)
    return [
        sum(len(topic.partitions) for topic in request.topics)
        for request in requests
        if isinstance(request, ListOffsetsRequest)
    ]


def run(world: World, call: Call[object]) -> object:
    completion = world.engine.call(call, world.now_ms)
    world.run(lambda: completion.done, within_ms=3_600_000)
    return completion.result()


def ends(world: World) -> Call[object]:
    return administration.offsets(world.engine, "wide", "end", only_served=False)


def test_offsets_of_very_many_partitions_take_as_long_as_they_take(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_slow(broker: Broker, _: ListOffsetsResponse) -> None:
        broker.held_back_ms = SLOW_MS

    offsets_with(monkeypatch, is_slow)
    found = run(world, ends(world))
    assert isinstance(found, dict)
    assert len(found) == PARTITIONS
    assert max(asked(world)) == PIECE
    assert sum(asked(world)) == PARTITIONS, "nothing is asked twice"


def test_offsets_of_many_topics_take_as_long_as_they_take(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_slow(broker: Broker, _: ListOffsetsResponse) -> None:
        broker.held_back_ms = SLOW_MS

    offsets_with(monkeypatch, is_slow)
    names = [f"t{n}" for n in range(5 * lists.ASKED_MAX)]
    for name in names:
        world.cluster.create(name)
    monkeypatch.setattr(lookups, "PARTITIONS_MAX", 1_000)
    found = run(world, administration.offsets(world.engine, names, "end", only_served=False))
    assert isinstance(found, dict)
    assert len(found) == len(names)


def test_a_piece_that_never_comes_ends_the_call_at_its_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_unknown(_: Broker, response: ListOffsetsResponse) -> None:
        for row in response.topics[0].partitions:
            if row.partition_index >= PARTITIONS // 2:
                row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    offsets_with(monkeypatch, is_unknown)
    completion = world.engine.call(ends(world), world.now_ms)
    ended_ms: list[int] = []
    completion.on_done(lambda: ended_ms.append(world.now_ms))
    at_most_ms = world.now_ms + world.settings.api_timeout_ms
    world.run(lambda: completion.done)
    assert isinstance(completion.error, TimedOut)
    assert ended_ms == [at_most_ms], "what it has got came at once"


def test_records_of_many_partitions_are_deleted_in_pieces(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    deletion = administration._deletion

    def noted(offsets: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
        sizes.append(len(offsets))
        return deletion(offsets)

    monkeypatch.setattr(administration, "_deletion", noted)
    monkeypatch.setattr(lookups, "PARTITIONS_MAX", 3)
    compacted = f"{topic}-compacted"
    with Admin(daemon.address) as admin, Producer(daemon.address) as producer:
        admin.create_topic(topic, partitions=10)
        admin.create_topic(compacted, partitions=1, config={"cleanup.policy": "compact"})
        for partition in range(10):
            producer.send(topic, b"v", partition=partition)
        producer.flush()
        starts = admin.delete_records({(topic, n): -1 for n in range(5)})
        assert {tp.partition: start for tp, start in starts.items()} == dict.fromkeys(range(5), 1)
        assert sizes == [3, 2]
        with pytest.raises(PolicyViolation):
            admin.delete_records({(compacted, 0): -1, **{(topic, n): -1 for n in range(10)}})
        at = admin.offsets(topic, "start")
        assert [at[TopicPartition(topic, n)].offset for n in range(10)] == [1] * 10, (
            "all others, also of later pieces"
        )
