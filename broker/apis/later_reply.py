"""A reply that is decided later: joins, syncs and commits wait for others or for the disk."""

from collections.abc import Callable
from typing import Any, Final

from segbroker.protocol.errors import LocalProtocolError
from segbroker.protocol.headers import encode_response, frame_size
from segbroker.protocol.schema import Message

from ..call import Call
from ..loop.turn import Turn
from ..peers.peer import Peer
from ..peers.replies import Buffer, further_of
from ..tally import Tally


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
        "_failure",
        "_header",
        "_parts",
        "_peer",
        "_tally",
        "_turn",
        "done",
        "on_abandoned",
        "on_gone",
    )

    restores: Final = False

    def __init__(self, call: Call[Any], turn: Turn, tally: Tally) -> None:
        self.done = False
        self.on_abandoned: Callable[[], None] | None = None
        # Called once when the answer is sent, or will not be: for what it holds.
        self.on_gone: Callable[[], None] | None = None
        # Not the call: what a large request said would be kept for as long as it waits.
        self._header, self._peer, self._amend = call.header, call.peer, call.amend
        self._turn = turn
        self._tally = tally
        self._parts: list[Buffer] = []
        self._failure: LocalProtocolError | None = None

    def answer(self, message: Message) -> None:
        """The reply; sent at the end of the turn, in the order of the connection.

        One that no frame can carry closes its connection, and is nothing to who answers: that may
        be a group in the middle of telling all its members.
        """
        if self.done:
            return
        header = self._header
        if self._amend is not None:
            self._amend(message)
        say_throttled(self._peer, message)
        self._tally.answered(header.api_key, message)
        try:
            self._parts = encode_response(
                message, header.api_key, header.api_version, header.correlation_id
            )
        except LocalProtocolError as exc:
            self._failure = exc
        self.done = True
        if further := further_of(frame_size(self._parts)):
            self._peer.outbox.weigh(further)
        self._turn.flush(self._peer.flush)

    def render(self) -> list[Buffer] | None:
        if self._failure is not None:
            raise self._failure
        return self._parts

    def sent(self) -> None:
        if further := further_of(frame_size(self._parts)):
            self._peer.outbox.weigh(-further)
        self._gone()

    def stuck(self) -> None:
        pass

    def abandon(self) -> None:
        if not self.done:
            self.done = True
            if self.on_abandoned is not None:
                self.on_abandoned()
        self._gone()

    def _gone(self) -> None:
        self.on_abandoned = None  # it knows who answers, who knows this: a cycle, with the request
        gone, self.on_gone = self.on_gone, None
        if gone is not None:
            gone()
