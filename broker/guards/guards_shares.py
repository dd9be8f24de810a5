"""Guards of requests about the records of share groups: see authorized.py.

| api | needs | else |
|---|---|---|
| ShareFetch, ShareAcknowledge | READ group | 30 |
| ... of each topic, while it is read or acknowledged | READ topic | 29 (sharing/) |
"""

from typing import Final

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.messages_share_groups import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from segbroker.protocol.schema import Message

from ..access.authorizer import GROUP, READ, Authorizer
from ..call import Call
from ..core import Core
from .guarding import GROUP_REFUSED, Guard


def _share_fetch(
    core: Core, authorizer: Authorizer, call: Call[ShareFetchRequest]
) -> Message | None:
    if authorizer.allows(call.peer, READ, GROUP, call.request.group_id or ""):
        return None
    return ShareFetchResponse(
        error_code=GROUP_REFUSED,
        error_message=GROUP_REFUSED.description,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )


def _share_acknowledge(
    core: Core, authorizer: Authorizer, call: Call[ShareAcknowledgeRequest]
) -> Message | None:
    if authorizer.allows(call.peer, READ, GROUP, call.request.group_id or ""):
        return None
    return ShareAcknowledgeResponse(
        error_code=GROUP_REFUSED,
        error_message=GROUP_REFUSED.description,
        responses=[],
        node_endpoints=[],
    )


GUARDS: Final[dict[int, Guard]] = {
    ApiKey.SHARE_FETCH: _share_fetch,
    ApiKey.SHARE_ACKNOWLEDGE: _share_acknowledge,
}
