"""Two small state files, each with a checksum over all of it.

*.producers           producer state of a partition
snapshot-<n>.msgpack  topics, numbers of the whole broker, how many are in each group,
                      where share groups stand
"""

from segbroker.segments.errors import CorruptSegment, UnsupportedFormat
from segbroker.segments.log.producers import decode_producers
from segbroker.segments.metadata.consumer_groups import SECTION as CONSUMER_GROUPS
from segbroker.segments.metadata.consumer_groups import groups_in
from segbroker.segments.metadata.generations import SECTION, generations_in
from segbroker.segments.metadata.metadata import decode_metadata
from segbroker.segments.metadata.share_groups import SECTION as SHARE_GROUPS
from segbroker.segments.metadata.share_groups import all_of
from segbroker.segments.metadata.streams_groups import SECTION as STREAMS_GROUPS
from segbroker.segments.metadata.streams_groups import groups_in as streams_groups_in

from .dump_report import Report


def dump_metadata(content: bytes, path: str) -> Report:
    """What a metadata snapshot holds."""
    report = Report("metadata snapshot", {"size": len(content)})
    try:
        state = decode_metadata(content, path)
    except CorruptSegment as exc:
        report.damage.append(f"at byte {exc.position}: {exc.reason}")
        return report
    except UnsupportedFormat as exc:
        report.damage.append(str(exc))
        return report
    shares = state.sections.get(SHARE_GROUPS, {})
    report.facts |= {
        "cluster_id": state.cluster_id,
        "next_producer_id": state.next_producer_id,
        "seq": state.seq,
        "boot": f"{state.boot} {state.boot_id}".strip(),
        "epoch_floor": state.epoch_floor,
        "retired": state.retired,
        "topic_defaults": dict(state.topic_defaults),
        "generations": {
            group: f"{kept.number} with {len(kept.members)} members"
            for group, kept in generations_in(state.sections.get(SECTION))
        },
        "consumer_groups": {
            group: f"epoch {known.epoch} with {len(known.members)} members"
            for group, known in groups_in(state.sections.get(CONSUMER_GROUPS))
        },
        "streams_groups": {
            group: f"epoch {known.epoch} with {len(known.members)} members"
            for group, known in streams_groups_in(state.sections.get(STREAMS_GROUPS))
        },
        "share_groups": {
            group: {
                f"{topic}-{partition}": f"from {known.start}, {len(known.spans)} ranges above"
                for topic, _, partition, known in all_of(shares, group)
            }
            for group in sorted(shares)
        },
    }
    for name, topic in sorted(state.topics.items()):
        report.rows.append(
            {
                "topic": name,
                "id": str(topic.topic_id),
                "partitions": topic.partitions,
                "epoch": topic.epoch,
                "config": dict(topic.config.overrides),
                "ceilings": {
                    str(partition): ceiling.offset
                    for partition, ceiling in sorted(state.ceilings.get(topic.topic_id, {}).items())
                },
                "epochs": {
                    str(partition): epoch
                    for partition, epoch in sorted(state.epochs.get(topic.topic_id, {}).items())
                },
            }
        )
    return report


def dump_producers(content: bytes) -> Report:
    """What the producer state of a partition holds."""
    report = Report("producer state", {"size": len(content)})
    found = decode_producers(content)
    if found is None:
        report.damage.append("the size, the header or the checksum is wrong")
        return report
    table, end_offset = found
    report.facts |= {"end_offset": end_offset, "producers": len(table)}
    opened, aborted = table.transactions.open, table.transactions.aborted
    if opened:
        report.facts["open_transactions"] = {
            str(producer_id): f"from offset {first}" for producer_id, first in opened.items()
        }
    if aborted:
        report.facts["aborted"] = [
            f"producer {row.producer_id} at offset {row.first_offset}-{row.last_offset}"
            for row in aborted
        ]
    for producer_id, known in table.rows():
        report.rows.append(
            {
                "producer_id": producer_id,
                "epoch": known.epoch,
                **({"resumes": "after a lost tail"} if known.resumes else {}),
                "batches": [
                    f"sequence {batch.first_sequence}-{batch.last_sequence}"
                    f" at offset {batch.base_offset}-{batch.last_offset}"
                    for batch in known.batches
                ],
            }
        )
    return report
