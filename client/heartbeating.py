"""A member whose group is told of it, and tells it everything, by one request: the heartbeat.

    OUT --enter--> JOINING --answered--> IN --every so often--> the epoch, and what changed
     ^               ^  |                |
     +----leave------+--+----refused-----+     unknown, fenced: join again; final: told, and OUT

So do members of share groups (share_membership) and of consumer groups by their newer protocol
(consumer_membership).  The group's broker says how often it wants to hear of the member, and what
it is given.  The member's id is its own invention.

Invariant: one request at a time; what an earlier membership was answered is dropped.
"""

from abc import ABC, abstractmethod
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from enum import Enum
from typing import ClassVar, TypeAlias
from uuid import UUID

from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from segbroker.protocol.messages_share_groups import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

from .backoff import Backoff
from .completion import Completion
from .coordinator import GROUP_KEY, Coordinator
from .engine import Call, Engine
from .errors import (
    BrokerError,
    FencedMemberEpoch,
    GroupIdNotFound,
    SegbrokerError,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnsupportedByBroker,
    UnsupportedVersionError,
    as_told,
    check_code,
)
from .network import GROUP
from .refusals import of_joining

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
# An interval that a broker may say; what is beyond is taken for this.
INTERVAL_MAX_MS = 60_000
# Who was given nothing asks again after this, then after twice as long, up to the interval.
EMPTY_FIRST_MS = 100

Given: TypeAlias = Sequence[tuple[UUID, int]]
Beat: TypeAlias = ShareGroupHeartbeatRequest | ConsumerGroupHeartbeatRequest
BeatResponse: TypeAlias = ShareGroupHeartbeatResponse | ConsumerGroupHeartbeatResponse


class Stage(Enum):
    OUT = "out"
    JOINING = "joining"
    IN = "in"


class HeartbeatingMember(ABC):
    """See the module.  A component of the engine."""

    kind: ClassVar[str]
    """Of the group, in words."""
    absence: ClassVar[str]
    """What it means that a broker does not know the request."""

    def __init__(self, engine: Engine, group_id: str) -> None:
        self.stage = Stage.OUT
        self.epoch = JOIN_EPOCH
        self.group_id = group_id
        self.coordinator = Coordinator(engine, group_id, GROUP_KEY)
        self._engine = engine
        self.member_id = self._new_id()
        self._backoff = engine.backoff()
        self._empty = Backoff(engine.random, EMPTY_FIRST_MS, INTERVAL_MAX_MS)
        self._has_any = False
        self._due_ms = 0
        self._interval_ms = 0
        # Not before this it tries again, however often it is told to.
        self._again_ms = 0
        self._is_beating = False
        # It has said something of itself: the group may have it as a member, answered or not.
        self._may_be_known = False
        # It has nothing to say, until somebody says that it has.
        self._is_silent = False
        # The last request was answered, and by no refusal.
        self._is_heard = False
        self._trying_since_ms: int | None = None
        self._kept_out = of_joining(group_id, engine.network.absences.say)
        self._era = 0
        self._now_ms = 0
        engine.components.append(self)

    def _new_id(self) -> str:
        """A name as Java's clients make them: 22 characters of a random UUID."""
        id_bytes = self._engine.random.getrandbits(128).to_bytes(16, "big")
        return urlsafe_b64encode(id_bytes).rstrip(b"=").decode()

    # What a kind of member says, and makes of the answers.

    @abstractmethod
    def _beat(self) -> Beat | None:
        """What is to be said now; None: nothing, before something is subscribed to."""

    @abstractmethod
    def _answered(self, given: Given | None) -> None:
        """To what was said last, by a broker that the member is in the group of.  given: exactly
        these partitions, from now on; None: as before."""

    @property
    @abstractmethod
    def _has_more_to_say(self) -> bool:
        """Whether that is to be said at once."""

    @abstractmethod
    def _lost(self) -> None:
        """Nothing is its own any more."""

    @abstractmethod
    def _tell(self, error: SegbrokerError) -> None:
        """Something is wrong, which does not end the membership."""

    @abstractmethod
    def _failed(self, error: SegbrokerError) -> None:
        """There is no membership, and trying again at once would not help."""

    # The engine's side.

    def enter(self, *, not_before_ms: int = 0) -> None:
        """Be a member from now on, or from then on; once more: the subscription is another one."""
        if self.stage is Stage.OUT:
            self.stage = Stage.JOINING
            self._again_ms = max(self._again_ms, not_before_ms)
        self._hurry()

    def _hurry(self) -> None:
        """There is something to be said at once, or as soon as it may try again."""
        self._due_ms = self._again_ms
        self._is_silent = False

    def step(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self.stage is Stage.OUT or self._is_beating or now_ms < self._due_ms:
            return
        request = self._beat()
        self._is_silent = request is None
        if request is None:
            return
        self._is_beating = self._may_be_known = True
        if self._trying_since_ms is None:
            self._trying_since_ms = now_ms
        era = self._era
        call = self._engine.call(self._say(request, era), now_ms)
        call.on_done(lambda: self._beaten(era, call))

    def next_wake_ms(self) -> int | None:
        is_idle = self.stage is Stage.OUT or self._is_beating or self._is_silent
        return None if is_idle else self._due_ms

    def close(self, error: SegbrokerError) -> None:
        self._end()

    def _subscribes_anew(self) -> None:
        """Who says so is often given something a moment later, as who has just come."""
        self._has_any = False
        self._empty.reset()

    @property
    def _says_all(self) -> bool:
        """Who joins says everything, and who does not know how much of it was heard."""
        return self.epoch == JOIN_EPOCH or not self._is_heard

    def _end(self) -> None:
        self._kept_out.over()
        self.stage = Stage.OUT
        self.epoch = JOIN_EPOCH
        self._subscribes_anew()
        self._era += 1
        self._is_beating = self._may_be_known = False

    def _say_goodbye(self, request: Beat, lane: str) -> Call[None]:
        yield from self.coordinator.ask(request, lane=lane, repeat=False)

    def _say(self, request: Beat, era: int) -> Call[tuple[int, int, Given | None]]:
        """The epoch, the interval in ms, and what is given."""
        reply = yield from self.coordinator.ask_once(
            request, lane=GROUP, is_wanted=lambda: era == self._era
        )
        assert isinstance(reply, BeatResponse)
        check_code(reply.error_code, f"{self.kind} {self.group_id!r}", reply.error_message)
        given: Given | None = None
        if reply.assignment is not None:
            given = [
                (topic.topic_id, partition)
                for topic in reply.assignment.topic_partitions
                for partition in topic.partitions
            ]
        return reply.member_epoch, reply.heartbeat_interval_ms, given

    def _beaten(self, era: int, call: Completion[tuple[int, int, Given | None]]) -> None:
        if era != self._era:
            return
        self._is_beating = False
        self._is_heard = call.error is None
        if call.error is not None:
            self._refused(call.error)
            return
        self.stage = Stage.IN
        self.epoch, interval_ms, given = call.result()
        self._backoff.reset()
        self._again_ms = 0
        self._trying_since_ms = None
        self._kept_out.done(self._now_ms)
        self._interval_ms = min(INTERVAL_MAX_MS, max(1, interval_ms))
        if given is not None:
            self._has_any = bool(given)
        self._answered(given)
        # Who has just come is often given something a moment later.
        pause_ms = self._interval_ms if self._has_any else self._empty.next_delay_ms()
        pause_ms = min(pause_ms, self._interval_ms)
        self._due_ms = self._now_ms + (0 if self._has_more_to_say else pause_ms)

    def _refused(self, error: BaseException) -> None:
        now_ms = self._now_ms
        match error:
            case UnknownMemberId() | FencedMemberEpoch():
                self._join_again(error)
            case GroupIdNotFound() if self.epoch != JOIN_EPOCH:
                self._join_again(error)  # it was deleted, or its broker has forgotten it
            case TopicAuthorizationFailed():
                self._due_ms = now_ms + max(self._interval_ms, self._backoff.next_delay_ms())
                self._tell(error)
            case SegbrokerError() if error.retryable:
                self.coordinator.forget()
                self._due_ms = now_ms + self._backoff.next_delay_ms()
                if self.epoch == JOIN_EPOCH and isinstance(error, BrokerError):
                    self._kept_out.refused(error, now_ms)
                self._notice_time(error)
            case _:
                self._end()
                self._again_ms = now_ms + self._backoff.next_delay_ms()
                self._lost()
                if isinstance(error, UnsupportedByBroker | UnsupportedVersionError):
                    error = UnsupportedByBroker(f"{error}: {self.absence}")
                self._failed(as_told(error))

    def _join_again(self, error: SegbrokerError) -> None:
        is_new = self.epoch != JOIN_EPOCH
        self.epoch = JOIN_EPOCH
        self.stage = Stage.JOINING
        self._subscribes_anew()
        self._lost()
        self._due_ms = self._now_ms + (0 if is_new else self._backoff.next_delay_ms())
        self._notice_time(error)

    def _notice_time(self, error: SegbrokerError) -> None:
        """Tell the caller what has kept it from being heard for so long; it goes on trying."""
        since_ms = self._trying_since_ms
        if since_ms is not None and self._now_ms >= since_ms + self._engine.settings.api_timeout_ms:
            self._trying_since_ms = self._now_ms
            self._tell(error)
