"""How far a group is behind: in records, and in seconds.

    records   from where it stands to the end, in offsets
    seconds   the age of the next record that it will read: how long that one has been waiting

The age is the record's own timestamp against this machine's clock, so it is as right as both.  It
takes a read of one record per partition that is behind; a record that was looked at once is not
read again.  A partition that does not answer within READ_TIMEOUT_MS has no age this time.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from segbroker.client import Admin, TopicPartition

READ_TIMEOUT_MS: Final = 2_000
# The first batch comes whatever its size; nothing behind it is wanted.
_READ_BYTES: Final = 1_024

Facts: TypeAlias = dict[str, Any]


class Ages:
    """Timestamps of the records that a group will read next; remembers those it has seen."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._known: dict[tuple[TopicPartition, int], int] = {}

    def of(self, stands: "Mapping[TopicPartition, int]") -> "dict[TopicPartition, float]":
        """Seconds since the record at or after each offset was written."""
        wanted = set(stands.items())
        self._known = {key: at for key, at in self._known.items() if key in wanted}
        if missing := dict(wanted - self._known.keys()):
            self._read(missing)
        now_ms = time.time_ns() // 1_000_000
        return {tp: max(0, now_ms - at) / 1000 for (tp, _), at in self._known.items()}

    def _read(self, missing: "dict[TopicPartition, int]") -> None:
        from segbroker.client import Consumer, TopicPartition

        deadline = time.monotonic() + READ_TIMEOUT_MS / 1000
        with Consumer(
            self._bootstrap, on_gap="skip", fetch_partition_bytes=_READ_BYTES
        ) as consumer:
            consumer.assign(missing)
            for tp, offset in missing.items():
                consumer.seek(tp.topic, tp.partition, offset)
            left = dict(missing)
            while left and (rest := deadline - time.monotonic()) > 0:
                for record in consumer.poll(timeout_ms=rest * 1000):
                    found = TopicPartition(record.topic, record.partition)
                    if found in left:
                        self._known[found, left.pop(found)] = record.timestamp_ms
                        consumer.pause(found)


def facts_of(admin: "Admin", name: str, ages: Ages) -> Facts:
    """What `describe --json` prints.  Raises GroupIdNotFound."""
    from segbroker.client.errors import GroupIdNotFound, UnknownTopicOrPartition
    from segbroker.client.group_administration import DEAD

    described = admin.describe_group(name)
    stands = admin.committed(name)
    if described.state == DEAD and not stands:
        raise GroupIdNotFound(f"there is no group {name!r}")
    owners = {tp: member for member in described.members for tp in member.partitions}
    partitions = sorted({*stands, *owners})
    ends = {}
    for topic in sorted({tp.topic for tp in partitions}):
        with suppress(UnknownTopicOrPartition):  # deleted a moment ago: nothing to be behind of
            ends.update(admin.offsets(topic, "end"))
    lags = {tp: ends[tp].offset - stands[tp].offset for tp in stands if tp in ends}
    behind = ages.of({tp: stands[tp].offset for tp, lag in lags.items() if lag > 0})
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": stands[tp].offset if tp in stands else None,
            "end": ends[tp].offset,
            "lag": lags.get(tp),
            "lag_seconds": 0.0 if lags.get(tp) == 0 else behind.get(tp),
            "member": owners[tp].member_id if tp in owners else None,
        }
        for tp in partitions
        if tp in ends
    ]
    return {
        "group": name,
        "state": described.state,
        "type": described.group_type,
        "protocol": described.protocol,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
            }
            for member in described.members
        ],
        "lag": sum(row["lag"] or 0 for row in rows),
        "lag_seconds": max((row["lag_seconds"] or 0.0 for row in rows), default=0.0),
        "partitions": rows,
    }


def facts_of_all(admin: "Admin", ages: Ages) -> Iterator[Facts]:
    """The facts of each group, by name."""
    from segbroker.client.errors import GroupIdNotFound

    for row in admin.list_groups():
        with suppress(GroupIdNotFound):  # deleted a moment ago
            yield facts_of(admin, row.group_id, ages)
