"""Offset lookups: start, end, and by time, over any number of partitions and brokers.

A call (see engine): grouped by leader, asked in parallel, retried for the partitions whose leader
moved, until the deadline of the call.  A topic or partition that the cluster does not have is an
error after a few looks, not a wait: waiting would hide a typing mistake.

The view may be older than what was given to a member, or what somebody has made: a partition that
it lacks is looked for in new ones.  Who asks says whether it holds up the others.

An offset says nothing of a topic that has got the name since: what was found is asked for anew
where the view shows another one by the end.

A partition is not served when the cluster says that nobody can lead it (its only disk failed), or
its leader says that its disk failed, or that it refuses what is damaged, a few times in a row.  It
must not hold up the others: who asks says whether it is waited for or told apart.

A broker opens what nobody has used since its start, which takes a millisecond of each partition or
so.  Of very many it is asked for some at a time, and each request has the time of a call.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_core import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from segbroker.protocol.schema import Message

from .cluster import LOOKS_MAX, NOBODY, TopicView
from .engine import Ask, AskAll, Call, Engine, Onward, Pause, Refresh
from .errors import (
    BrokerError,
    LeaderNotAvailable,
    PeerError,
    PolicyViolation,
    SegbrokerError,
    StorageFailed,
    UnknownTopicOrPartition,
    broker_error,
)
from .records import TopicPartition

# So many looks in a row at which nothing was missing but what is not served: who has another
# replica has another leader by then.  The cluster's own word counts twice.
UNSERVED_LOOKS = 4
# What a leader says of a partition that it does not serve.
UNSERVED = (StorageFailed, PolicyViolation)
PARTITIONS_MAX: Final = 2_000
"""Partitions of one request."""
# The two times that ListOffsets takes for "end" and "start".
END_TIME = -1
START_TIME = -2


class FoundOffset(NamedTuple):
    offset: int
    timestamp_ms: int
    leader_epoch: int


def look_up(
    engine: Engine,
    times: Mapping[TopicPartition, int],
    *,
    isolation_level: int,
    unserved: dict[TopicPartition, BrokerError] | None = None,
) -> Call[dict[TopicPartition, FoundOffset]]:
    """For each partition the first offset at or after its time (ms), or END_TIME, START_TIME.

    An offset of -1 means that no record is that young.  What is not served, or not there, is put
    into `unserved`, with why, and is missing in the answer; None: the one is waited for, the other
    raises UnknownTopicOrPartition.
    """
    while True:
        views = yield from topics_known(engine, {tp.topic for tp in times})
        topic_ids = {view.name: view.topic_id for view in views}
        missing: dict[TopicPartition, BrokerError] | None = None if unserved is None else {}
        found = yield from _Search(engine, times, isolation_level, missing).run()
        # Zero: another call has had it forgotten, and nobody knows.
        now = {name: engine.cluster.topic_id(name) for name in topic_ids}
        if all(now[name] in (topic_ids[name], ZERO_UUID) for name in topic_ids):
            if unserved is not None:
                unserved.update(missing or {})
            return found


@dataclass(slots=True)
class _Search:
    """One look for all of them, in views that stay those of the same topics."""

    engine: Engine
    times: Mapping[TopicPartition, int]
    """Of those that are there, as far as is known."""
    isolation_level: int
    unserved: dict[TopicPartition, BrokerError] | None
    """As of `look_up`."""
    found: dict[TopicPartition, FoundOffset] = field(default_factory=dict)

    def run(self) -> Call[dict[TopicPartition, FoundOffset]]:
        engine, found = self.engine, self.found
        unserved_looks = lacking_looks = 0
        backoff = engine.backoff()
        while True:
            views = yield from topics_known(engine, {tp.topic for tp in self.times})
            known = {view.name: view for view in views}
            failed: dict[TopicPartition, BrokerError] = {}
            if lacking := _lacking(self.times.keys() - found.keys(), known):
                lacking_looks += 1
                if lacking_looks < LOOKS_MAX:
                    failed.update(lacking)
                else:
                    self._do_without(lacking)
            by_leader = self._by_leader(known, failed)
            error = yield from self._ask(by_leader, failed)
            if len(found) == len(self.times):
                return found
            missing = [tp for tp in self.times if tp not in found and tp not in failed]
            if error is None and by_leader and missing:
                where = f"{missing[0].topic}-{missing[0].partition}"
                error = PeerError(f"a broker says nothing of {where}")
            is_rest = len(found) + len(failed) == len(self.times)
            unserved_looks = unserved_looks + (1 if by_leader else 2) if is_rest else 0
            if self.unserved is not None and unserved_looks >= UNSERVED_LOOKS and not lacking:
                self.unserved.update(failed)
                return found
            why = error or next(iter(failed.values()), None) or self._why_unled(missing)
            yield Pause(backoff.next_delay_ms(), why)
            yield Refresh()

    def _why_unled(self, missing: Sequence[TopicPartition]) -> SegbrokerError | None:
        """What the cluster says of the first of these."""
        reasons = (self.engine.cluster.why_unled(*tp) for tp in missing)
        return next((why for why in reasons if why is not None), None)

    def _do_without(self, lacking: Mapping[TopicPartition, BrokerError]) -> None:
        """Nothing more is asked of what the cluster does not have.  Raises if it is wanted."""
        if self.unserved is None:
            raise next(iter(lacking.values()))
        self.unserved.update(lacking)
        self.times = {tp: time for tp, time in self.times.items() if tp not in lacking}

    def _by_leader(
        self, known: Mapping[str, TopicView], failed: dict[TopicPartition, BrokerError]
    ) -> dict[int, dict[TopicPartition, int]]:
        """What is left to be asked, by who leads it; what nobody can lead goes into `failed`."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for tp, time in self.times.items():
            if tp in self.found or tp in failed:
                continue
            view = known[tp.topic]
            leader = self.engine.cluster.leader_in(view, tp.partition)
            if leader is not None:
                by_leader.setdefault(leader, {})[tp] = time
            elif tp.partition in view.unserved:
                failed[tp] = LeaderNotAvailable(f"offsets of {tp.topic}-{tp.partition}: {NOBODY}")
        return by_leader

    def _ask(
        self,
        by_leader: Mapping[int, Mapping[TopicPartition, int]],
        failed: dict[TopicPartition, BrokerError],
    ) -> Call[SegbrokerError | None]:
        """Have all leaders say what they can; what they do not serve goes into `failed`.

        Returns the last refusal or failure, and raises one that lasts.
        """
        error: SegbrokerError | None = None
        count = len(self.found)
        for number, some in enumerate(pieces_of(by_leader)):
            if number and len(self.found) > count:
                count = len(self.found)
                yield Onward()
            replies = yield AskAll(
                [
                    Ask(_request(wanted, self.engine, self.isolation_level), to=leader)
                    for leader, wanted in some.items()
                ]
            )
            for reply in replies:
                for tp, refusal in _told(reply, self.times, self.found).items():
                    if isinstance(refusal, UNSERVED) and (
                        self.unserved is not None or refusal.retryable
                    ):
                        failed[tp] = refusal
                    elif not refusal.retryable:
                        raise refusal
                    error = refusal
                if isinstance(reply, SegbrokerError):
                    error = reply
            if any(isinstance(reply, SegbrokerError) for reply in replies):
                break  # they may be another broker's by now
        return error


def _lacking(
    wanted: Collection[TopicPartition], known: Mapping[str, TopicView]
) -> dict[TopicPartition, BrokerError]:
    """Of which partitions the views say that their topics do not have them."""
    return {
        tp: no_partition(tp, known[tp.topic])
        for tp in sorted(wanted)
        if not 0 <= tp.partition < known[tp.topic].partition_count
    }


def no_partition(tp: TopicPartition, view: TopicView) -> UnknownTopicOrPartition:
    """The error of one that the topic does not have."""
    return UnknownTopicOrPartition(
        f"topic {tp.topic!r} has partitions [0, {view.partition_count}), not {tp.partition}"
    )


def _told(
    reply: Message | SegbrokerError,
    times: Mapping[TopicPartition, int],
    found: dict[TopicPartition, FoundOffset],
) -> dict[TopicPartition, BrokerError]:
    """Put what a reply says into `found`; what it refuses, and why.

    Raises what is no answer and lasts, and PeerError for what cannot be.
    """
    refused: dict[TopicPartition, BrokerError] = {}
    if isinstance(reply, SegbrokerError):
        if not reply.retryable:
            raise reply
        return refused
    assert isinstance(reply, ListOffsetsResponse)
    for topic in reply.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            if tp not in times:
                continue
            if row.error_code:
                refused[tp] = broker_error(row.error_code, f"offsets of {tp.topic}-{tp.partition}")
            elif row.offset < 0 > times[tp]:
                where = f"{tp.topic}-{tp.partition}"
                raise PeerError(f"a broker says that {where} is at offset {row.offset}")
            else:
                found[tp] = FoundOffset(row.offset, row.timestamp, row.leader_epoch)
    return refused


def pieces_of(
    by_leader: Mapping[int, Mapping[TopicPartition, int]],
) -> Iterator[dict[int, dict[TopicPartition, int]]]:
    """What each broker is asked at a time."""
    left = {leader: iter(wanted.items()) for leader, wanted in by_leader.items()}
    while some := {
        leader: piece
        for leader, rows in left.items()
        if (piece := dict(islice(rows, PARTITIONS_MAX)))
    }:
        yield some


def topics_known(engine: Engine, topics: Collection[str]) -> Call[list[TopicView]]:
    """Have the partitions of these topics in the cluster view; raises what the broker says.

    The views are good until the next answer.  Another call that asks for a topic may forget it
    before this one goes on: then they are in the cluster view no more.
    """
    cluster = engine.cluster
    added = [name for name in topics if name not in cluster.topics]
    cluster.want(topics)
    # Kept here: one that is forgotten meanwhile was settled, so there is nothing to wait for.
    views = [cluster.topics[name] for name in topics]
    backoff = engine.backoff()
    while True:
        for view in views:
            if view.is_settled and not view.partition_count:
                # Else somebody reads it, or sends to it, once it is there; or waits for it anew.
                if view.name in added and cluster.topics.get(view.name) is view:
                    cluster.forget([view.name])
                assert view.error is not None, "settled without partitions is an error"
                raise view.error
        if all(view.is_settled for view in views):
            return views
        yield Refresh([view.name for view in views if not view.is_settled])
        if not all(view.is_settled for view in views):
            yield Pause(backoff.next_delay_ms())


def _request(
    wanted: Mapping[TopicPartition, int], engine: Engine, isolation_level: int
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsRequestPartition]] = {}
    for tp, time in wanted.items():
        topics.setdefault(tp.topic, []).append(
            ListOffsetsRequestPartition(
                partition_index=tp.partition,
                current_leader_epoch=engine.cluster.leader_epoch(*tp),
                timestamp=time,
            )
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
