"""The acknowledgements of one request: looked at at once, answered when they are durable.  Those of
very many partitions, or of records with a type for each, which take some microseconds a record, are
looked at piece by piece; if the session ends meanwhile, the rest at once.

Of a partition all of them hold, or none.  What its group does not have in memory is nobody's, so
nothing of it can be acknowledged.  A renewal begins the lock anew, and is written nowhere.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_share_groups import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)

from ..access.authorizer import READ, TOPIC
from ..apis.share_group_apis import check_member_id
from ..call import Call
from ..core import Core
from ..groups.group_keys import SHARE_RENEW
from ..loop.loop_clock import monotonic_ms
from ..loop.pace import Pace
from ..refused import Refused, invalid_request
from ..shares.live_partition import LivePartition
from ..shares.pieces import GAP, REJECT, RENEW, Acknowledgement, Change
from ..shares.share_session import Place, ShareSession

RENEWS_SINCE: Final = 2
TAKEN_TOGETHER: Final = 100
"""Partitions whose acknowledgements are taken in one turn of the loop, if it has time for as many,
and written together."""


class Member(NamedTuple):
    """Whose request it is."""

    group_id: str
    member_id: str


def member_of(core: Core, request: ShareFetchRequest | ShareAcknowledgeRequest) -> Member:
    """Raises Refused: share groups are switched off, or it does not say."""
    if not core.config.takes_share_groups:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, "share groups are switched off here")
    if not request.group_id:
        raise invalid_request("the request names no group")
    check_member_id(request.member_id)
    assert request.member_id is not None, "checked"
    return Member(request.group_id, request.member_id)


def said_in(
    request: ShareFetchRequest | ShareAcknowledgeRequest,
) -> dict[Place, list[Acknowledgement]]:
    """The acknowledgements of a request, by partition.

    Of one that is named twice the last ones hold and the others are not looked at, as in Kafka.
    """
    return {
        Place(topic.topic_id, one.partition_index): [
            Acknowledgement(b.first_offset, b.last_offset, b.acknowledge_types)
            for b in one.acknowledgement_batches
        ]
        for topic in request.topics
        for one in topic.partitions
    }


_Said: TypeAlias = tuple[Place, Sequence[Acknowledgement]]


class Outcome(NamedTuple):
    """What became of the acknowledgements of a partition."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


class Acknowledging:
    """Those of one request."""

    __slots__ = ("_call", "_core", "_left", "_member", "_session", "_settled", "outcomes")

    def __init__(self, core: Core, call: Call[Any], member: Member, session: ShareSession) -> None:
        self._core = core
        self._call = call
        self._member = member
        self._session = session
        self._left: deque[_Said] = deque()
        self._settled: list[trio.Event] = []
        self.outcomes: dict[Place, Outcome] = {}

    def begin(self, said: Mapping[Place, Sequence[Acknowledgement]]) -> None:
        """Take them, of each partition those that belong together; what one turn of the loop has
        no time for is taken by `go_on`."""
        self._left = deque(said.items())
        self._take(self._next_few())
        if self._left:
            self._session.saying[self] = None

    async def go_on(self) -> None:
        """Take those that are left, some in each turn of the loop."""
        try:
            while self in self._session.saying:
                await trio.lowlevel.checkpoint()
                self._take(self._next_few())
                if not self._left:
                    break
        finally:
            self._session.saying.pop(self, None)

    def finish(self) -> None:
        """The session ends, and what its member has is taken back: take those that are left."""
        left, self._left = self._left, deque()
        self._take(left)

    def _next_few(self) -> Iterator[_Said]:
        """The next piece: as many partitions as a turn of the loop has time for, one at least."""
        pace = Pace()
        for _ in range(min(TAKEN_TOGETHER, len(self._left))):
            yield self._left.popleft()
            if pace.is_over:
                return

    def _take(self, said: Iterable[_Said]) -> None:
        group_id, member_id = self._member
        changes: list[tuple[LivePartition, Change]] = []
        limits = self._core.shares.limits(group_id)
        now_ms = monotonic_ms()
        for place, batches in said:
            if not batches:
                continue
            try:
                live = self._checked(place, batches)
                change = live.part.acknowledge(member_id, batches, limits, now_ms)
            except Refused as exc:
                self.outcomes[place] = Outcome(exc.code, exc.message)
                continue
            self.outcomes[place] = Outcome()
            if change.pieces:
                changes.append((live, change))
            self._core.shares.set_alarm(live)
        if changes:
            settled = trio.Event()
            self._settled.append(settled)

            def written(error: OSError | None) -> None:
                if error is not None:
                    self._failed([live for live, _ in changes], error)
                settled.set()

            self._core.shares.write(group_id, changes, written)

    async def settle(self) -> None:
        """Wait until all of it is durable, or is not."""
        for settled in self._settled:
            await settled.wait()

    def _failed(self, lives: Iterable[LivePartition], error: OSError) -> None:
        for live in lives:
            message = f"it is not durable: {error}"
            self.outcomes[live.place] = Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)

    def _checked(self, place: Place, batches: Sequence[Acknowledgement]) -> LivePartition:
        core, call = self._core, self._call
        meta = core.topics.by_id(place.topic_id)
        if meta is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        if core.authorizer is not None and not core.authorizer.allows(
            call.peer, READ, TOPIC, meta.name
        ):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise Refused(code, code.description)  # without its name, which was not asked for
        if not 0 <= place.partition < meta.partitions:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {meta.name}-{place.partition}"
            )
        _check(batches, renews=call.version >= RENEWS_SINCE and call.request.is_renew_ack)
        if any(RENEW in one.types for one in batches) and not core.shares.may_renew(
            self._member.group_id
        ):
            raise Refused(
                ErrorCode.INVALID_RECORD_STATE, f"the group does not renew: {SHARE_RENEW} is false"
            )
        live = core.shares.find(self._member.group_id, place)
        if live is None:
            raise Refused(
                ErrorCode.INVALID_RECORD_STATE, "nothing of this partition was handed out"
            )
        return live


def _check(batches: Sequence[Acknowledgement], *, renews: bool) -> None:
    """Raise Refused for what contradicts itself."""
    before = -1
    for one in batches:
        problem = None
        if one.first > one.last or one.first < 0:
            problem = f"from {one.first} to {one.last}"
        elif one.first <= before:
            problem = f"offset {one.first} behind offset {before}"
        elif not one.types:
            problem = "no type"
        elif len(one.types) > 1 and len(one.types) != one.last - one.first + 1:
            problem = f"{len(one.types)} types for {one.last - one.first + 1} offsets"
        elif not all(GAP <= kind <= (RENEW if renews else REJECT) for kind in one.types):
            problem = f"types that are not known: {sorted(set(one.types))[:5]}"
        if problem is not None:
            raise invalid_request(f"acknowledged: {problem}")
        before = one.last
