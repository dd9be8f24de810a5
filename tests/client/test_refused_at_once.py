"""A call whose requests are refused here, without a word to a broker, asks for the next at once.

As of a broker that does not know them: however many there are, each is done before the next.
"""

import pytest

from segbroker.client.many_groups import describe_groups
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.messages_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from segbroker.protocol.schema import Message

from .simulated import World

COUNT = 50_000


def test_very_many_groups_are_described_by_a_broker_that_knows_classic_ones_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Apache Kafka before 3.7."""
    world = World()
    broker = world.broker
    for key in (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
    ):
        broker.newest[key] = -1
    reply = broker._reply

    def with_groups(request: Message, version: int) -> tuple[Message, int]:
        match request:
            case FindCoordinatorRequest():
                rows = [
                    FindCoordinatorResponseCoordinator(
                        key=name, node_id=1, host="10.0.0.1", port=9001, error_message=None
                    )
                    for name in request.coordinator_keys
                ]
                return FindCoordinatorResponse(coordinators=rows), version
            case DescribeGroupsRequest():
                groups = [
                    DescribeGroupsResponseGroup(
                        error_code=0,
                        group_id=name,
                        group_state="Stable",
                        protocol_type="consumer",
                        protocol_data="range",
                        members=[],
                    )
                    for name in request.groups
                ]
                return DescribeGroupsResponse(groups=groups), version
        return reply(request, version)

    monkeypatch.setattr(broker, "_reply", with_groups)
    names = [f"g{n}" for n in range(COUNT)]
    world.cluster.create("t")
    world.engine.cluster.want(["t"])
    world.run(lambda: bool(world.engine.cluster.brokers))
    call = world.engine.call(describe_groups(world.engine, names), world.now_ms)
    world.run(lambda: call.done)
    assert list(call.result()) == names
