"""One partition of a fetch: what was asked of it, and whether it has something to say."""

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import FetchRequestPartition, FetchRequestTopic

from ..partitions.isolation import visible_end
from ..partitions.partition import Partition
from ..peers.fetch_session import SessionRow


class FetchTarget:
    """A partition of a request.  `partition` None: there is none, or `code` says why not."""

    __slots__ = ("asked", "code", "isolation", "kept", "partition", "topic")

    def __init__(
        self,
        topic: FetchRequestTopic,
        asked: FetchRequestPartition,
        partition: Partition | None,
        code: ErrorCode,
        isolation: int,
        kept: SessionRow | None = None,
    ) -> None:
        """`kept`: what its session has of it."""
        self.kept = kept
        self.topic = topic
        self.asked = asked
        self.partition = partition
        self.code = code
        self.isolation = isolation

    def look(self) -> bool:
        """Whether this partition has something to say: an error, or records."""
        if self.code or self.partition is None:
            return True
        handler = self.partition.handler
        offset = self.asked.fetch_offset
        return offset < visible_end(handler, self.isolation) or not (
            handler.log_start_offset <= offset <= handler.log_end_offset
        )
