"""How much may be queued holds by whichever way it is sent, also while nothing is acknowledged."""

from random import Random

import pytest

from segbroker.client.accumulator import Accumulator
from segbroker.client.completion import Completion
from segbroker.client.inbox import Many
from segbroker.client.settings import ProducerSettings

BUFFER_BYTES = 100_000
VALUE = bytes(1_000)
MOST = 2_000
"""Records: twenty times what the buffer has room for."""


class Waiting:
    """A producer's buffer in front of a broker that takes nothing, and senders of plain records."""

    def __init__(self, topics_count: int, linger_ms: int) -> None:
        self.now_ms = 1_000
        self.accumulator = Accumulator(
            ProducerSettings(
                buffer_bytes=BUFFER_BYTES, batch_bytes=BUFFER_BYTES // 2, linger_ms=linger_ms
            ),
            Random(1),
            now_ms=lambda: self.now_ms,
            wall_ms=lambda: 1_700_000_000_000,
            wake_by=lambda at_ms: None,
        )
        self.topics = [f"t{number}" for number in range(topics_count)]
        for topic in self.topics:
            self.accumulator.append(topic, b"", None, None, None, None)
            self.accumulator.topic_known(topic, 1, None)

    def send(self, topic: str, key: bytes | None) -> Completion[None] | None:
        """What to wait for, as the shells do behind the record, if it is to be waited."""
        inbox = self.accumulator.inboxes[topic]
        put = inbox.pending.put(VALUE, key)
        return self.accumulator.turn_in(inbox) if type(put) is tuple else None

    def queued_bytes(self) -> int:
        pending = sum(inbox.pending.size for inbox in self.accumulator.inboxes.values())
        return pending + self.accumulator.reserved_bytes

    def later(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.accumulator.seal_due(self.now_ms)


@pytest.mark.parametrize("key", [None, b"k"], ids=["no key", "a key"])
def test_who_sends_slowly_waits_when_the_buffer_is_full(key: bytes | None) -> None:
    """So slowly that each record has lingered before the next comes: it is the I/O side that puts
    it into a batch, and that cannot wait."""
    waiting = Waiting(1, linger_ms=5)
    for _ in range(MOST):
        if waiting.send("t0", key) is not None:
            break
        waiting.later(10)
    waiting.later(10)
    assert BUFFER_BYTES * 0.8 < waiting.queued_bytes() < BUFFER_BYTES * 1.2


@pytest.mark.parametrize("key", [None, b"k"], ids=["no key", "a key"])
@pytest.mark.parametrize("topics_count", [1, 50])
def test_what_lingers_of_many_topics_is_no_more_than_what_may_be_queued(
    topics_count: int, key: bytes | None
) -> None:
    waiting = Waiting(topics_count, linger_ms=60_000)
    most = 0
    for number in range(MOST):
        room = waiting.send(waiting.topics[number % topics_count], key)
        if room is not None:
            waiting.later(1)
            if not room.done:
                break
        most = max(most, waiting.queued_bytes())
    assert most < BUFFER_BYTES * 2 + topics_count * len(VALUE)


def test_who_waits_goes_on_when_what_was_reserved_is_not_needed() -> None:
    """An open batch reserves all that it may take, and what it does not take goes back when it is
    sealed, as it is where somebody waits."""
    waiting = Waiting(3, linger_ms=60_000)
    rooms = []
    for topic in waiting.topics:
        many = Many(topic, [VALUE], None, None, 0, None)
        rooms.append(waiting.accumulator.append_many(many))
    room = rooms[-1]
    assert isinstance(room, Completion)
    assert not room.done
    waiting.later(1)
    assert waiting.queued_bytes() < BUFFER_BYTES / 2
    assert room.done
