"""commitOffsetsToGroup: where a stream stands, as a consumer group's committed offsets.

For people and tools that look for lag there; the checkpoint stays the truth.  Spark tells of a
finished batch when it plans the next one, so the group is a batch behind, and of the last batch
of an availableNow query it tells nothing.  Best effort: what goes wrong is logged and the query
runs on.
"""

import logging

from segbroker.client import Admin, SegbrokerError, TopicPartition

from .connecting import ClientOptions
from .offsets import Offsets

log = logging.getLogger("segbroker.spark")

# A query does not wait longer than this for its lag to be shown.
TIMEOUT_MS = 5_000


def publish(client: ClientOptions, group: str, offsets: Offsets) -> None:
    """Commit the offsets to the group, of which nobody is a member."""
    at = {TopicPartition(*key): offset for key, offset in offsets.at.items()}
    try:
        with Admin(
            client.bootstrap_text,
            client_id=client.client_id,
            security=client.security,
            request_timeout_ms=TIMEOUT_MS,
            connect_timeout_ms=TIMEOUT_MS,
            api_timeout_ms=TIMEOUT_MS,
        ) as admin:
            admin.commit(group, at)
    except SegbrokerError as exc:
        log.warning("commitOffsetsToGroup=%s: %s; the query runs on", group, exc)
