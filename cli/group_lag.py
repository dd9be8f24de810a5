"""How far a group is behind: in records, and in seconds.

    records   from where it stands to the end, in offsets; a share group, as the broker counts them:
              those that it is not done with
    seconds   the age of the next record that it will read, a share group of the first that it is
              not done with: how long that one has been waiting

Where a group has no offset and there are records it is behind by nobody knows how many: its members
may begin at the start or at the end.  That is said, and is no zero.

The age is the record's own timestamp against this machine's clock, so it is as right as both.  It
takes a read of one record per place that a group is behind at; one consumer reads them all.  What
was looked at once is not read again: neither a record, nor that there is none up to the end (what
a transaction leaves behind is no record).  What does not answer within READ_TIMEOUT_MS has no age
this time, nor has what may be described and not read.
"""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from .command import ACCEPT_TIMEOUT_MS, API_TIMEOUT_MS, CONNECT_TIMEOUT_MS
from .properties import security

if TYPE_CHECKING:
    from segbroker.client import (
        Admin,
        CommittedOffset,
        GroupDescription,
        GroupListing,
        GroupMember,
        ShareOffset,
        TopicPartition,
    )
    from segbroker.client.errors import SegbrokerError

    Place: TypeAlias = tuple[TopicPartition, int]
    Stands: TypeAlias = (
        Mapping[TopicPartition, CommittedOffset] | Mapping[TopicPartition, ShareOffset]
    )
    # None: it is there, and not served.
    Ends: TypeAlias = dict[TopicPartition, int | None]

# What a group is of which the broker does not say it: nobody was in it, offsets were committed.
CONSUMER: Final = "consumer"
SHARE: Final = "share"
READ_TIMEOUT_MS: Final = 2_000
# The first batch comes whatever its size; nothing behind it is wanted.
_READ_BYTES: Final = 1_024

Facts: TypeAlias = dict[str, Any]


class Ages:
    """Timestamps of the records that groups will read next; remembers what it has seen."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._known: dict[Place, int] = {}
        # Where there was no record, and the end up to which there was none.
        self._without: dict[Place, int] = {}

    def look(self, behind: "Mapping[Place, int]") -> None:
        """Read the next record at each place, with its partition's end; forget other places."""
        self._known = {place: at for place, at in self._known.items() if place in behind}
        self._without = {
            place: end for place, end in self._without.items() if behind.get(place) == end
        }
        if missing := behind.keys() - self._known.keys() - self._without.keys():
            left = self._read_allowed(missing)
            self._without |= {place: behind[place] for place in left}

    def seconds(self) -> "dict[Place, float]":
        """Seconds since the record at or after each place was written, where that is known."""
        now_ms = time.time_ns() // 1_000_000
        return {place: max(0, now_ms - at) / 1000 for place, at in self._known.items()}

    def _read_allowed(self, missing: "Iterable[Place]") -> "list[Place]":
        """As `_read`, of the topics that may be read."""
        from segbroker.client.errors import TopicAuthorizationFailed

        try:
            return self._read(missing)
        except TopicAuthorizationFailed:
            left: list[Place] = []
            by_topic: dict[str, list[Place]] = {}
            for place in missing:
                by_topic.setdefault(place[0].topic, []).append(place)
            for places in by_topic.values():
                with suppress(TopicAuthorizationFailed):
                    left += self._read(places)
            return left

    def _read(self, missing: "Iterable[Place]") -> "list[Place]":
        """Those behind which there was no record; none when the time was over first."""
        from segbroker.client import Consumer, TopicPartition

        left: dict[TopicPartition, list[int]] = {}
        for tp, offset in sorted(missing):
            left.setdefault(tp, []).append(offset)
        deadline = time.monotonic() + READ_TIMEOUT_MS / 1000
        with Consumer(
            self._bootstrap,
            on_gap="skip",
            stop_at_end=True,
            fetch_partition_bytes=_READ_BYTES,
            security=security(),
            accept_timeout_ms=ACCEPT_TIMEOUT_MS,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            api_timeout_ms=API_TIMEOUT_MS,
        ) as consumer:
            consumer.assign(left)
            for tp, offsets in left.items():
                consumer.seek(tp.topic, tp.partition, offsets[0])
            while left and (rest := deadline - time.monotonic()) > 0:
                records = consumer.poll(timeout_ms=rest * 1000)
                if not records and time.monotonic() < deadline:
                    return [(tp, offset) for tp, offsets in left.items() for offset in offsets]
                found = set()
                for record in records:
                    tp = TopicPartition(record.topic, record.partition)
                    offsets = left.get(tp, [])
                    while offsets and offsets[0] <= record.offset:
                        self._known[tp, offsets.pop(0)] = record.timestamp_ms
                        found.add(tp)
                left = {tp: offsets for tp, offsets in left.items() if offsets}
                if left:
                    consumer.assign(left)
                for tp in found & left.keys():
                    consumer.seek(tp.topic, tp.partition, left[tp][0])
        return []


class _Group(NamedTuple):
    """What the broker knows of a group, before it is held against the ends."""

    described: "GroupDescription"
    stands: "Stands"
    owners: "Mapping[TopicPartition, list[GroupMember]]"

    @property
    def places(self) -> "set[TopicPartition]":
        return {*self.stands, *self.owners}

    def lags(self, ends: "Ends") -> "dict[TopicPartition, int]":
        """Without those of share groups that the broker does not say."""
        from segbroker.client import ShareOffset

        lags = {
            tp: at.lag if isinstance(at, ShareOffset) else end - at.offset
            for tp, at in self.stands.items()
            if (end := ends.get(tp)) is not None
        }
        return {tp: lag for tp, lag in lags.items() if lag is not None}

    def behind(self, ends: "Ends") -> "dict[Place, int]":
        """Where it has something to read, and the end there."""
        lags = self.lags(ends).items()
        return {
            (tp, self.stands[tp].offset): end
            for tp, lag in lags
            if lag > 0 and (end := ends[tp]) is not None
        }


def facts_of(admin: "Admin", name: str, ages: Ages) -> Facts:
    """What `describe --json` prints.  Raises GroupIdNotFound."""
    group = _group(admin, name)
    ends: Ends = {}
    for topic, places in _by_topic([group]).items():
        ends |= _ends(admin, topic, places)
    ages.look(group.behind(ends))
    return _facts(name, group, ends, ages.seconds())


def facts_of_all(admin: "Admin", ages: Ages) -> "tuple[list[Facts], SegbrokerError | None]":
    """The facts of each group that can be looked at, and why the first other one cannot."""
    from segbroker.client.errors import SegbrokerError

    groups, failed = _groups(admin, [row.group_id for row in admin.list_groups()])
    ends: Ends = {}
    unreadable: set[TopicPartition] = set()
    by_topic = _by_topic(groups.values())
    with suppress(SegbrokerError):  # where one cannot be asked about, each is asked about alone
        ends = _served_ends(admin, by_topic)
    for topic, places in by_topic.items():
        if places <= ends.keys():
            continue
        try:
            ends |= _ends(admin, topic, places)
        except SegbrokerError as exc:
            failed = failed or exc
            unreadable |= places
    groups = {name: group for name, group in groups.items() if not unreadable & group.places}
    behind: dict[Place, int] = {}
    for group in groups.values():
        behind |= group.behind(ends)
    try:
        ages.look(behind)
    except SegbrokerError as exc:  # those that were read before it have their ages
        failed = failed or exc
    seconds = ages.seconds()
    return [_facts(name, group, ends, seconds) for name, group in groups.items()], failed


def listed(row: "GroupListing") -> Facts:
    """A group that was not looked into: the same keys, with null for what takes a look."""
    return {
        "group": row.group_id,
        "state": row.state,
        "type": row.group_type,
        "protocol_type": row.protocol_type or CONSUMER,
        "protocol": None,
        "members": None,
        "lag": None,
        "lag_seconds": None,
        "partitions": None,
    }


def _group(admin: "Admin", name: str) -> _Group:
    """Raises GroupIdNotFound."""
    described = admin.describe_group(name)
    is_share = described.group_type == SHARE
    return _known(described, admin.share_offsets(name) if is_share else admin.committed(name))


def _groups(admin: "Admin", names: list[str]) -> "tuple[dict[str, _Group], SegbrokerError | None]":
    """Those that are there, asked about together; and why the first other one cannot be looked at,
    which has each asked about alone."""
    from segbroker.client.errors import GroupIdNotFound, SegbrokerError

    groups: dict[str, _Group] = {}
    failed: SegbrokerError | None = None
    known = {}
    with suppress(SegbrokerError):
        described = admin.describe_groups(names)
        shares = {name for name, one in described.items() if one.group_type == SHARE}
        stands = admin.committed_of(described.keys() - shares) | admin.share_offsets_of(shares)
        known = {name: (described[name], stands[name]) for name in names}
    for name in names:
        try:
            groups[name] = _known(*known[name]) if known else _group(admin, name)
        except GroupIdNotFound:
            continue  # deleted a moment ago
        except SegbrokerError as exc:
            failed = failed or exc
    return groups, failed


def _known(described: "GroupDescription", stands: "Stands") -> _Group:
    from segbroker.client.errors import GroupIdNotFound
    from segbroker.client.group_descriptions import DEAD

    if described.state == DEAD and not stands:
        raise GroupIdNotFound(f"there is no group {described.group_id!r}")
    owners: dict[TopicPartition, list[GroupMember]] = {}
    for member in described.members:
        for tp in member.partitions:
            owners.setdefault(tp, []).append(member)
    return _Group(described, stands, owners)


def _by_topic(groups: "Iterable[_Group]") -> "dict[str, set[TopicPartition]]":
    found: dict[str, set[TopicPartition]] = {}
    for tp in sorted({tp for group in groups for tp in group.places}):
        found.setdefault(tp.topic, set()).add(tp)
    return found


def _ends(admin: "Admin", topic: str, places: "set[TopicPartition]") -> "Ends":
    from segbroker.client.errors import UnknownTopicOrPartition

    with suppress(UnknownTopicOrPartition):  # deleted a moment ago: nothing to be behind of
        ends = _served_ends(admin, [topic])
        if missing := places - ends.keys():  # not served, or of an earlier topic of the name
            count = len(admin.partitions(topic))
            ends |= {tp: None for tp in missing if tp.partition < count}
        return ends
    return {}


def _served_ends(admin: "Admin", topics: Iterable[str]) -> "Ends":
    found = admin.offsets(topics, "end", only_served=True)
    return {tp: end.offset for tp, end in found.items()}


def without_offset(rows: Iterable[Facts]) -> list[Facts]:
    """The partitions of a group where it stands nowhere, and there were records."""
    return [row for row in rows if row["offset"] is None and row["end"]]


def _facts(name: str, group: _Group, ends: "Ends", seconds: "Mapping[Place, float]") -> Facts:
    described, stands, owners = group
    lags = group.lags(ends)
    ages = {tp: seconds.get((tp, stands[tp].offset)) if lag else 0.0 for tp, lag in lags.items()}
    partitions = sorted({*stands, *owners})
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": stands[tp].offset if tp in stands else None,
            "end": ends[tp],
            "lag": lags.get(tp),
            "lag_seconds": ages.get(tp),
            "member": owners[tp][0].member_id if len(owners.get(tp, ())) == 1 else None,
            "members": [member.member_id for member in owners.get(tp, ())],
        }
        for tp in partitions
        if tp in ends
    ]
    behind = [row for row in rows if row["lag"]]
    known = [row["lag_seconds"] for row in behind if row["lag_seconds"] is not None]
    return {
        "group": name,
        "state": described.state,
        "type": described.group_type,
        "protocol_type": described.protocol_type or CONSUMER,
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
        "lag_seconds": max(known, default=None if behind or without_offset(rows) else 0.0),
        "partitions": rows,
    }
