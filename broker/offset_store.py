"""Committed offsets: the requests are understood, nothing is stored yet.

A consumer that only assigns partitions still has a `group.id`, and librdkafka commits for it on
close; without a coordinator that answers it waits 45 s before it gives up, whatever error
FindCoordinator gives (tried; docs/decisions/0020).  So FindCoordinator names us, and

    OffsetFetch    offset -1 for every partition: nothing is stored, which is the truth
    OffsetCommit   REFUSED for every partition: not retried, never taken for a success
"""

from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponseGroupTopicPartition,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

from .call import Call
from .core import Core

REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED


def offset_commit(core: Core, call: Call[OffsetCommitRequest]) -> OffsetCommitResponse:
    """Refuse every commit."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=REFUSED
                    )
                    for one in topic.partitions
                ],
            )
            for topic in call.request.topics
        ]
    )


def offset_fetch(core: Core, call: Call[OffsetFetchRequest]) -> OffsetFetchResponse:
    """Nothing is stored for anybody."""
    request = call.request
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata=""
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
        groups=[
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[
                    OffsetFetchResponseGroupTopic(
                        name=topic.name,
                        partitions=[
                            OffsetFetchResponseGroupTopicPartition(
                                partition_index=index, committed_offset=-1, metadata=""
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics or ()
                ],
            )
            for group in request.groups
        ],
    )
