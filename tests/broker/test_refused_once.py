"""A partition that one request names again and again is refused once: a row outweighs a number.

Who has no right to anything can ask eight mebibytes of one number.
"""

from typing import Any

import pytest

from segbroker.protocol import messages_groups as groups
from segbroker.protocol import messages_placement as placement
from segbroker.protocol import messages_share_groups as share_groups
from segbroker.protocol import messages_transactions as transactions
from segbroker.protocol.schema import Message

from .authorization_case import DESCRIBE, GROUP
from .guarded import ALICE, allow, connect_from, guarded, rule

NUMBERS = [0, 1] * 1_000


def numbers_in(message: Message) -> list[int]:
    """Every number of a partition in an answer."""
    found: list[int] = []
    for name in message.__slots__:
        value: Any = getattr(message, name)
        if name in ("partition_index", "partition_id"):
            found.append(value)
        elif isinstance(value, list) and value and isinstance(value[0], Message):
            found += [number for row in value for number in numbers_in(row)]
    return found


@pytest.mark.parametrize(
    ("request_", "expected", "version"),
    [
        (
            placement.ElectLeadersRequest(
                topic_partitions=[placement.ElectLeadersRequestTopic(topic="t", partitions=NUMBERS)]
                * 2,
                timeout_ms=1000,
            ),
            placement.ElectLeadersResponse,
            2,
        ),
        (
            placement.AlterReplicaLogDirsRequest(
                dirs=[
                    placement.AlterReplicaLogDirsRequestDir(
                        path="/x",
                        topics=[
                            placement.AlterReplicaLogDirsRequestTopic(name="t", partitions=NUMBERS)
                        ],
                    )
                ]
            ),
            placement.AlterReplicaLogDirsResponse,
            2,
        ),
        (
            transactions.DescribeProducersRequest(
                topics=[
                    transactions.DescribeProducersRequestTopic(name="t", partition_indexes=NUMBERS)
                ]
            ),
            transactions.DescribeProducersResponse,
            0,
        ),
        (
            transactions.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=7,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[
                    transactions.AddPartitionsToTxnRequestTopic(name="t", partitions=NUMBERS)
                ],
            ),
            transactions.AddPartitionsToTxnResponse,
            3,
        ),
        (
            transactions.WriteTxnMarkersRequest(
                markers=[
                    transactions.WriteTxnMarkersRequestMarker(
                        producer_id=7,
                        producer_epoch=0,
                        transaction_result=True,
                        coordinator_epoch=0,
                        topics=[
                            transactions.WriteTxnMarkersRequestTopic(
                                name="t", partition_indexes=NUMBERS
                            )
                        ],
                    )
                ]
            ),
            transactions.WriteTxnMarkersResponse,
            1,
        ),
        (
            groups.OffsetFetchRequest(
                group_id="g",
                topics=[groups.OffsetFetchRequestTopic(name="t", partition_indexes=NUMBERS)],
            ),
            groups.OffsetFetchResponse,
            7,
        ),
        (
            groups.OffsetFetchRequest(
                groups=[
                    groups.OffsetFetchRequestGroup(
                        group_id="g",
                        topics=[
                            groups.OffsetFetchRequestGroupTopic(name="t", partition_indexes=NUMBERS)
                        ],
                    )
                ]
            ),
            groups.OffsetFetchResponse,
            8,
        ),
        (
            share_groups.DescribeShareGroupOffsetsRequest(
                groups=[
                    share_groups.DescribeShareGroupOffsetsRequestGroup(
                        group_id="g",
                        topics=[
                            share_groups.DescribeShareGroupOffsetsRequestTopic(
                                topic_name="t", partitions=NUMBERS
                            )
                        ],
                    )
                ]
            ),
            share_groups.DescribeShareGroupOffsetsResponse,
            1,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
async def test_a_number_is_refused_once(
    request_: Message, expected: type[Message], version: int
) -> None:
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        await allow(broker, rule(DESCRIBE, GROUP, "g"))
        assert numbers_in(await alice.ask(request_, expected, version)) == [0, 1]
