"""Groups that turn from one protocol to the other while members are in them, on the wire."""

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
)
from segbroker.protocol.messages_groups import (
    ListGroupsRequest,
    ListGroupsResponse,
)

from ..support.wire_client import WireClient, connect
from .classic_member import ClassicMember
from .conftest import serving
from .test_consumer_groups import beat, described, joining, read_by

ALL = [("t", 0), ("t", 1)]


async def alone(client: WireClient, **changes: object) -> ClassicMember:
    """A classic member that has all there is."""
    one = ClassicMember(client, **changes)  # type: ignore[arg-type]
    await one.join()
    await one.sync({one.member_id: ALL})
    assert one.has == ALL
    return one


async def kind(client: WireClient) -> tuple[str, str]:
    """(type, state) of the group."""
    reply = await client.ask(ListGroupsRequest(), ListGroupsResponse, 5)
    (row,) = reply.groups
    return row.group_type, row.group_state


def of_848(epoch: int, **changes: object) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
    for name, value in changes.items():
        setattr(request, name, value)
    return request


async def test_an_eager_member_and_one_of_the_consumer_protocol_share_a_group_and_part() -> None:
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", partitions=2)
        one = await alone(client)
        assert await one.beat() == 0
        before = one.generation

        two = await beat(client, joining())
        assert two.error_code == 0
        assert two.member_epoch > before, "epochs count the generations on"
        assert read_by(two) == {}, "the other has not let go of anything"
        assert await kind(client) == ("consumer", "Reconciling")
        assert await one.commit() == 0, "its generation holds until it has joined again"
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert await one.sync() == ErrorCode.REBALANCE_IN_PROGRESS

        reply = await one.join()  # an eager member: it has let go of all
        assert (reply.error_code, reply.generation_id) == (0, two.member_epoch)
        assert (reply.leader, reply.members, reply.protocol_name) == ("", [], "range")
        assert await one.sync() == 0
        assert await one.beat() == 0
        assert len(one.has) == 1
        topic_id = broker.core.topics.all["t"].topic_id
        told = await beat(client, of_848(two.member_epoch, topic_partitions=[]))
        (theirs,) = read_by(told)[topic_id]
        assert {("t", theirs), *one.has} == set(ALL)
        row = await described(client)
        assert {(each.member_id, each.member_type) for each in row.members} == {
            (one.member_id, 0),
            ("m", 1),
        }
        assert await kind(client) == ("consumer", "Stable")
        assert await one.commit(before) == ErrorCode.ILLEGAL_GENERATION
        assert await one.commit() == 0

        gone = await beat(client, of_848(-1))
        assert gone.error_code == 0
        assert await kind(client) == ("classic", "PreparingRebalance")
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        reply = await one.join()
        assert (reply.error_code, reply.leader) == (0, one.member_id)
        assert reply.generation_id > two.member_epoch
        assert await one.sync({one.member_id: ALL}) == 0
        assert one.has == ALL
        assert await kind(client) == ("classic", "Stable")
