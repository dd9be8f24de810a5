"""The invariants: what may be seen after a crash, given what was promised.

| | says | here |
|---|---|---|
| I1 | nothing acked is lost, by class | durable below a power cut, acked below a kill |
| I2 I3 | nothing foreign; whole or not at all | every batch is, byte for byte, one that was sent |
| I4 | one payload per offset, offsets rise | base offsets are those that were assigned |
| I5 | a retry is no second record | what is remembered of producers is what the batches say |
|    | read_committed shows the truth | so are open transactions and aborted ranges |
| I7 | every offset is accounted for | items follow each other from the start to the end |
| I8 | start and end | the start is one that was asked for; the end covers what was acked |
| I9 | no wrong bytes | reads verify, and the comparison of I2 is with what was sent |

I10 and I11, and that what was recovered can be written to, need a second recovery: explorer.py.  So
does what a start tells as lost: no event of the metadata, since none is damaged in any scenario.
I12 is watched by recording.py; I13 by scenarios with a full disk; I14 by every scenario (the disk
has nothing outside of the data directory to create).
"""

from collections.abc import Iterator

from segbroker.protocol.batch_layout import LENGTH_END
from segbroker.protocol.markers import Outcome, marker_outcome
from segbroker.protocol.record_batch import InvalidBatch, decode_batch, read_header
from segbroker.segments.settings.topic_config import Durability

from .model import Life, Model, PartitionModel
from .observing import BODY, Seen, SeenPartition, SeenTopic


def violations(model: Model, seen: Seen, *, is_kill: bool) -> Iterator[str]:
    """Every promise that is not kept, as a sentence that begins with its invariant."""
    if model.identity and seen.identity != model.identity:
        yield f"I1: the identity is {seen.identity!r}, it was {model.identity!r}"
    if seen.next_producer_id < model.producer_ids:
        yield f"I4: producer id {seen.next_producer_id} comes next, {model.producer_ids} was given"
    if model.identity and seen.sections not in model.sections:
        yield f"I1: known is {seen.sections}, not one of {sorted(model.sections)}"
    for group, topic, topic_id in seen.shares():
        if topic not in seen.topics or seen.topics[topic].topic_id.hex() != topic_id:
            yield f"I2: share group {group!r} has something of a topic {topic!r} that is not there"
    for name in seen.topics.keys() - model.topics.keys():
        yield f"I2: there is a topic {name!r} that nobody made"
    for name, allowed in model.topics.items():
        found = seen.topics.get(name)
        if found is None:
            if None not in allowed:
                yield f"I1: topic {name!r} is gone"
            continue
        lives = [life for life in allowed if life is not None]
        life = next((life for life in lives if life.topic_id == found.topic_id), None)
        if life is None:
            life = next((life for life in lives if not life.topic_id), None)
        if life is None:
            yield f"I2: topic {name!r} is there, with an id that it must not have"
        else:
            yield from _topic(name, life, found, is_kill=is_kill)


def _topic(name: str, life: Life, seen: SeenTopic, *, is_kill: bool) -> Iterator[str]:
    if not life.partitions_min <= len(seen.partitions) <= len(life.partitions):
        yield (
            f"I1: {name} has {len(seen.partitions)} partitions, "
            f"not {life.partitions_min} to {len(life.partitions)}"
        )
    if dict(seen.overrides) not in life.configs:
        yield f"I1: the settings of {name} are {dict(seen.overrides)}"
    for number, partition in enumerate(seen.partitions[: len(life.partitions)]):
        for found in of_partition(life.partitions[number], partition, is_kill=is_kill):
            yield f"{found} ({name}/{number})"


def of_partition(model: PartitionModel, seen: SeenPartition, *, is_kill: bool) -> Iterator[str]:
    """The promises of one partition."""
    if seen.error and model.may_be_refused and "PartitionRefused" in seen.error:
        return
    if model.durability is Durability.EPHEMERAL:
        yield from _ephemeral(model, seen)
        return
    if seen.error:
        yield f"I1: it cannot be opened or read: {seen.error}"
        return
    if not model.start_min <= seen.start <= model.start_max:
        yield f"I8: it begins at {seen.start}, not in [{model.start_min}, {model.start_max}]"
    if seen.start > seen.end:
        yield f"I8: it begins at {seen.start} and ends at {seen.end}"
    if seen.visible != seen.end:
        yield f"I8: {seen.visible} is visible, {seen.end} is the end"
    promised = model.acked if is_kill and model.durability is not Durability.MEMORY else 0
    promised = max(promised, model.durable)
    if seen.end < promised:
        yield f"I1: it ends at {seen.end}, {promised} was promised"
    if model.reserves_offsets and seen.end < model.acked:
        yield f"I4: offsets from {seen.end} on will be used again, {model.acked} was acked"
    if seen.epoch < model.epoch_min:
        yield f"I4: leader epoch {seen.epoch}, it had {model.epoch_min}"
    yield from _items(model, seen, promised, is_kill=is_kill)
    yield from _producers(model, seen)
    yield from _transactions(model, seen)


def _ephemeral(model: PartitionModel, seen: SeenPartition) -> Iterator[str]:
    """Nothing is there, and no offset is given again."""
    if seen.error or seen.items:
        yield f"I2: an ephemeral log is not empty: {seen.error or seen.items}"
    if not seen.start == seen.end == seen.visible:
        yield f"I8: an ephemeral log begins at {seen.start} and ends at {seen.end}"
    if seen.end < model.acked:
        yield f"I4: offsets from {seen.end} on will be used again, {model.acked} was acked"
    if seen.epoch < model.epoch_min:
        yield f"I4: leader epoch {seen.epoch}, it had {model.epoch_min}"


def _items(
    model: PartitionModel, seen: SeenPartition, promised: int, *, is_kill: bool
) -> Iterator[str]:
    sent = {batch.base_offset: batch for batch in model.sent}
    due = seen.start
    epoch = 0
    for item in seen.items:
        if item.base_offset != due and not (item.base_offset < due < item.next_offset):
            yield f"I7: offset {due} is due, {item.base_offset} follows"
        if due != seen.start and item.base_offset != due:
            yield f"I7: {item.base_offset} is told twice"
        due = item.next_offset
        if item.epoch < epoch:
            yield f"I4: epoch {item.epoch} behind {epoch} at {item.base_offset}"
        epoch = item.epoch
        if item.is_gap:
            yield from _gap(model, item.base_offset, item.next_offset, item.reason, promised)
            may_be_told = model.lost or model.damaged or model.is_unmarked
            if is_kill and item.reason == "lost_tail" and not may_be_told:
                yield f"I7: a lost tail at {item.base_offset}, and only the process died"
            continue
        batch = sent.get(item.base_offset)
        if batch is None:
            yield f"I2: a batch at {item.base_offset} that nobody sent"
        elif batch.next_offset != item.next_offset or not (
            batch.batch[BODY:] == item.body or _is_left(item.body, batch.batch, model.may_go)
        ):
            yield f"I3: the batch at {item.base_offset} is not the one that was sent"
    if due != seen.end and seen.items:
        yield f"I7: the items end at {due}, the log at {seen.end}"
    if not seen.items and seen.start != seen.end:
        yield f"I7: nothing can be read in [{seen.start}, {seen.end})"


def _is_left(body: bytes, sent: memoryview, may_go: set[int]) -> bool:
    """Whether a batch is what a cleaning may have left of the one that was sent."""
    before = decode_batch(sent)
    size = (BODY + len(body) - LENGTH_END).to_bytes(4, "big")
    try:
        after = decode_batch(bytes(sent[:8]) + size + bytes(sent[12:BODY]) + body)
    except InvalidBatch:
        return False  # wrong bytes
    old, new = before.header, after.header
    kept = {record.offset: record for record in after}
    return (
        (old.attributes, old.last_offset_delta, old.producer_id, old.producer_epoch)
        == (new.attributes, new.last_offset_delta, new.producer_id, new.producer_epoch)
        and old.base_sequence == new.base_sequence
        and all(
            kept.get(record.offset) == record
            or (record.offset not in kept and record.offset in may_go)
            for record in before
        )
    )


def _gap(model: PartitionModel, begin: int, end: int, reason: str, promised: int) -> Iterator[str]:
    if reason == "deleted" and model.may_go.issuperset(range(begin, end)):
        return
    if reason not in ("lost_tail", "corruption"):
        yield f"I7: a gap [{begin}, {end}) with the reason {reason}"
        return
    # What was not promised may be lost, but not in silence; so may what a scenario damaged, and
    # what a crash that the scenario went through has taken.
    offset = begin
    known = model.damaged if reason == "corruption" else [*model.lost, *model.damaged]
    for low, high in sorted(known):
        if low <= offset < high:
            offset = high
    if offset < min(end, promised):
        yield f"I1: [{begin}, {end}) is lost ({reason}), {promised} was promised"
    if reason == "lost_tail" and offset < end and model.is_settled:
        yield f"I7: [{begin}, {end}) is told as lost, and nothing was written since it was synced"
    if reason == "corruption" and end > model.end:
        yield f"I7: [{begin}, {end}) is reported as damaged, nothing was sent past {model.end}"
    loses_tails = model.durability is not Durability.FSYNC
    if loses_tails and reason == "corruption" and offset < end:
        yield f"I7: [{begin}, {end}) was never synced, and is reported as corruption"


def _producers(model: PartitionModel, seen: SeenPartition) -> Iterator[str]:
    """The newest batch of each producer that can be read is the one that is remembered."""
    newest: dict[int, tuple[int, int, int, bool]] = {}
    for item in seen.items:
        header = read_header(bytes(BODY) + item.body)
        if item.is_gap and item.reason == "lost_tail":
            newest = {
                pid: (epoch, last, offset, True) for pid, (epoch, last, offset, _) in newest.items()
            }
            continue
        if item.is_gap and item.reason != "deleted":
            newest.clear()  # what a gap may hide is forgotten with it
            continue
        if header.is_control and not item.is_gap:
            # A marker has no sequence; one with a new epoch makes all that was before it void.
            before = newest.get(header.producer_id)
            if before is not None and before[0] < header.producer_epoch:
                del newest[header.producer_id]
        elif header.producer_id >= 0:
            last = (header.base_sequence + header.last_offset_delta) & 0x7FFF_FFFF
            newest[header.producer_id] = (header.producer_epoch, last, item.next_offset - 1, False)
    known = {pid: rest for pid, *rest in seen.newest}
    for pid, expected in newest.items():
        if tuple(known.get(pid, ())) != expected:
            yield f"I5: of producer {pid} it knows {known.get(pid)}, its last batch is {expected}"
    sent = {(b.producer, b.next_offset - 1) for b in model.sent}
    for pid, _, _, last_offset, _ in seen.newest:
        if not any(p[0] == pid and offset == last_offset for p, offset in sent):
            yield f"I5: of producer {pid} it knows an offset {last_offset} that was never sent"


def _transactions(model: PartitionModel, seen: SeenPartition) -> Iterator[str]:
    """Open transactions and aborted ranges are those of the batches that can be read.

    One that began below the start may be known from there on, or from its first batch behind it;
    one whose records a cleaning may have taken, from one of those on.
    """
    cleaned = model.may_go
    opened: dict[int, int] = {}
    aborted: dict[tuple[int, int], int] = {}
    for item in seen.items:
        batch = bytes(BODY) + item.body
        header = read_header(batch)._replace(batch_length=len(batch) - LENGTH_END)
        if item.is_gap or not header.is_transactional:
            continue
        if not header.is_control:
            opened.setdefault(header.producer_id, item.base_offset)
            continue
        first = opened.pop(header.producer_id, None)
        outcome = marker_outcome(header, batch)
        if first is not None and outcome is Outcome.ABORT:
            aborted[header.producer_id, item.base_offset] = first
    known = dict(seen.open)
    for pid, first in opened.items():
        if known.get(pid, -1) != first and not known.get(pid, seen.start) < seen.start:
            yield f"I5: producer {pid} has a transaction open from {first}, known: {seen.open}"
    for pid in known.keys() - opened.keys():
        if known[pid] >= seen.start:
            yield f"I5: producer {pid} has nothing open, known: {seen.open}"
    ranges = {(pid, last): first for pid, first, last in seen.aborted}
    for key, first in aborted.items():
        if ranges.get(key, -1) in cleaned:
            continue
        if ranges.get(key, -1) != first and not ranges.get(key, seen.start) < seen.start:
            yield f"I5: {key} was aborted from {first} on, known: {seen.aborted}"
    for pid, last in ranges.keys() - aborted.keys():
        if ranges[pid, last] >= seen.start and ranges[pid, last] not in cleaned:
            yield f"I5: ({pid}, {last}) was not aborted, known: {seen.aborted}"
