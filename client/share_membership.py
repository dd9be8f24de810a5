"""A member of a share group: one request that joins, says that it lives, and leaves.

    OUT --enter--> JOINING --answered--> IN --every so often--> the epoch, and what changed
     ^               ^  |                |
     +----leave------+--+----refused-----+     unknown, fenced: join again; final: told, and OUT

The group's broker says how often it wants to hear of the member, and what it is given: partitions,
that others may be given too.  The member's id is its own invention and stays for good.

Invariant: one request at a time; what an earlier membership was answered is dropped.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import TypeAlias
from uuid import UUID

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_share_groups import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from segbroker.protocol.schema import Message

from .backoff import Backoff
from .completion import Completion
from .coordinator import GROUP_KEY, Coordinator
from .engine import Ask, Call, Engine
from .errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    SegbrokerError,
    UnknownMemberId,
    UnsupportedByBroker,
    broker_error,
)
from .network import GROUP

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
# An interval that a broker may say; what is beyond is taken for this.
INTERVAL_MAX_MS = 60_000
# Who was given nothing asks again after this, then after twice as long, up to the interval.
EMPTY_FIRST_MS = 100

Given: TypeAlias = Sequence[tuple[UUID, int]]


class Stage(Enum):
    OUT = "out"
    JOINING = "joining"
    IN = "in"


class ShareMembership:
    """See the module.  A component of the engine."""

    def __init__(
        self,
        engine: Engine,
        group_id: str,
        random: Random,
        *,
        topics: Callable[[], Sequence[str]],
        given: Callable[[Given], object],
        failed: Callable[[SegbrokerError], object],
    ) -> None:
        """topics: what is subscribed to.  given: exactly these partitions, from now on.
        failed: there is no membership, or it was tried for long."""
        self.stage = Stage.OUT
        self.epoch = JOIN_EPOCH
        # A name as Java's clients make them: 22 characters of a random UUID.
        id_bytes = random.getrandbits(128).to_bytes(16, "big")
        self.member_id = urlsafe_b64encode(id_bytes).rstrip(b"=").decode()
        self.group_id = group_id
        self.coordinator = Coordinator(engine, group_id, GROUP_KEY)
        self._engine = engine
        self._topics = topics
        self._given = given
        self._failed = failed
        settings = engine.settings
        self._backoff = Backoff(random, settings.retry_backoff_ms, 1_000)
        self._empty = Backoff(random, EMPTY_FIRST_MS, INTERVAL_MAX_MS)
        self._said: Sequence[str] = ()
        self._has_any = False
        self._due_ms = 0
        self._interval_ms = 0
        self._is_beating = False
        self._trying_since_ms: int | None = None
        self._era = 0
        self._now_ms = 0
        engine.components.append(self)

    def enter(self) -> None:
        """Be a member from now on; once more: the subscription is another one."""
        if self.stage is Stage.OUT:
            self.stage = Stage.JOINING
        self._due_ms = 0

    def goodbye(self) -> Ask | None:
        """Be no member from now on: what to tell the group, if it knows of this one."""
        was_in = self.stage is not Stage.OUT and (self.epoch > 0 or self._is_beating)
        request = self._request(LEAVE_EPOCH, None)
        self._end()
        node_id = self.coordinator.node_id
        if not was_in or node_id is None:
            return None
        return Ask(request, to=node_id, lane=GROUP)

    def _end(self) -> None:
        self.stage = Stage.OUT
        self.epoch = JOIN_EPOCH
        self._has_any = False
        self._empty.reset()
        self._era += 1
        self._is_beating = False

    def _request(self, epoch: int, topics: Sequence[str] | None) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=None if topics is None else list(topics),
        )

    # The engine's side.

    def step(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self.stage is Stage.OUT or self._is_beating or now_ms < self._due_ms:
            return
        topics = self._topics()
        if not topics:
            return
        self._is_beating = True
        if self._trying_since_ms is None:
            self._trying_since_ms = now_ms
        says = topics if self.epoch == JOIN_EPOCH or topics != self._said else None
        if says is not None:
            self._has_any = False
            self._empty.reset()
        era = self._era
        call = self._engine.call(self._beat(self._request(self.epoch, says)), now_ms)
        call.on_done(lambda: self._beaten(era, topics, call))

    def next_wake_ms(self) -> int | None:
        is_idle = self.stage is Stage.OUT or self._is_beating or not self._topics()
        return None if is_idle else self._due_ms

    def close(self, error: SegbrokerError) -> None:
        self._end()

    def _beat(self, request: ShareGroupHeartbeatRequest) -> Call[ShareGroupHeartbeatResponse]:
        reply = yield from self.coordinator.ask(request, _codes, lane=GROUP)
        assert isinstance(reply, ShareGroupHeartbeatResponse)
        if reply.error_code != ErrorCode.NONE:
            about = f"share group {self.group_id!r}"
            raise broker_error(reply.error_code, about, reply.error_message)
        return reply

    def _beaten(
        self, era: int, topics: Sequence[str], call: Completion[ShareGroupHeartbeatResponse]
    ) -> None:
        if era != self._era:
            return
        self._is_beating = False
        if call.error is not None:
            self._refused(call.error)
            return
        reply = call.result()
        self.stage = Stage.IN
        self.epoch = reply.member_epoch
        self._said = topics
        self._backoff.reset()
        self._trying_since_ms = None
        self._interval_ms = min(INTERVAL_MAX_MS, max(1, reply.heartbeat_interval_ms))
        # What was subscribed to meanwhile is said at once.
        is_said = topics == self._topics()
        if reply.assignment is not None:
            given = [
                (topic.topic_id, partition)
                for topic in reply.assignment.topic_partitions
                for partition in topic.partitions
            ]
            self._has_any = bool(given)
            self._given(given)
        # Who has just come is often given something a moment later.
        pause_ms = self._interval_ms if self._has_any else self._empty.next_delay_ms()
        self._due_ms = self._now_ms + (min(pause_ms, self._interval_ms) if is_said else 0)

    def _refused(self, error: BaseException) -> None:
        now_ms = self._now_ms
        match error:
            case UnknownMemberId() | FencedMemberEpoch():
                self._join_again()
            case GroupIdNotFound() if self.epoch != JOIN_EPOCH:
                self._join_again()  # it was deleted, or its broker has forgotten it
            case SegbrokerError() if error.retryable:
                self.coordinator.forget()
                self._due_ms = now_ms + self._backoff.next_delay_ms()
                since_ms = self._trying_since_ms
                if since_ms is not None and now_ms >= since_ms + self._patience_ms:
                    self._trying_since_ms = now_ms
                    self._failed(error)
            case _:
                self._end()
                self._given([])
                if isinstance(error, UnsupportedByBroker):
                    error = UnsupportedByBroker(f"{error}: this broker has no share groups")
                elif not isinstance(error, SegbrokerError):
                    bug = SegbrokerError(f"bug in the client: {error!r}")
                    bug.__cause__ = error
                    error = bug
                self._failed(error)

    def _join_again(self) -> None:
        """What is locked for this member stays so: its id is the same."""
        is_new = self.epoch != JOIN_EPOCH
        self.epoch = JOIN_EPOCH
        self.stage = Stage.JOINING
        self._has_any = False
        self._empty.reset()
        self._given([])
        self._due_ms = self._now_ms + (0 if is_new else self._backoff.next_delay_ms())

    @property
    def _patience_ms(self) -> int:
        return self._engine.settings.api_timeout_ms


def _codes(reply: Message) -> set[int]:
    assert isinstance(reply, ShareGroupHeartbeatResponse)
    return {reply.error_code}
