"""Which broker is asked for what next: one fetch in flight per broker, on a lane of its own.

    partition that is wanted -> its leader -> | fetch: all wanted ones that it leads | -> replies
                                              one claim of what may be prefetched

Replies come in order and a fetch may wait, hence the lane.  While a partition is left out for a
while, the others' fetch waits only briefly at the broker, so that the one is not starved when its
turn comes: its buffer is full, or it is being found out where it goes on (a start, a lost tail).
Where it is held back, until then.  What a fetch may bring is claimed before it is sent: all of
them together never bring more than `prefetch_bytes`.  A fetch that waits at its broker keeps its
claim: so each leader has a share, and who was asked longest ago comes first.

    touched --looked at--> asked, of its leader     left out, of its leader     neither
                           waiting: looked at by each step, as its time comes or its leader goes

Of the others nothing has to be looked at: those that were not touched are where they were.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from .assigned import PartitionState
from .cluster import NOBODY
from .engine import Engine
from .errors import LeaderNotAvailable
from .fetch_replies import Asked
from .fetch_session import FetchSession
from .holding import Fail, Holding
from .log_changes import LogChanges
from .network import FETCH, Node
from .prefetched import Prefetched
from .records import TopicPartition
from .settings import ConsumerSettings
from .silence import Silence
from .spoken import Reply

Take: TypeAlias = Callable[
    [Mapping[TopicPartition, Asked], Collection[TopicPartition], Reply | None, int], None
]

# How long a fetch may wait at the broker while another partition is left out of it, and may be
# asked for at any time.
SHORT_WAIT_MS = 20


@dataclass(slots=True)
class _Lane:
    """Of one leader.

    asked: those that it is asked for.  left_out: those that are left out, for a while.
    touched: those that came or went since it was asked last.
    claim: bytes that the fetch on its way may bring; None: there is none.
    said: what that asks of each partition, or the last one did.
    """

    asked: dict[PartitionState, None] = field(default_factory=dict)
    left_out: set[PartitionState] = field(default_factory=set)
    touched: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    claim: int | None = None
    session: FetchSession = field(default_factory=FetchSession)
    said: dict[TopicPartition, Asked] = field(default_factory=dict)

    def take_out(self, state: PartitionState) -> None:
        self.left_out.discard(state)
        if state in self.asked:
            del self.asked[state]
            if state.tp in self.said:
                self.touched.setdefault(state.tp, state)
            else:  # it came and goes unasked, of a broker that is away
                self.touched.pop(state.tp, None)

    def wait_ms(self, longest_ms: int, now_ms: int) -> int:
        """How long a fetch may wait at the broker: who is left out may be back any time, or, where
        it is held back, knows when."""
        for state in self.left_out:
            left_ms = max(SHORT_WAIT_MS, state.backoff_until_ms - now_ms)
            longest_ms = min(longest_ms, left_ms)
            if longest_ms <= SHORT_WAIT_MS:
                break
        return longest_ms

    def say(self) -> list[TopicPartition]:
        """Note what the next fetch asks; of whom that may be something else than before."""
        spoken = []
        for tp, state in self.touched.items():
            if state in self.asked:
                self.said[tp] = state, state.generation, state.round, state.fetch_offset
                spoken.append(tp)
            else:
                self.said.pop(tp, None)
        self.touched.clear()
        return spoken


class FetchLanes:
    """See the module."""

    def __init__(
        self,
        engine: Engine,
        settings: ConsumerSettings,
        states: Mapping[TopicPartition, PartitionState],
        touched: dict[PartitionState, None],
        prefetched: Prefetched,
        changes: LogChanges,
        holding: Holding,
        *,
        stop_at_end: bool,
        take: Take,
        fail: Fail,
    ) -> None:
        """states: what is read, now and later; touched: those that may have changed, until they
        are looked at here.  take: what a fetch asked, of whom it was something new, what came, and
        when."""
        self._engine = engine
        self._settings = settings
        self._states = states
        self._touched = touched
        self._prefetched = prefetched
        self._changes = changes
        self._stop_at_end = stop_at_end
        self._take = take
        self._fail = fail
        self._holding = holding
        self._lanes: dict[int | None, _Lane] = {}
        self._silence = Silence()
        self._turn = 0
        # Who has room for more; and who changes without being touched.
        self._wanting: set[PartitionState] = set()
        self.waiting: dict[PartitionState, None] = {}
        self._is_view_new = False

    def view_is_new(self) -> None:
        """Others may be the leaders of what is read."""
        self._is_view_new = True

    def step(self, now_ms: int) -> None:
        """Ask whoever can be asked."""
        self._look(now_ms)
        if self._wanting and self._prefetched.is_full:
            self._prefetched.give_way(self._states.values())
        if self._wanting and not self._prefetched.is_full:
            self._silence.wanted(now_ms)
        else:
            self._silence.over()
        self._prefetched.wake_at_bytes = -1
        self._fetch(now_ms)
        self._notice_silence(now_ms)

    @property
    def next_wake_ms(self) -> int | None:
        """When the caller has to hear that nobody answers."""
        return self._silence.due_ms(self._engine.settings.api_timeout_ms)

    def answered(self) -> None:
        """A broker has said something."""
        self._silence.over()

    def _look(self, now_ms: int) -> None:
        """Have every partition where it belongs."""
        looked = {**self.waiting, **self._touched}
        if self._is_view_new:
            self._is_view_new = False
            looked = dict.fromkeys((*looked, *self._states.values()))
        self._touched.clear()
        for state in looked:
            self._take_out(state)
            if self._states.get(state.tp) is state:
                self._put(state, now_ms)

    def _take_out(self, state: PartitionState) -> None:
        self.waiting.pop(state, None)
        self._wanting.discard(state)
        for lane in self._lanes.values():
            lane.take_out(state)

    def _put(self, state: PartitionState, now_ms: int) -> None:
        if state.paused or state.is_stuck:
            return
        leader = self._engine.cluster.leader(*state.tp)
        lane = self._lanes.get(leader)
        if lane is None:
            lane = self._lanes[leader] = _Lane()
        if state.resolving:
            lane.left_out.add(state)
            return
        if state.fetch_offset < 0 or state.at_stop:
            return
        if self._stop_at_end and state.stop_offset is None:
            return
        if leader is None and self._engine.cluster.is_unserved(*state.tp):
            self.waiting[state] = None
            # The view is asked for anew as long as it says so.
            if now_ms >= state.backoff_until_ms:
                where = f"{state.tp.topic}-{state.tp.partition}"
                self._holding.not_served(
                    state, now_ms, LeaderNotAvailable(f"fetch of {where}: {NOBODY}")
                )
            return
        if isinstance(state.unserved, LeaderNotAvailable):
            state.unserved = None  # what a leader itself said stands until it answers
        epoch = self._engine.cluster.leader_epoch(*state.tp)
        if epoch > state.checked_epoch:
            if 0 <= state.epoch < epoch:
                self._changes.check_epoch(state, epoch, now_ms)
                lane.left_out.add(state)
                return
            state.checked_epoch = epoch
        has_room = state.buffered_bytes < self._settings.fetch_partition_bytes
        if has_room:
            self._wanting.add(state)
        if leader is None:
            self.waiting[state] = None
            self._engine.cluster.invalidate()
        elif now_ms < state.backoff_until_ms:
            self.waiting[state] = None
            lane.left_out.add(state)
        elif has_room:
            lane.asked[state] = None
            lane.touched[state.tp] = state
        else:
            lane.left_out.add(state)

    def _fetch(self, now_ms: int) -> None:
        lanes = [(leader, lane) for leader, lane in self._lanes.items() if lane.asked]
        for leader, lane in lanes:
            if leader is None or lane.claim is not None:
                continue
            node = self._engine.cluster.node(leader, FETCH)
            assert node is not None, "a leader is a broker of the view"
            claimed = sum(each.claim or 0 for each in self._lanes.values())
            held = self._prefetched.buffered_bytes + claimed
            room = self._settings.prefetch_bytes - held
            if room <= 0:  # others' fetches have a part of it: half of what waits makes enough
                self._prefetched.wake_at_bytes = self._prefetched.buffered_bytes // 2
                return
            if not self._engine.network.want(node, now_ms):
                if node.connection is None and now_ms < node.retry_at_ms:
                    self._wait_for(node, lane.asked)
                continue
            share = -(-self._settings.prefetch_bytes // len(lanes))
            self._lanes[leader] = self._lanes.pop(leader)  # behind all others
            self._send_fetch(node, lane, min(room, share), now_ms)

    def _wait_for(self, node: Node, states: Iterable[PartitionState]) -> None:
        """The broker is away: come back when its back-off is over; it may also have moved."""
        for state in states:
            state.backoff_until_ms = max(state.backoff_until_ms, node.retry_at_ms)
        self._engine.cluster.invalidate()

    def _send_fetch(
        self,
        node: Node,
        lane: _Lane,
        size_max: int,
        now_ms: int,
    ) -> None:
        settings = self._settings
        claim = min(settings.fetch_bytes, size_max)
        self._turn += 1
        timeout_ms = self._engine.settings.request_timeout_ms
        # An answer that has nothing to say has to come before its connection counts as dead.
        wait_ms = lane.wait_ms(min(settings.fetch_wait_ms, timeout_ms // 2), now_ms)
        session = lane.session
        assert node.connection is not None, "only a ready node is sent to"
        request = session.request(
            lane.asked,
            self._states.values(),
            lane.touched.values(),
            settings,
            self._engine.cluster.leader_epoch,
            node.connection,
            turn=self._turn,
            size_max=claim,
            wait_ms=wait_ms,
        )
        spoken = lane.say()
        if session.epoch <= 0:  # it says all anew
            spoken = list(lane.said)
        lane.claim = claim

        def on_reply(reply: Reply, at_ms: int) -> None:
            lane.claim = None
            self._take(lane.said, spoken, reply if session.answered(reply) else None, at_ms)

        self._engine.network.request(
            node,
            request,
            on_reply,
            now_ms=now_ms,
            deadline_ms=now_ms + timeout_ms,
        )

    def _notice_silence(self, now_ms: int) -> None:
        """No broker has answered a fetch for long: the caller must hear of it."""
        if self._silence.is_too_long(now_ms, self._engine.settings.api_timeout_ms):
            self._fail(self._engine.network.unreachable())
