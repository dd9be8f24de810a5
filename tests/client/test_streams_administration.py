"""Streams groups as an admin client sees them: described, listed, deleted."""

import trio

from segbroker.client import Admin, TopicPartition

from ..support.daemon import Daemon
from ..support.wire_client import connect
from ..support.wire_streams import beat, beating, joining, subtopology


def test_a_streams_group_is_described_with_what_its_members_read(
    daemon: Daemon, topic: str
) -> None:
    async def says(*requests: object) -> None:
        async with connect(daemon.host_and_port) as client:
            for request in requests:
                assert (await beat(client, request)).error_code == 0  # type: ignore[arg-type]

    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=2)
        admin.alter_group_config(topic, {"streams.initial.rebalance.delay.ms": "0"})
        assert admin.describe_group(topic).state == "Dead"
        trio.run(says, joining("m", subtopology("0", topic), group_id=topic))
        group = admin.describe_group(topic)
        assert (group.state, group.group_type, group.protocol) == ("Stable", "streams", "sticky")
        (member,) = group.members
        assert member.partitions == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        (row,) = [row for row in admin.list_groups() if row.group_id == topic]
        assert (row.state, row.group_type, row.protocol_type) == ("Stable", "streams", "streams")
        trio.run(says, beating("m", -1, group_id=topic))
        assert admin.describe_group(topic).state == "Empty"
        admin.delete_group(topic)
        assert admin.describe_group(topic).state == "Dead"
