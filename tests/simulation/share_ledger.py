"""What share groups are handed out, and what the broker takes from them, as it passes on the wire.

| rule | broken when |
|---|---|
| done is done | a record comes again after it was accepted or rejected, and that was answered |
| one at a time | two members are told of the same delivery of a record |
| counts | a delivery has a number that is not above the one of an answered release; or too high |
| not fenced | an acknowledgement is taken of a record that somebody else was given since |
| a lock holds | what a member says of records within their locks is refused |
| nothing left out | in the end a record that nobody is done with is behind the group (`left_out`) |

A reply that waited for a slow reader may leave behind one to a later delivery: within a life of the
broker the number of the delivery tells which was first.  A restart begins where things were written
down, so a number may come again, but none at or below that of a release that was answered.

What an acknowledgement without an answer did is open.  So is what became of a record whose last
delivery was to be: it is archived then.  Nobody was told of a delivery in a reply that was never
sent, so as many deliveries may be missing as fetches have no answer.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import decode_request, decode_response, parse_request_header
from segbroker.protocol.messages_share_groups import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

from .world import World

# ShareFetch, ShareAcknowledge.
KEYS: Final = frozenset({78, 79})
ACCEPT, RELEASE, REJECT = 1, 2, 3
CLOCK_S: Final = 0.002
"""The broker counts in whole ms: a lock may end so much earlier."""

Place: TypeAlias = tuple[str, UUID, int]
"""Group, topic id, partition."""


class Delivery(NamedTuple):
    """A record was given to a member, on a connection, by a request that came then."""

    member: str
    port: int
    came_s: float


@dataclass(slots=True)
class Fate:
    """What is known of a record of a group."""

    deliveries: dict[int, Delivery] = field(default_factory=dict)
    """By their numbers, of the present life of the broker."""
    incarnation: int = 0
    most: int = 0
    """The highest number of a delivery that anybody was ever told."""
    released: tuple[int, int] = (-1, 0)
    """In which life of the broker a release was answered, and of which delivery."""
    done: tuple[int, int] | None = None
    """In which life it was answered that somebody is done with it, and of which delivery."""
    open: int = 0
    """How many have said that they are done with it, and may have been heard."""
    said: bool = False
    """Whether something was said of the last delivery."""
    taken: set[int] = field(default_factory=set)
    """What was said of it and answered without an error."""

    def last(self, incarnation: int) -> int:
        """The number of the last delivery in this life of the broker; 0: there was none."""
        return max(self.deliveries, default=0) if self.incarnation == incarnation else 0


class Said(NamedTuple):
    """What a member says of a record, and how things stood when it came."""

    offset: int
    kind: int
    last: int
    holder: Delivery | None
    was_said: bool


@dataclass(slots=True)
class Asked:
    """A request."""

    api_key: int
    api_version: int
    message: ShareFetchRequest | ShareAcknowledgeRequest
    incarnation: int
    came_s: float
    port: int
    said: dict[Place, list[Said]]


@dataclass
class ShareLedger:
    """See the module."""

    world: World
    limits: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each group: how often a record is handed out, and how long a lock lasts, in ms."""
    losing: set[str] = field(default_factory=set)
    """Groups of whose topics retention deletes: what is deleted is done with."""
    incarnation: int = 0
    fates: dict[Place, dict[int, Fate]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Fate))
    )
    unanswered: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Fetches of each group that have no answer."""

    def restarted(self) -> None:
        """The broker has been started anew."""
        self.incarnation += 1

    # Requests

    def asked(self, frame: bytes, port: int) -> Asked:
        """A request has come."""
        header = parse_request_header(frame)
        message = decode_request(frame, header)
        assert isinstance(message, ShareFetchRequest | ShareAcknowledgeRequest)
        asked = Asked(
            header.api_key,
            header.api_version,
            message,
            self.incarnation,
            self.world.now(),
            port,
            self._said_in(message),
        )
        if isinstance(message, ShareFetchRequest):
            self.unanswered[message.group_id or ""] += 1
        return asked

    def _said_in(
        self, message: ShareFetchRequest | ShareAcknowledgeRequest
    ) -> dict[Place, list[Said]]:
        found: dict[Place, list[Said]] = {}
        for topic in message.topics:
            for row in topic.partitions:
                place = (message.group_id or "", topic.topic_id, row.partition_index)
                fates = self.fates[place]
                for batch in row.acknowledgement_batches:
                    count = batch.last_offset - batch.first_offset + 1
                    kinds = batch.acknowledge_types
                    kinds = kinds * count if len(kinds) == 1 else kinds
                    for offset, kind in enumerate(kinds, batch.first_offset):
                        one = self._says(fates[offset], offset, kind)
                        found.setdefault(place, []).append(one)
        return found

    def _says(self, fate: Fate, offset: int, kind: int) -> Said:
        last = fate.last(self.incarnation)
        said = Said(offset, kind, last, fate.deliveries.get(last), fate.said)
        if kind in (ACCEPT, RELEASE, REJECT):
            fate.said = True
        if kind in (ACCEPT, REJECT):
            fate.open += 1
        return said

    # Answers

    def answered(self, asked: Asked, frame: bytes) -> None:
        """Its answer leaves."""
        _, reply = decode_response(frame, asked.api_key, asked.api_version)
        group = asked.message.group_id or ""
        codes: dict[Place, int] = {}
        if isinstance(reply, ShareFetchResponse):
            self.unanswered[group] -= 1
            if reply.error_code:
                codes = dict.fromkeys(asked.said, reply.error_code)
            for topic in reply.responses:
                for row in topic.partitions:
                    place = (group, topic.topic_id, row.partition_index)
                    codes[place] = row.acknowledge_error_code
                    for span in row.acquired_records:
                        for offset in range(span.first_offset, span.last_offset + 1):
                            self._given(asked, place, offset, span.delivery_count)
        else:
            assert isinstance(reply, ShareAcknowledgeResponse)
            if reply.error_code:
                codes = dict.fromkeys(asked.said, reply.error_code)
            for answer in reply.responses:
                for of in answer.partitions:
                    codes[group, answer.topic_id, of.partition_index] = of.error_code
        for place, said in asked.said.items():
            self._judge(asked, place, said, codes.get(place))

    def _given(self, asked: Asked, place: Place, offset: int, number: int) -> None:
        member = asked.message.member_id or ""
        fate = self.fates[place][offset]
        what = f"{_told(place, offset)} at delivery {number} to {member}"
        self.world.trace("share_given", place[0], place[2], offset, number, member)
        if fate.done is not None and (asked.incarnation, number) > fate.done:
            self.world.lapse(f"comes again: {what}, it was done with at {fate.done}")
        if fate.released[0] < asked.incarnation and number <= fate.released[1]:
            self.world.lapse(f"counted back: {what}, it was released at {fate.released}")
        if number > self.limits[place[0]][0]:
            self.world.lapse(f"too often: {what}")
        if fate.incarnation != asked.incarnation:
            fate.incarnation = asked.incarnation
            fate.deliveries.clear()
        if number in fate.deliveries:
            self.world.lapse(f"given twice: {what} and {fate.deliveries[number].member}")
        if number > max(fate.deliveries, default=0):
            fate.said = False
        fate.deliveries[number] = Delivery(member, asked.port, asked.came_s)
        fate.most = max(fate.most, number)

    def _judge(self, asked: Asked, place: Place, said: list[Said], code: int | None) -> None:
        """What was said of a partition holds, or does not, or (None) the answer tells nothing."""
        if code == ErrorCode.NONE:
            for one in said:
                self._taken(asked, place, one)
        elif code == ErrorCode.INVALID_RECORD_STATE:
            for one in said:
                if one.kind in (ACCEPT, REJECT):
                    self.fates[place][one.offset].open -= 1
            lock_s = self.limits[place[0]][1] / 1000 - CLOCK_S
            if all(self._is_locked(asked, one, lock_s) for one in said):
                first = said[0].offset
                member = asked.message.member_id
                self.world.lapse(f"refused: {_told(place, first)}, which {member} has")

    @staticmethod
    def _is_locked(asked: Asked, one: Said, lock_s: float) -> bool:
        """Whether a record was the member's, without a doubt, when it said something of it."""
        return (
            one.holder is not None
            and one.holder.port == asked.port
            and one.holder.member == asked.message.member_id
            and asked.came_s < one.holder.came_s + lock_s
            and not one.was_said
        )

    def _taken(self, asked: Asked, place: Place, one: Said) -> None:
        fate = self.fates[place][one.offset]
        member = asked.message.member_id
        self.world.trace("share_taken", place[0], place[2], one.offset, one.kind, member)
        is_mine = one.holder is not None and one.holder.member == member
        # What lies below the start of its group is done with, whoever says what of it.
        is_below = place[0] in self.losing or self.may_be_done(place, one.offset, beside=asked)
        if not is_mine and not is_below:
            self.world.lapse(
                f"not fenced: {member} says {one.kind} of {_told(place, one.offset)}, "
                f"the last delivery is {one.last}: {one.holder}"
            )
        fate.taken.add(one.kind)
        if one.kind in (ACCEPT, REJECT):
            fate.done = (asked.incarnation, max(fate.last(asked.incarnation), one.last))
        elif one.kind == RELEASE and is_mine:
            fate.released = max(fate.released, (asked.incarnation, one.last))

    # In the end

    def may_be_done(self, place: Place, offset: int, *, beside: Asked | None = None) -> bool:
        """Whether somebody is done with a record, or may be, or it may be archived."""
        fate = self.fates[place][offset]
        mine = 0
        if beside is not None:
            mine = sum(
                one.offset == offset and one.kind in (ACCEPT, REJECT)
                for one in beside.said.get(place, ())
            )
        most, _ = self.limits[place[0]]
        is_last = fate.most + self.unanswered[place[0]] >= most
        return fate.done is not None or fate.open > mine or is_last

    def was_taken(self, group: str, partition: int, offset: int, kind: int) -> bool:
        """Whether it was answered that this holds of a record."""
        return any(
            kind in fates[offset].taken
            for place, fates in self.fates.items()
            if (place[0], place[2]) == (group, partition) and offset in fates
        )

    def begins(self, place: Place) -> int | None:
        """The first offset that anybody was told of; None: there is none."""
        return min((o for o, fate in self.fates[place].items() if fate.most), default=None)

    def left_out(self, place: Place, begin: int, offsets: Iterable[int]) -> list[int]:
        """Of the offsets of records, from `begin` on, those that nobody is done with."""
        return [at for at in offsets if at >= begin and not self.may_be_done(place, at)]


def _told(place: Place, offset: int) -> str:
    return f"record {offset} of {place[2]} for {place[0]}"
