"""One partition of a fetch: what was asked of it, and whether it has something to say.

A client may name the leader epoch of what it read last (Fetch 12).  If the log has lost that since,
as after an unclean stop, the client learns it here, before it reads on over the loss.
"""

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import FetchRequestPartition, FetchRequestTopic

from ..partitions.isolation import visible_end
from ..partitions.partition import Partition
from ..peers.fetch_session import SessionRow


class FetchTarget:
    """A partition of a request.  `partition` None: there is none, or `code` says why not."""

    __slots__ = ("asked", "code", "diverging", "isolation", "kept", "partition", "topic")

    def __init__(
        self,
        topic: FetchRequestTopic,
        asked: FetchRequestPartition,
        partition: Partition | None,
        code: ErrorCode,
        isolation: int,
        kept: SessionRow | None,
    ) -> None:
        """`kept`: what its session has of it."""
        self.kept = kept
        self.topic = topic
        self.asked = asked
        self.partition = partition
        self.code = code
        self.isolation = isolation
        # Where the log parts from what the client has read: the epoch, and where it ends.
        self.diverging: tuple[int, int] | None = None

    def compare_epochs(self) -> None:
        """Whether what the client has read last, of the epoch that it names, is in the log.

        Where it is not, the answer says how far the log agrees, and has no records.  An epoch of
        which nothing is known, and an offset below the log start, are OFFSET_OUT_OF_RANGE.
        """
        assert self.partition is not None, "there is nothing to compare with"
        handler, offset = self.partition.handler, self.asked.fetch_offset
        epoch, end = handler.end_offset_for_epoch(self.asked.last_fetched_epoch)
        if epoch < 0 or end < 0 or offset < handler.log_start_offset:
            self.code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif epoch < self.asked.last_fetched_epoch or end < offset:
            self.diverging = epoch, end

    def look(self) -> bool:
        """Whether this partition has something to say: an error, or records."""
        if self.code or self.partition is None or self.diverging is not None:
            return True
        handler = self.partition.handler
        offset = self.asked.fetch_offset
        return offset < visible_end(handler, self.isolation) or not (
            handler.log_start_offset <= offset <= handler.log_end_offset
        )
