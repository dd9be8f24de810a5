"""Brokers that leave the cluster, come back, or have another address; requests that wait for one
that cannot be reached."""

from contextlib import suppress
from typing import Any

import pytest

from segbroker.client.connection import Connection, State
from segbroker.client.engine import Ask, Call, Pause
from segbroker.client.errors import (
    BrokerUnreachable,
    LeaderNotAvailable,
    SegbrokerError,
    TimedOut,
)
from segbroker.client.lookups import look_up
from segbroker.client.network import CONTROL
from segbroker.client.records import TopicPartition
from segbroker.client.spoken import Reply
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.messages_core import (
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)

from .simulated import World
from .test_producing import Sender

OTHER = 2
MOST = 10
END_TIME = -1


def two_brokers(**settings: Any) -> World:  # noqa: ANN401 - passed on
    """A world of two, each of which leads a partition of the topic t."""
    world = World(brokers=2, **settings)
    world.cluster.create("t", 2)
    return world


def connections(world: World, broker: int) -> list[Connection]:
    """All that the client has to a broker."""
    nodes = world.engine.network.nodes
    return [
        node.connection
        for (number, _), node in nodes.items()
        if number == broker and node.connection is not None
    ]


def looked_again(world: World) -> None:
    """The client has a new view of the cluster."""
    seen = world.engine.cluster.replies_count
    world.engine.cluster.invalidate()
    world.run(lambda: world.engine.cluster.replies_count > seen)
    world.turn()


def test_a_broker_that_leaves_the_cluster_is_forgotten_and_found_again_when_it_is_back() -> None:
    world = two_brokers()
    sender = Sender(world, linger_ms=0)
    sender.send("t", b"before", partition=1)
    sender.flush()
    had = connections(world, OTHER)
    gone = world.cluster.brokers.pop(OTHER)
    world.cluster.move("t", 1, 1)
    looked_again(world)
    assert had
    assert all(one.state is State.CLOSED for one in had)
    assert not any(broker is gone for broker, _ in world._links.values()), "nor has it a socket"
    assert {number for number, _ in world.engine.network.nodes} == {-1, 1}
    sender.send("t", b"meanwhile", partition=1)
    sender.flush()
    world.cluster.brokers[OTHER] = gone
    world.cluster.move("t", 1, OTHER)
    looked_again(world)
    sender.send("t", b"behind", partition=1)
    sender.flush()
    assert world.stored("t", 1) == [b"before", b"meanwhile", b"behind"]
    assert sum(isinstance(request, ProduceRequest) for request in gone.requests) == 2


def test_a_broker_that_leaves_answers_what_is_under_way_before_it_is_forgotten() -> None:
    world = two_brokers()
    sender = Sender(world, linger_ms=0)
    sender.send("t", b"before", partition=1)
    sender.flush()
    deliver = world.deliver
    held: list[tuple[Connection, bytes]] = []

    def hold(connection: Connection, data: bytes) -> None:
        if connection in connections(world, OTHER):
            held.append((connection, data))
        else:
            deliver(connection, data)

    world.deliver = hold  # type: ignore[method-assign]  # a broker that takes its time
    under_way = sender.send("t", b"under way", partition=1)
    world.run(lambda: bool(held))
    world.cluster.brokers.pop(OTHER)
    world.cluster.move("t", 1, 1)
    looked_again(world)
    assert not under_way.done
    deliver(*held[0])
    assert under_way.metadata().offset == 1
    looked_again(world)
    assert connections(world, OTHER) == []


def moved(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other broker has another port from now on."""
    world.cluster.brokers[5] = world.cluster.brokers[OTHER]
    tell = world.broker._metadata

    def told(request: MetadataRequest) -> MetadataResponse:
        reply = tell(request)
        reply.brokers = [row for row in reply.brokers if row.node_id != 5]
        reply.brokers[-1].port = 9005
        return reply

    monkeypatch.setattr(world.broker, "_metadata", told)


def test_a_broker_at_another_address_is_tried_there_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long the client would have waited for the one before."""
    world = two_brokers(reconnect_backoff_ms=100_000, reconnect_backoff_max_ms=100_000)
    world.cluster.brokers[OTHER].is_up = False
    sender = Sender(world, linger_ms=0)
    delivery = sender.send("t", b"a", partition=1)
    world.run(lambda: (OTHER, CONTROL) in world.engine.network.nodes)
    world.run(lambda: world.engine.network.nodes[OTHER, CONTROL].last_error is not None)
    world.cluster.brokers[OTHER].is_up = True
    moved(world, monkeypatch)
    world.engine.cluster.invalidate()
    world.run(lambda: delivery.done, within_ms=20_000)
    assert delivery.metadata().offset == 0


def test_records_for_a_leader_that_is_away_go_to_the_next_one() -> None:
    """The view said nothing of it yet when the connection was lost."""
    world = two_brokers()
    sender = Sender(world, linger_ms=0, delivery_timeout_ms=60_000)
    sender.send("t", b"before", partition=1)
    sender.flush()
    world.cluster.brokers[OTHER].is_up = False
    delivery = sender.send("t", b"waits", partition=1)
    ends_ms = world.now_ms + 10_000
    world.run(lambda: world.now_ms > ends_ms)
    assert not delivery.done
    world.cluster.move("t", 1, 1)
    sender.flush()
    assert world.stored("t", 1) == [b"before", b"waits"]
    assert world.now_ms < ends_ms + 10_000


def test_who_is_not_answered_as_its_time_passes_hears_what_was_answered_before() -> None:
    world = two_brokers()
    why = LeaderNotAvailable("not now")

    def asks() -> Call[None]:
        yield Ask(MetadataRequest(topics=[]))
        for broker in world.cluster.brokers.values():
            broker.answer = lambda frame: b""  # type: ignore[method-assign]
        yield Pause(100, why)
        with suppress(TimedOut):
            yield Ask(MetadataRequest(topics=[]))
        yield Pause(100)

    done = world.engine.call(asks(), world.now_ms, timeout_ms=500)
    world.run(lambda: done.done)
    with pytest.raises(TimedOut, match="last: not now") as told:
        done.result()
    assert told.value.__cause__ is why


def test_who_waits_for_a_broker_in_vain_hears_why_it_cannot_be_reached() -> None:
    world = two_brokers(reconnect_backoff_ms=100_000, reconnect_backoff_max_ms=100_000)
    world.cluster.brokers[OTHER].is_up = False
    world.engine.cluster.want(["t"])
    asked = {TopicPartition("t", 1): END_TIME}
    call = look_up(world.engine, asked, isolation_level=0)
    done = world.engine.call(call, world.now_ms, timeout_ms=5_000)
    world.run(lambda: done.done)
    where = "10.0.0.1:9002 could not be reached in time: 10.0.0.1: refused"
    with pytest.raises(TimedOut, match=f"not done within 5000 ms; last: {where}") as told:
        done.result()
    assert isinstance(told.value.__cause__, BrokerUnreachable | TimedOut)
    assert not world.engine.network.nodes[OTHER, CONTROL].waiting


def test_so_many_requests_wait_for_a_broker_and_further_ones_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("segbroker.client.network.WAITING_COUNT_MAX", MOST)
    world = two_brokers()
    network = world.engine.network
    node = network.node((OTHER, CONTROL), ("10.0.0.1", 9002))
    said: list[Reply] = []

    def ask(deadline_ms: int) -> None:
        network.request(
            node,
            MetadataRequest(topics=[]),
            lambda reply, at_ms: said.append(reply),
            now_ms=world.now_ms,
            deadline_ms=deadline_ms,
        )

    for number in range(MOST):
        ask(world.now_ms + 1_000 + number % 2)
    assert not said
    ask(world.now_ms + 1_000)
    (refused,) = said
    assert isinstance(refused, BrokerUnreachable)
    assert refused.message == "not sent: 10 requests wait for 10.0.0.1:9002 already"
    assert not refused.may_be_done
    network.step(world.now_ms + 1_000)
    assert len(said) == 1 + MOST // 2, "those whose time is over"
    assert not any(late.may_be_done for late in said[1:] if isinstance(late, TimedOut))
    world.run(lambda: len(said) == 1 + MOST)
    assert sum(isinstance(reply, MetadataResponse) for reply in said) == MOST // 2


@pytest.mark.parametrize("acks", [0, -1])
def test_a_broker_that_takes_no_records_as_they_are_sent_is_not_asked_again(acks: int) -> None:
    world = World()
    world.cluster.create("t")
    world.broker.newest[ApiKey.PRODUCE] = 2
    sender = Sender(world, linger_ms=0, acks=acks, idempotent=False)
    deliveries = [sender.send("t", b"%d" % number) for number in range(3)]
    sender.flush()
    for delivery in deliveries:
        with pytest.raises(
            SegbrokerError, match="has no version of PRODUCE that this client speaks"
        ):
            delivery.metadata()
    assert not any(isinstance(request, ProduceRequest) for request in world.broker.requests)
    assert not sender.accumulator.unfinished_count
