"""The records of one partition's answer to a share fetch: which of them are the member's.

The broker sends whole batches and says beside them which offsets are locked for this member.

    a record at such an offset           handed out, with its delivery count
    no record there                      a gap: said to be one, so that it does not come again
    ... in a batch that says it is lost  and the caller is told
    a damaged batch                      released: another copy may be read, or it is repaired
    behind the last whole batch          released: it was cut off

Nothing is skipped on the word of a header alone, as in reply_walk.
"""

from dataclasses import dataclass, field
from uuid import UUID

from segbroker.protocol import limits
from segbroker.protocol.messages_share_groups import ShareFetchResponsePartition
from segbroker.protocol.record_batch import (
    BatchHeader,
    InvalidBatch,
    decode_batch,
    iter_batches,
    read_header,
)
from segbroker.protocol.schema import records_view

from .acknowledging import Kind, ShareRecord
from .errors import CorruptBatch, PeerError
from .records import Gap, Record, TopicPartition
from .reply_walk import loss_of

# What one answer may lock, in one partition: it is held offset by offset.
OFFSETS_COUNT_MAX = 1 << 20


@dataclass(slots=True)
class Opened:
    """What came: in order; which offsets are locked; what is to be said of some at once."""

    items: list[ShareRecord | Gap] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    said: dict[int, Kind] = field(default_factory=dict)
    error: CorruptBatch | None = None


def open_answer(tp: TopicPartition, topic_id: UUID, row: ShareFetchResponsePartition) -> Opened:
    """See the module.  Raises PeerError for locks that no broker gives."""
    opened = Opened(counts=_counts(tp, row))
    if not opened.counts:
        return opened
    offsets = sorted(opened.counts)
    seen = -1
    try:
        for view in iter_batches(records_view(row.records)):
            header = read_header(view)
            if header.next_offset <= offsets[0] or header.base_offset > offsets[-1]:
                seen = max(seen, header.last_offset)
                continue
            _open_batch(tp, topic_id, header, view, opened)
            seen = max(seen, header.last_offset)
    except InvalidBatch as exc:
        opened.error = CorruptBatch(f"{tp.topic}-{tp.partition}, behind offset {seen}: {exc}")
        opened.error.__cause__ = exc
    handed = {item.offset for item in opened.items if isinstance(item, ShareRecord)}
    for offset in offsets:
        if offset not in handed and offset not in opened.said:
            opened.said[offset] = Kind.GAP if offset <= seen else Kind.RELEASE
    return opened


def _counts(tp: TopicPartition, row: ShareFetchResponsePartition) -> dict[int, int]:
    spans = row.acquired_records
    total = sum(span.last_offset - span.first_offset + 1 for span in spans)
    if total > OFFSETS_COUNT_MAX or any(span.last_offset < span.first_offset for span in spans):
        raise PeerError(
            f"{tp.topic}-{tp.partition}: a broker has locked {total} offsets for one answer,"
            f" limit {OFFSETS_COUNT_MAX}"
        )
    counts: dict[int, int] = {}
    for span in spans:
        counts.update(
            dict.fromkeys(range(span.first_offset, span.last_offset + 1), span.delivery_count)
        )
    return counts


def _open_batch(
    tp: TopicPartition, topic_id: UUID, header: BatchHeader, view: memoryview, opened: Opened
) -> None:
    counts = opened.counts
    batch = None
    try:
        batch = decode_batch(view, headers_max=limits.HEADERS_COUNT_MAX)
    except InvalidBatch as exc:
        opened.error = CorruptBatch(
            f"{tp.topic}-{tp.partition}, batch at offset {header.base_offset}: {exc}"
        )
        opened.error.__cause__ = exc
        opened.said.update(
            (offset, Kind.RELEASE)
            for offset in counts
            if header.base_offset <= offset <= header.last_offset
        )
        return
    if header.is_control or not header.records_count:
        reason = loss_of(header)
        if reason is not None and any(
            header.base_offset <= offset <= header.last_offset for offset in counts
        ):
            opened.items.append(Gap(*tp, header.base_offset, header.next_offset, reason))
        return
    topic, partition = tp
    made = batch.records_as(Record, (topic, partition), start=0, stop=len(batch))
    opened.items += [
        ShareRecord(*record, counts[record.offset], topic_id)
        for record in made
        if record.offset in counts
    ]
