"""Which session a ShareFetch is of, and what it changes in it.

A request with epoch 0 opens one, in place of the one that its member had.  One that contradicts
itself changes nothing.
"""

from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_share_groups import ShareFetchRequest

from ..call import Call
from ..core import Core
from ..refused import Refused, invalid_request
from ..shares.share_session import FINAL_EPOCH, FIRST_EPOCH, Place, ShareSession
from .acknowledging import Member

# share_acquire_mode: batches that begin within what is asked for; or not one record more.
WHOLE_BATCHES: Final = 0
STRICT: Final = 1


def enter(core: Core, call: Call[ShareFetchRequest], member: Member) -> ShareSession:
    """The session of the request, with what it changes in it.  Raises Refused."""
    request, sessions = call.request, core.shares.sessions
    _check(request)
    if request.share_session_epoch == FIRST_EPOCH:
        return sessions.begin(call.peer, *member, _places(request))
    session = sessions.find(*member, request.share_session_epoch)
    if request.share_session_epoch != FINAL_EPOCH:
        forgotten = [
            Place(topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        sessions.change(session, _places(request), forgotten)
    return session


def _check(request: ShareFetchRequest) -> None:
    """Raise Refused for a request that contradicts itself."""
    if request.share_session_epoch < FINAL_EPOCH:
        problem = f"{request.share_session_epoch} is not an epoch of a share session"
        raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, problem)
    if request.share_session_epoch == FIRST_EPOCH and any(
        one.acknowledgement_batches for topic in request.topics for one in topic.partitions
    ):
        raise invalid_request("a new session has nothing to acknowledge")
    if request.share_acquire_mode not in (WHOLE_BATCHES, STRICT):
        problem = f"share_acquire_mode {request.share_acquire_mode} is not known"
        raise invalid_request(problem)
    if request.is_renew_ack:
        wanted = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
        if any(wanted):
            problem = "a request that renews locks asks for no records: max_bytes, min_bytes,"
            raise invalid_request(f"{problem} max_records and max_wait_ms must be 0")


def _places(request: ShareFetchRequest) -> list[Place]:
    return [
        Place(topic.topic_id, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
    ]
