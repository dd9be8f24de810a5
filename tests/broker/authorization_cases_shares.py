"""Requests about share groups that need a rule, but for those about records."""

from collections.abc import Callable

from segbroker.protocol import messages_share_groups as shares

from .authorization_case import DELETE, DESCRIBE, G30, GROUP, READ, T29, TOPIC, Case


def _described_topic() -> shares.DescribeShareGroupOffsetsRequestTopic:
    return shares.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])


def _altered_topic() -> shares.AlterShareGroupOffsetsRequestTopic:
    row = shares.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    return shares.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[row])


OF_SHARE_GROUPS: dict[str, Callable[[], Case]] = {
    "share group heartbeat": lambda: Case(
        shares.ShareGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
        ),
        shares.ShareGroupHeartbeatResponse,
        1,
        G30,
        ((DESCRIBE, TOPIC, "t"), (READ, GROUP, "g")),
    ),
    "share group heartbeat with a topic": lambda: Case(
        shares.ShareGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
        ),
        shares.ShareGroupHeartbeatResponse,
        1,
        T29,
        ((READ, GROUP, "g"), (DESCRIBE, TOPIC, "t")),
    ),
    "describe share groups": lambda: Case(
        shares.ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False),
        shares.ShareGroupDescribeResponse,
        1,
        G30,
        ((DESCRIBE, GROUP, "g"),),
    ),
    "describe the offsets of a share group": lambda: Case(
        shares.DescribeShareGroupOffsetsRequest(
            groups=[
                shares.DescribeShareGroupOffsetsRequestGroup(
                    group_id="g", topics=[_described_topic()]
                )
            ]
        ),
        shares.DescribeShareGroupOffsetsResponse,
        1,
        G30,
        ((DESCRIBE, TOPIC, "t"), (DESCRIBE, GROUP, "g")),
    ),
    "alter the offsets of a share group": lambda: Case(
        shares.AlterShareGroupOffsetsRequest(group_id="g", topics=[_altered_topic()]),
        shares.AlterShareGroupOffsetsResponse,
        0,
        G30,
        ((READ, TOPIC, "t"), (READ, GROUP, "g")),
    ),
    "delete the offsets of a share group": lambda: Case(
        shares.DeleteShareGroupOffsetsRequest(
            group_id="g",
            topics=[shares.DeleteShareGroupOffsetsRequestTopic(topic_name="t")],
        ),
        shares.DeleteShareGroupOffsetsResponse,
        0,
        G30,
        ((READ, TOPIC, "t"), (DELETE, GROUP, "g")),
    ),
}
