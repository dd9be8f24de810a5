"""ShareAcknowledge (KIP-932): what became of records, without asking for others."""

from collections.abc import Iterable
from uuid import UUID

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import LeaderIdAndEpoch
from segbroker.protocol.messages_share_groups import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeResponsePartition,
    ShareAcknowledgeResponseTopic,
)

from ..apis.later_reply import LaterReply
from ..call import Call
from ..core import Core
from ..groups.group_keys import SHARE_RECORD_LOCK
from ..refused import Refused
from ..shares.share_session import FINAL_EPOCH, FIRST_EPOCH, Place
from .acknowledging import Acknowledging, Member, Outcome, member_of, said_in


def share_acknowledge(core: Core, call: Call[ShareAcknowledgeRequest], slot: LaterReply) -> None:
    """Take the acknowledgements of a session; answered when they are durable."""
    request = call.request
    try:
        member = member_of(core, request)
        if request.share_session_epoch <= FIRST_EPOCH and (
            request.share_session_epoch != FINAL_EPOCH
        ):
            raise Refused(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                "a session is opened by ShareFetch, and acknowledges from epoch 1 on",
            )
        session = core.shares.sessions.find(*member, request.share_session_epoch)
    except Refused as exc:
        slot.answer(
            ShareAcknowledgeResponse(
                error_code=exc.code, error_message=exc.message, responses=[], node_endpoints=[]
            )
        )
        return
    acknowledging = Acknowledging(core, call, member, session)
    said = said_in(request)
    acknowledging.begin(said)

    async def settled() -> None:
        await acknowledging.go_on()
        await acknowledging.settle()
        if request.share_session_epoch == FINAL_EPOCH:
            session.close()
        slot.answer(_response(core, member, said, acknowledging.outcomes))
        core.turn.end()

    slot.work_on(settled)


def _response(
    core: Core, member: Member, places: Iterable[Place], outcomes: dict[Place, Outcome]
) -> ShareAcknowledgeResponse:
    topics: dict[UUID, ShareAcknowledgeResponseTopic] = {}
    for place in places:
        topic = topics.get(place.topic_id)
        if topic is None:
            topic = ShareAcknowledgeResponseTopic(topic_id=place.topic_id, partitions=[])
            topics[place.topic_id] = topic
        topic.partitions.append(_row(place.partition, outcomes.get(place, Outcome())))
    lock_ms = core.group_settings.in_force(member.group_id, SHARE_RECORD_LOCK)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=list(topics.values()),
        node_endpoints=[],
    )


def _row(index: int, outcome: Outcome) -> ShareAcknowledgeResponsePartition:
    return ShareAcknowledgeResponsePartition(
        partition_index=index,
        error_code=outcome.code,
        error_message=outcome.message,
        current_leader=LeaderIdAndEpoch(),
    )
