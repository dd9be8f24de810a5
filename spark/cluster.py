"""What the source asks of the brokers besides records: topics, leaders, the bounds of logs.

    layout(selection)   which topics and partitions there are, their ids and leaders
    offsets(...)        start, end, or first offset at a time, of many partitions
    bounds(...)         [log start, log end) of partitions, and why they start there

Each call has a deadline (default.api.timeout.ms).  What may pass (a lost connection, a leader that
moved, a broker that restarts) is tried again with growing pauses until then: Spark does not repeat
the calls that it makes on the driver, so one that fails ends the query.  What will not pass is
raised at once.

Invariant: connections are opened on first use, by the process that uses them, never by a
constructor: Spark pickles readers.  Not for threads: each Spark worker has one.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from random import Random
from typing import TypeVar

from segbroker.client.backoff import Backoff
from segbroker.client.errors import (
    BrokerUnreachable,
    SegbrokerError,
    UnsupportedByBroker,
    broker_error,
    check_code,
)
from segbroker.client.settings import Address
from segbroker.client.spoken import VendorRequest
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from segbroker.protocol.vendor import VendorKey

from .connecting import ClientOptions
from .errors import SourceUnavailable
from .layouts import Layout, TopicLayout, is_selected, leader_of, topic_layout
from .link import Link, now_ms
from .loss import LogBounds
from .offsets import TopicPartition
from .options import Assign, Selection, Subscribe, SubscribePattern

# The two times that ListOffsets takes for the ends of a log.
END_TIME = -1
START_TIME = -2

BACKOFF_FIRST_MS = 50
BACKOFF_MAX_MS = 1_000
# A topic that was just made may be unknown to a broker for a moment.
NEW_TOPIC_GRACE_MS = 2_000

# Partitions in one question for floors: its answer has 1 MiB at most, and up to 1,000 bytes for
# each, where the name of its topic is long and stands in an error as well.
FLOORS_COUNT = 1_000

T = TypeVar("T")


class Cluster:
    """See the module."""

    def __init__(
        self, options: ClientOptions, *, read_committed: bool = False, creates_topics: bool = False
    ) -> None:
        """`creates_topics`: the broker may make a topic that is named; reading must make none."""
        self._options = options
        self._creates_topics = creates_topics
        self._read_committed = read_committed
        self._links: dict[Address, Link] = {}
        self._brokers: list[Address] = list(options.bootstrap)
        self._waited_for: set[str] = set()

    def layout(self, selection: Selection, timeout_ms: int | None = None) -> Layout:
        """The topics of the selection that exist, and of each the partitions that are selected.

        A named topic that is not there is waited for a moment, once, then left out.
        timeout_ms: instead of the option's.
        """
        named = self.named(selection)
        topics = None if named is None else [MetadataRequestTopic(name=name) for name in named]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._creates_topics)

        def look() -> Layout:
            reply = self.at_any(lambda link: link.ask(request, MetadataResponse))
            brokers = {row.node_id: (row.host, row.port) for row in reply.brokers}
            self._brokers = [*brokers.values()] or self._brokers
            found: dict[str, TopicLayout] = {}
            for row in reply.topics:
                if row.name is None or not is_selected(selection, row):
                    continue
                if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                check_code(row.error_code, f"topic {row.name!r}")
                found[row.name] = topic_layout(selection, row, brokers)
            return found

        grace_ms = now_ms() + NEW_TOPIC_GRACE_MS
        while True:
            found = self.persist("topics", look, timeout_ms)
            self._waited_for -= found.keys()
            missing = set(named or ()) - found.keys() - self._waited_for
            if not missing:
                return found
            if now_ms() >= grace_ms:
                self._waited_for |= missing
                return found
            time.sleep(BACKOFF_FIRST_MS / 1000)

    @staticmethod
    def named(selection: Selection) -> tuple[str, ...] | None:
        """The topics that the selection names; None for a pattern."""
        match selection:
            case Subscribe(topics):
                return topics
            case Assign(partitions):
                return tuple(partitions)
            case SubscribePattern():
                return None

    def offsets(
        self,
        layout: Layout,
        times: Mapping[TopicPartition, int],
        *,
        read_committed: bool | None = None,
    ) -> dict[TopicPartition, int]:
        """Of each partition the first offset at or after its time (ms, or START_TIME, END_TIME).

        -1 where no record is that young.  With read_committed (None: as made) END_TIME is the last
        stable offset.  Partitions that were deleted since the layout was asked for are left out.
        """
        if not times:
            return {}
        is_committed = self._read_committed if read_committed is None else read_committed
        return self.follow(
            "offsets", layout, times, lambda now: self._list_offsets(now, times, is_committed)
        )

    def bounds(
        self, layout: Layout, keys: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogBounds]:
        """From where to where the logs reach, and what is gone below; of partitions that exist.

        segbroker says it in one request per leader; of others only the two ends are known.
        """
        wanted = list(keys)
        if not wanted:
            return {}
        try:
            return self.follow("log bounds", layout, wanted, lambda now: self._floors(now, wanted))
        except SourceUnavailable as exc:
            if not isinstance(exc.__cause__, UnsupportedByBroker):
                raise
        # The ends of logs, whatever is committed of them.
        starts = self.offsets(layout, dict.fromkeys(wanted, START_TIME), read_committed=False)
        ends = self.offsets(layout, dict.fromkeys(starts, END_TIME), read_committed=False)
        return {key: LogBounds.plain(starts[key], end) for key, end in ends.items()}

    def bounds_now(self, topic: str, partition: int) -> LogBounds:
        """Of one partition wherever it is led now; empty when there is no such partition."""
        layout = self.layout(Assign({topic: (partition,)}))
        found = self.bounds(layout, [(topic, partition)])
        return found.get((topic, partition), LogBounds.plain(0, 0))

    def link(self, address: Address) -> Link:
        """The connection to a broker, idle; made on first use."""
        link = self._links.get(address)
        if link is None or not link.is_idle:
            if link is not None:
                link.close()
            link = self._links[address] = Link(address, self._options)
        return link

    def at_any(self, ask: Callable[[Link], T]) -> T:
        """What `ask` returns at the first broker where it can; of all, the bootstrap ones last."""
        failed: list[SegbrokerError] = []
        for address in dict.fromkeys([*self._brokers, *self._options.bootstrap]):
            try:
                return ask(self.link(address))
            except SegbrokerError as exc:
                if not exc.retryable:
                    raise
                failed.append(exc)
        raise BrokerUnreachable("; ".join(map(str, failed)))

    def close(self) -> None:
        links, self._links = self._links, {}
        for link in links.values():
            link.close()

    @property
    def api_timeout_ms(self) -> int:
        """How long a call is tried."""
        return self._options.api_timeout_ms

    def persist(self, what: str, attempt: Callable[[], T], timeout_ms: int | None = None) -> T:
        """Try until it works, the error is final, or the deadline is over.

        timeout_ms: instead of the option's.
        """
        options = self._options
        name, limit_ms = " (kafka.default.api.timeout.ms)", options.api_timeout_ms
        if timeout_ms is not None:
            name, limit_ms = "", timeout_ms
        deadline_ms = now_ms() + limit_ms
        first_ms = options.retry_backoff_ms or BACKOFF_FIRST_MS
        backoff = Backoff(Random(), first_ms, max(first_ms, BACKOFF_MAX_MS))
        tries = 0
        while True:
            tries += 1
            try:
                return attempt()
            except SegbrokerError as exc:
                if not exc.retryable:
                    raise SourceUnavailable(f"asking for {what}: {exc}") from exc
                if tries == options.tries_count_max:
                    raise SourceUnavailable(
                        f"asking for {what}: {tries} tries (fetchOffset.numRetries); last: {exc}"
                    ) from exc
                delay_ms = backoff.next_delay_ms()
                if now_ms() + delay_ms >= deadline_ms:
                    raise SourceUnavailable(
                        f"asking for {what}: nothing within {limit_ms} ms{name}; last: {exc}"
                    ) from exc
                time.sleep(delay_ms / 1000)

    def follow(
        self,
        what: str,
        layout: Layout,
        keys: Iterable[TopicPartition],
        ask: Callable[[Layout], T],
    ) -> T:
        """`ask`, as `persist` does it, of the leaders as they are after an error that may pass.

        What does not exist any more then is asked of nobody.
        """
        current = layout
        topics = tuple(sorted({topic for topic, _ in keys}))

        def look() -> T:
            nonlocal current
            try:
                return ask(current)
            except SegbrokerError as exc:
                if exc.retryable:
                    # One try: the deadline is that of the call itself.
                    with suppress(SourceUnavailable):
                        current = self.layout(Subscribe(topics), timeout_ms=0)
                raise

        return self.persist(what, look)

    # Inside.

    def _list_offsets(
        self, layout: Layout, times: Mapping[TopicPartition, int], read_committed: bool
    ) -> dict[TopicPartition, int]:
        by_leader: dict[Address, dict[str, list[ListOffsetsRequestPartition]]] = {}
        for (topic, partition), timestamp in times.items():
            asked = ListOffsetsRequestPartition(partition_index=partition, timestamp=timestamp)
            if (leader := leader_of(layout, topic, partition)) is not None:
                by_leader.setdefault(leader, {}).setdefault(topic, []).append(asked)
        found: dict[TopicPartition, int] = {}
        for leader, topics in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(read_committed),
                topics=[
                    ListOffsetsRequestTopic(name=topic, partitions=partitions)
                    for topic, partitions in topics.items()
                ],
            )
            reply = self.link(leader).ask(request, ListOffsetsResponse)
            for row in reply.topics:
                for part in row.partitions:
                    about = f"topic {row.name!r} partition {part.partition_index}"
                    check_code(part.error_code, about)
                    found[row.name, part.partition_index] = part.offset
        return found

    def _floors(
        self, layout: Layout, keys: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogBounds]:
        by_leader: dict[Address, list[TopicPartition]] = {}
        for topic, partition in keys:
            if (leader := leader_of(layout, topic, partition)) is not None:
                by_leader.setdefault(leader, []).append((topic, partition))
        found: dict[TopicPartition, LogBounds] = {}
        pieces = [
            (leader, asked[begin : begin + FLOORS_COUNT])
            for leader, asked in by_leader.items()
            for begin in range(0, len(asked), FLOORS_COUNT)
        ]
        for leader, asked in pieces:
            rows = [{"topic": topic, "partition": partition} for topic, partition in asked]
            request = VendorRequest(VendorKey.FLOORS, {"partitions": rows})
            body = self.link(leader).ask_vendor(request)
            if "error" in body:
                raise broker_error(body["error"]["code"], "floors")
            for key, row in zip(asked, body["partitions"], strict=True):
                if "error" in row:
                    raise broker_error(row["error"]["code"], f"topic {key[0]!r} partition {key[1]}")
                found[key] = LogBounds(
                    row["log_start_offset"],
                    row["high_watermark"],
                    row["evict_floor"],
                    row["evict_reason"] or "unknown",
                )
        return found
