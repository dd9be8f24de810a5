"""Records taken back from their members, because a lock or a session has ended.

    lock ended       the partition rang its alarm: each record whose lock is over
    session ended    each record that its member has, in every partition of the session
    session followed the member opened another session: the records stay its own
    not written      an acknowledgement, and the session of its member has ended meanwhile

Thousands of partitions are done in pieces, a piece in each turn of the loop; what a piece takes
back is stored with one event per group.

Invariant: a lock ends only where the alarm of its partition has rung.  No lock ends while its
acknowledgement may still be in a socket, because alarms wait for that.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

import structlog
import trio

from segbroker.segments.metadata.share_groups import Span

from ..loop.loop_clock import monotonic_ms
from ..loop.pace import Pace
from .live_partition import LivePartition
from .pieces import Limits
from .share_session import ShareSession

log = structlog.get_logger()

TAKEN_TOGETHER: Final = 100
"""Partitions in which records are taken back in one turn of the loop."""


class TakingBack:
    """What is still to be taken back, for all share groups of one broker."""

    def __init__(
        self,
        limits: Callable[[str], Limits],
        taken: Callable[[str, Sequence[tuple[LivePartition, Sequence[Span]]]], None],
        looked_at: Callable[[LivePartition], None],
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        end_turn: Callable[[], None],
    ) -> None:
        """limits: of a group.  taken: stores what was taken back from a group.  looked_at: called
        for each partition of a piece after that.  spawn, end_turn: as those of Shares."""
        self._limits = limits
        self._taken = taken
        self._looked_at = looked_at
        self._spawn = spawn
        self._end_turn = end_turn
        # The partitions in which the member of a session may have records.
        self._held: dict[ShareSession, dict[LivePartition, None]] = {}
        # Partitions in which locks have ended, and sessions that have ended.
        self._rung: dict[LivePartition, None] = {}
        self._ended: dict[ShareSession, None] = {}
        self._is_running = False

    def joined(self, session: ShareSession, live: LivePartition) -> None:
        """A session begins to fetch from a partition.  If an earlier session of the same member has
        ended, its records are taken back first: later they could not be told from the new ones."""
        self._held.setdefault(session, {})[live] = None
        member_id = session.member_id
        if any(not one.is_open and one.member_id == member_id for one in live.sessions):
            self._take_from((live,))

    def dropped(self, live: LivePartition) -> None:
        """A partition leaves memory."""
        for session in live.sessions:
            self._held[session].pop(live, None)

    def lock_ended(self, live: LivePartition) -> None:
        """The alarm of a partition has rung."""
        self._rung[live] = None
        self._run_soon()

    def session_followed(self, before: ShareSession, after: ShareSession) -> None:
        """A member opens another session: it keeps its records."""
        held = self._held.pop(before, {})
        for live in held:
            live.sessions.pop(before, None)
            live.sessions[after] = None
        if held:
            self._held[after] = held

    def session_ended(self, session: ShareSession) -> None:
        """A session is over, and its member has no other."""
        if session in self._held:
            self._ended[session] = None
            self._run_soon()

    def not_written(self, live: LivePartition) -> None:
        """An acknowledgement could not be stored: its records are its member's again.  If the
        session ended while that was under way, they were not taken back with it: they are now."""
        gone = live.part.members - {one.member_id for one in live.sessions}
        limits = self._limits(live.key.group_id)
        spans = [span for member_id in gone for span in live.part.release(member_id, limits)]
        if spans and not live.is_gone:
            self._taken(live.key.group_id, [(live, spans)])

    def _run_soon(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._spawn(self._run)

    async def _run(self) -> None:
        """Take everything back, a piece in each turn of the loop."""
        try:
            while self._rung or self._ended:
                self._take_from(self._next_few())
                self._end_turn()
                await trio.lowlevel.checkpoint()
        finally:
            self._is_running = False

    def _next_few(self) -> Iterator[LivePartition]:
        """The next piece: as many partitions as a turn of the loop has time for."""
        pace = Pace()
        for _ in range(TAKEN_TOGETHER):
            if pace.is_over:
                return
            if self._rung:
                yield next(reversed(self._rung))
            elif self._ended:
                session = next(reversed(self._ended))
                if held := self._held.get(session):
                    yield next(reversed(held))
                else:
                    self._held.pop(session, None)
                    del self._ended[session]
            else:
                return

    def _take_from(self, lives: Iterable[LivePartition]) -> None:
        """Take back, in these partitions, each record that is not its member's any more."""
        taken: dict[str, list[tuple[LivePartition, list[Span]]]] = {}
        looked_at = []
        for live in lives:
            has_rung = live in self._rung
            self._rung.pop(live, None)
            if live.is_gone:
                continue
            limits = self._limits(live.key.group_id)
            spans = live.part.expire(monotonic_ms(), limits) if has_rung else []
            if spans:
                log.info(
                    "share_locks_ended",
                    group=live.key.group_id,
                    topic=live.topic,
                    partition=live.key.partition,
                    records=sum(span.last - span.first + 1 for span in spans),
                )
            for session in [one for one in live.sessions if not one.is_open]:
                del live.sessions[session]
                self._held[session].pop(live, None)
                spans += live.part.release(session.member_id, limits)
            if spans:
                taken.setdefault(live.key.group_id, []).append((live, spans))
            looked_at.append(live)
        for group_id, some in taken.items():
            self._taken(group_id, some)
        for live in looked_at:
            self._looked_at(live)
