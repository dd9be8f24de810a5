"""A member of a share group: what it says with its heartbeats (see heartbeating), and is given.

Those are partitions that others may be given too.  Its id stays for good: by that records are
locked.
"""

from collections.abc import Callable, Sequence

from segbroker.protocol.messages_share_groups import ShareGroupHeartbeatRequest

from .engine import Call, Engine
from .errors import SegbrokerError
from .heartbeating import JOIN_EPOCH, LEAVE_EPOCH, Given, HeartbeatingMember
from .network import GROUP


class ShareMembership(HeartbeatingMember):
    """See the module."""

    kind = "share group"
    absence = "this broker has no share groups"

    def __init__(
        self,
        engine: Engine,
        group_id: str,
        *,
        topics: Callable[[], Sequence[str]],
        given: Callable[[Given], object],
        failed: Callable[[SegbrokerError], object],
    ) -> None:
        """topics: what is subscribed to.  given: exactly these partitions, from now on.
        failed: there is no membership, or it was tried for long."""
        super().__init__(engine, group_id)
        self._topics = topics
        self._given = given
        self._is_told = failed
        self._saying: Sequence[str] = ()
        self._said: Sequence[str] = ()

    def goodbye(self) -> Call[None]:
        """Be no member from now on; tell the group so, if it may know of this one."""
        may_be_known = self._may_be_known
        request = self._request(LEAVE_EPOCH, None)
        self._end()
        if may_be_known:
            yield from self._say_goodbye(request, GROUP)

    def _request(self, epoch: int, topics: Sequence[str] | None) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=None if topics is None else list(topics),
        )

    def _beat(self) -> ShareGroupHeartbeatRequest | None:
        topics = self._saying = self._topics()
        if not topics:
            return None
        is_new = self.epoch == JOIN_EPOCH or topics != self._said
        if is_new:
            self._subscribes_anew()
        return self._request(self.epoch, topics if is_new or self._says_all else None)

    def _answered(self, given: Given | None) -> None:
        self._said = self._saying
        if given is not None:
            self._given(given)

    @property
    def _has_more_to_say(self) -> bool:
        return self._said != self._topics()

    def _lost(self) -> None:
        self._given([])

    def _tell(self, error: SegbrokerError) -> None:
        self._is_told(error)

    _failed = _tell
