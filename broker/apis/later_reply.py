"""A reply that is decided later: joins, syncs and commits wait for others or for the disk.

    made        before the handler has the request: its place is in the order of the connection
                (peers/replies.py)
    `answer`    once, on the loop, by whoever decides: the group, a control event that is durable;
                `answer_in_turn` where that may decide about thousands at once
    sent        when all before it are sent; then `on_gone`
    abandoned   the connection is gone: `on_abandoned`, for who would have answered, and `on_gone`.
                An answer that comes all the same is dropped

It has no deadline: whoever keeps it waiting has one (the time of a rebalance, of a fetch), or ends
when the disk has said what became of an event.  What a guard has refused is put into it by `answer`
(guards/guarding.py).

Who fails while he answers ends the connection, and so does a task that works on one (`work_on`),
as a handler does that fails.

Limits: an answer that no frame can carry, and one above LONG_BYTES for which there is no room, ends
its connection; neither is an error to who answers.  One that is done and waits for its turn counts
as further requests of `slots_max`, by its bytes.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from segbroker.protocol.errors import LocalProtocolError
from segbroker.protocol.headers import encode_response, frame_size
from segbroker.protocol.schema import Message

from ..call import Call
from ..core import Core
from ..peers.long_answers import LONG_BYTES, LongAnswer, NoRoom
from ..peers.peer import Peer
from ..peers.replies import Buffer, further_of


def say_throttled(peer: Peer, message: Message) -> None:
    """Have a reply say how long its connection is not read, where its api has a word for it."""
    if peer.charge is not None:
        peer.charge()
    if peer.muted_until and hasattr(message, "throttle_time_ms"):
        message.throttle_time_ms = peer.throttle_ms()


class LaterReply:
    """The slot of a request that waits.  `answer` it once; afterwards nothing happens."""

    __slots__ = (
        "_amend",
        "_core",
        "_failure",
        "_further",
        "_header",
        "_is_answered",
        "_make",
        "_parts",
        "_peer",
        "done",
        "on_abandoned",
        "on_gone",
    )

    restores: Final = False

    def __init__(self, core: Core, call: Call[Any]) -> None:
        self.done = False
        self.on_abandoned: Callable[[], None] | None = None
        # Called once when the answer is sent, or will not be: for what it holds.
        self.on_gone: Callable[[], None] | None = None
        # Not the call: what a large request said would be kept for as long as it waits.
        self._header, self._peer, self._amend = call.header, call.peer, call.amend
        self._core = core
        self._is_answered = False
        self._make: Callable[[], Message] | None = None
        self._parts: list[Buffer] = []
        self._further = 0
        self._failure: LocalProtocolError | NoRoom | None = None

    def answer(self, message: Message) -> None:
        """The reply; sent at the end of the turn, in the order of the connection.

        One that no frame can carry closes its connection, and is nothing to who answers: that may
        be a group in the middle of telling all its members.
        """
        if self.done or self._is_answered:
            return
        self._is_answered = True
        try:
            self._complete(message)
            self._encode_here(message)
            self._decided(frame_size(self._parts))
        except BaseException:
            self._failed()
            raise

    def answer_in_turn(self, make: Callable[[], Message], size: int = 0) -> None:
        """As `answer`, of what is made when it is sent: a group tells thousands of members at once,
        and a turn sends to some hundreds of them.

        make: of what does not change any more; called on the loop, or in a lane.
        size: about how many bytes it takes, where that may be many.  One that is long takes room
        among long answers (peers/long_answers.py) until it is taken, and is made and encoded in a
        lane.  It does not wait for room, for who waits would hold what it is to say: where there is
        none its connection is closed, and the client asks again.
        """
        if self.done or self._is_answered:
            return
        self._is_answered = True
        try:
            if size > LONG_BYTES:
                self._answer_long(make, size)
            else:
                self._make = make
                self._decided(size)
        except BaseException:
            self._failed()
            raise

    def _complete(self, message: Message) -> None:
        if self._amend is not None:
            self._amend(message)
        say_throttled(self._peer, message)
        self._core.counters.tally.answered(self._header.api_key, message)

    def _encode_here(self, message: Message) -> None:
        header = self._header
        try:
            self._parts = encode_response(
                message, header.api_key, header.api_version, header.correlation_id
            )
        except LocalProtocolError as exc:
            self._failure = exc

    def _answer_long(self, make: Callable[[], Message], size: int) -> None:
        place = self._core.long_answers.answer(self._peer)
        if not place.begins_at_once(size):
            self._failure = NoRoom(f"no room for an answer of about {size} bytes")
            self._decided(0)
            return
        assert self.on_gone is None, "it holds nothing else"
        self.on_gone = place.leave
        self.work_on(partial(self._make_apart, make, place))

    def work_on(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have a task do what leads to the answer."""
        self._core.spawn(partial(self._worked_on, work))

    async def _worked_on(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except BaseException:
            self._failed()
            raise

    def _failed(self) -> None:
        """For want of memory, by a bug, or the broker ends: the client would wait for ever."""
        self._peer.outbox.break_off()

    async def _make_apart(self, make: Callable[[], Message], place: LongAnswer) -> None:
        """In a lane; then until the client has taken it."""
        core = self._core
        with place:
            message = await core.lanes.run(make)
            self._complete(message)
            await core.lanes.run(self._encode_here, message)
            if self.done:  # its connection is gone
                return
            size = frame_size(self._parts)
            self._decided(size)
            core.turn.end()
            await place.hold(size)

    def _decided(self, size: int) -> None:
        self.done = True
        self._further = further_of(size)
        if self._further:
            self._peer.outbox.weigh(self._further)
        self._core.turn.flush(self._peer.flush)

    def render(self) -> list[Buffer] | None:
        make, self._make = self._make, None
        if make is not None:
            message = make()
            self._complete(message)
            self._encode_here(message)
        if isinstance(self._failure, NoRoom):
            self._peer.outbox.break_off(self._failure)
            return None
        if self._failure is not None:
            raise self._failure
        return self._parts

    def sent(self) -> None:
        if self._further:
            self._peer.outbox.weigh(-self._further)
        self._gone()

    def stuck(self) -> None:
        pass

    def abandon(self) -> None:
        if not self.done:
            self.done = True
            if self.on_abandoned is not None and not self._is_answered:
                self.on_abandoned()
        self._gone()

    def _gone(self) -> None:
        # They know who answers, who knows this: a cycle, with the request.
        self.on_abandoned = self._make = None
        gone, self.on_gone = self.on_gone, None
        if gone is not None:
            gone()
