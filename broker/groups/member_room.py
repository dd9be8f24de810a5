"""How much members say of themselves, in all groups together: a budget.

What a member says when it joins, and what a leader says that each is to read, is kept until
sessions end, up to half an hour, whether connections are there or not.  Each of that is limited,
and so are the groups and their members by number; this is the limit of the sum.

    counted     what is larger than SMALL_MAX: what a classic member brings, the assignments of a
                classic group, the names that members of the other groups subscribe to, each
                different subscription of a group once, and topologies; of each member the texts in
                which it says who it is; the name of a group, as long as that is in memory
    looked at   what is not there any more is found when there is no room: LOOK_MAX names of members
                and subscriptions, LOOK_MS apart, of whole groups in turn.  Those that nobody is in
                give way then

Who is refused is told COORDINATOR_LOAD_IN_PROGRESS, or COORDINATOR_NOT_AVAILABLE to a SyncGroup:
clients wait and ask again.  Who says no more than before is not refused: groups that there are go
on.  What a start finds counts at once, and has limits of its own (kept_sizes.py).
"""

from collections.abc import Callable, Collection
from typing import Final

import structlog

from segbroker.protocol.errors import ErrorCode

from ..loop.loop_clock import monotonic_ms
from ..refused import Refused
from .member_sizes import Key

log = structlog.get_logger()

SMALL_MAX: Final = 1 << 10
"""Bytes: a member itself takes as much."""
ALL_MAX: Final = 256 << 20
"""Bytes of all."""
LOOK_MAX: Final = 1_000
"""Keys that one look goes over, and those of the group that is the last: a ms or so."""
LOOK_MS: Final = 10
"""Between two looks: a full room has some hundred thousand keys, and takes seconds to go over."""
_WARNING_MS: Final = 1_000


class MemberRoom:
    """The sum of one broker."""

    def __init__(
        self, keys: Callable[[str], Collection[Key]], gives_way: Callable[[str], object]
    ) -> None:
        """keys: what there is of a group now.  gives_way: it leaves memory if nobody is in it."""
        self.size_max = ALL_MAX
        self._keys = keys
        self._gives_way = gives_way
        self._sizes: dict[str, dict[Key, int]] = {}
        self._all = 0
        self._unseen: list[str] = []
        """The groups that are still to be looked at, of this time around."""
        self._next_look_ms = self._next_warning_ms = 0

    @property
    def size(self) -> int:
        """Bytes, as far as is known: some may be gone."""
        return self._all

    def check(self, group_id: str, key: Key, size: int) -> None:
        """Raise Refused where there is no room for so many bytes."""
        more = size - self._sizes.get(group_id, {}).get(key, 0)
        if size <= SMALL_MAX or more <= 0 or self._all + more <= self.size_max:
            return
        now_ms = monotonic_ms()
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + LOOK_MS
            self._look(group_id)
            is_known = not self._unseen and now_ms >= self._next_warning_ms
            if is_known and self._all + more > self.size_max:
                self._next_warning_ms = now_ms + _WARNING_MS
                facts = {"bytes": self._all, "limit": self.size_max, "group": group_id}
                effect = "what they say more than before is refused; they ask again"
                log.warning("group_members_too_large", effect=effect, **facts)
        if self._all + more > self.size_max:
            raise Refused(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"what members of groups say takes {self._all} bytes, limit {self.size_max}",
            )

    def put(self, group_id: str, key: Key, size: int) -> None:
        """It is kept from now on."""
        mine = self._sizes.get(group_id)
        if mine is not None:
            self._all -= mine.pop(key, 0)
        if size > SMALL_MAX:
            self._sizes.setdefault(group_id, {})[key] = size
            self._all += size
        elif mine is not None and not mine:
            del self._sizes[group_id]

    def _look(self, wanted: str) -> None:
        """Forget some of what is gone.  wanted: the group that asks for room stays."""
        self._unseen = self._unseen or list(self._sizes)
        left = LOOK_MAX
        while self._unseen and left > 0:
            group_id = self._unseen.pop()
            if group_id != wanted:
                self._gives_way(group_id)
            there, mine = self._keys(group_id), self._sizes.get(group_id, {})
            left -= 1 + len(mine) + len(there)
            for key in [one for one in mine if one not in there]:
                self._all -= mine.pop(key)
            if not mine:
                self._sizes.pop(group_id, None)
