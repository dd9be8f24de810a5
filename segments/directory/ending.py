"""What an orderly stop says of the ends of logs: below which offset each of them is whole.

| partition | said |
|---|---|
| open, and closed without a failure, damaged or not | its end, unless that is known already |
| never opened since the start | the end that the WAL vouches for, if it does |
| a sync failed, and acknowledged bytes are not there any more | what was reserved, in doubt |
| else failed, and all was acknowledged as `fsync` | below which offset, whoever has it |
| else failed, while all of it was acknowledged, synced and is there | its end |
| else failed, or never written to | nothing |

It is the one thing that vouches for the end of a log when the WAL is empty, and is not in the log's
own directory: so what a disk loses of it later is told from a log that always ended there.
"""

from collections.abc import Iterable, Iterator, Mapping

from ..metadata.metadata import IN_DOUBT, SETTLED, Ceiling, Metadata, TopicMeta
from ..partition.handler import DiskHandler
from ..replay.resuming import CeilingRow, Resuming


def end_of(handler: DiskHandler, known: Metadata) -> Iterator[CeilingRow]:
    """Of a partition that was closed.  Blocking."""
    meta = known.topics[handler.topic]
    key, end_offset = (meta.topic_id, handler.partition), handler.log_end_offset
    before = known.ceiling(key)
    if handler.has_failed:
        if (reserved := handler.find_loss()) is not None:
            yield key, Ceiling(reserved, IN_DOUBT)
            return
        is_whole = not (handler.has_unsynced or handler.is_in_doubt)
        if handler.acks_unsynced and not (is_whole and handler.high_watermark == end_offset):
            return
        end_offset = handler.high_watermark
    if before is None and not end_offset:
        return
    ceiling = Ceiling(end_offset, SETTLED)
    if before != ceiling:
        yield key, ceiling


def ends_of_unopened(
    vouched: Iterable[tuple[tuple[bytes, int], int]],
    topics: Mapping[str, TopicMeta],
    resuming: Resuming,
) -> Iterator[CeilingRow]:
    """Of those that nobody has opened: it is not to be forgotten with the WAL, whatever class they
    are of since.

    vouched: topic id and partition of each, and the offset below which the WAL vouches for it."""
    by_id = {meta.topic_id.bytes: meta for meta in topics.values()}
    for (topic_id, partition), end_offset in vouched:
        meta = by_id.get(topic_id)
        if meta is None or end_offset <= 0:
            continue
        if not resuming.is_unresolved(meta, partition):
            reached = max(end_offset, resuming.settled_end(meta, partition))
            yield (meta.topic_id, partition), Ceiling(reached, SETTLED)
