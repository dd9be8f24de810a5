"""What `topic list --long` and `topic describe` say of topics.

Many topics are looked at together, at most TOGETHER_MAX at a time: four questions take as long as
those about one.  Where one of them cannot be looked at, each is asked about alone: then it is known
which, and why.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from segbroker.client import Admin, OffsetAndTimestamp, TopicDescription, TopicPartition
    from segbroker.client.administration import ConfigEntry, PartitionDescription
    from segbroker.client.errors import SegbrokerError

Facts: TypeAlias = dict[str, Any]

TOGETHER_MAX: Final = 100


def facts_of(admin: "Admin", name: str) -> "tuple[Facts, SegbrokerError | None]":
    """What `describe --json` prints: plain values only; None for what nobody knows of a partition
    that is not served, and for settings that may not be read, with the refusal beside it."""
    from segbroker.client.errors import TopicAuthorizationFailed

    config, refused = None, None
    try:
        description = admin.describe_topic(name)
        partitions, config = description.partitions, description.config
    except TopicAuthorizationFailed as exc:
        partitions, refused = admin.partitions(name), exc
    return _facts(name, partitions, config, _Offsets(admin, [name])), refused


def facts_of_all(
    admin: "Admin", names: Sequence[str], keys: Collection[str] | None
) -> "tuple[list[Facts], SegbrokerError | None]":
    """The facts of each topic that can be looked at, and why the first other one cannot, or not at
    all of it; with `keys` only these settings, if they are all there."""
    from segbroker.client.errors import SegbrokerError

    found: list[Facts] = []
    failed: SegbrokerError | None = None
    for begin in range(0, len(names), TOGETHER_MAX):
        some = names[begin : begin + TOGETHER_MAX]
        try:
            described = admin.describe_topics(some, keys=keys)
            found += _facts_together(described, _Offsets(admin, some))
        except SegbrokerError:
            alone, refused = _facts_one_by_one(admin, some)
            found += alone
            failed = failed or refused
    return found, failed


def _facts_together(
    described: "Mapping[str, TopicDescription]", offsets: "_Offsets"
) -> list[Facts]:
    return [_facts(name, one.partitions, one.config, offsets) for name, one in described.items()]


def _facts_one_by_one(
    admin: "Admin", names: Iterable[str]
) -> "tuple[list[Facts], SegbrokerError | None]":
    from segbroker.client.errors import SegbrokerError, UnknownTopicOrPartition

    found: list[Facts] = []
    failed: SegbrokerError | None = None
    for name in names:
        try:
            facts, refused = facts_of(admin, name)
            found.append(facts)
            failed = failed or refused
        except UnknownTopicOrPartition:
            continue  # deleted a moment ago
        except SegbrokerError as exc:
            failed = failed or exc
    return found, failed


class _Offsets:
    """Where the partitions of topics that are served begin and end, and what is in them."""

    def __init__(self, admin: "Admin", names: Sequence[str]) -> None:
        self.starts = admin.offsets(names, "start", only_served=True)
        self.ends = admin.offsets(names, "end", only_served=True)
        self.stored = admin.stored_records(names)


def _facts(
    name: str,
    partitions: "Iterable[PartitionDescription]",
    config: "Mapping[str, ConfigEntry] | None",
    offsets: _Offsets,
) -> Facts:
    return {
        "name": name,
        "partitions": [_partition(name, row, offsets) for row in partitions],
        "config": None
        if config is None
        else [
            {
                "key": key,
                "value": entry.value,
                "is_default": entry.is_default,
                "source": entry.source,
                "documentation": entry.documentation,
            }
            for key, entry in sorted(config.items())
        ],
    }


def _partition(name: str, row: "PartitionDescription", offsets: _Offsets) -> Facts:
    from segbroker.client import TopicPartition

    tp = TopicPartition(name, row.partition)
    start, end = (_offset(found, tp) for found in (offsets.starts, offsets.ends))
    records = None
    if start is not None and end is not None:
        records = offsets.stored.get(tp, end - start)
    return {
        "partition": row.partition,
        "leader": row.leader,
        "leader_epoch": row.leader_epoch,
        "start": start,
        "end": end,
        "records": records,
    }


def _offset(
    found: "Mapping[TopicPartition, OffsetAndTimestamp]", tp: "TopicPartition"
) -> int | None:
    return found[tp].offset if tp in found else None


def count_records(facts: Facts) -> int:
    """Records that are stored; of a broker that does not say, offsets between start and end."""
    return sum(row["records"] or 0 for row in facts["partitions"])


def durability_of(facts: Facts) -> str:
    """The class, or "" of a broker that does not know such a thing."""
    values = (row["value"] for row in facts["config"] if row["key"] == "durability")
    return next(values, None) or ""
