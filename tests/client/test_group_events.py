"""What a group takes, told by one thread while another one says that it is too late for that."""

from segbroker.client.group_events import Event, Events, News
from segbroker.client.progress import Progress
from segbroker.client.records import TopicPartition

A0 = TopicPartition("a", 0)


def test_what_the_caller_has_begun_to_hear_meanwhile_is_not_too_late() -> None:
    """Else it would be told to be lost as well, and be let go in the middle of the callback."""

    class Interrupted(Progress):
        """Its reader is interrupted at each call, and the caller's thread goes on."""

        def is_busy_with(self, tp: TopicPartition) -> bool:
            event.is_told = True
            return super().is_busy_with(tp)

    events = Events(Interrupted(), lambda: None)
    event = Event(News.REVOKED, lambda _: None, [A0], waits_for=[A0], until_ms=10)
    events.tell(event)
    assert events.next() is event
    assert events.too_late(10) == set()
    assert event.partitions == [A0]
    assert events.being_told_gone() == {A0}
