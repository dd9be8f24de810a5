"""The checker of histories: every anomaly is planted and named, and a clean history has none."""

from collections.abc import Callable

import pytest

from .history import FOREIGN, UNKNOWN, Anomaly, Bounds, Kind, Reads, Record, Sends, check, counts

T0 = ("t", 0)
T1 = ("t", 1)


class Story:
    """Two producers on two partitions, a reader, and the log at the end:

    partition 0   0: first-0   1: second-0   2: first-1
    partition 1   0: first-2   1: second-1
    """

    def __init__(self) -> None:
        self.first = Sends(1, [T0, T1])
        self.second = Sends(2, [T0, T1])
        for partition in (T0, T0, T1):
            self.first.send(partition)
        for partition in (T0, T1):
            self.second.send(partition)
        for sends, offsets in ((self.first, (0, 2, 0)), (self.second, (1, 1))):
            for number, offset in enumerate(offsets):
                sends.ack(number, offset)
        self.reader = Reads("reader")
        self.log = {
            T0: {0: Record(1, 0), 1: Record(2, 0), 2: Record(1, 1)},
            T1: {0: Record(1, 2), 1: Record(2, 1)},
        }
        self.gaps: dict[tuple[str, int], list[tuple[int, int]]] = {T0: [], T1: []}
        self.bounds = {T0: Bounds(0, 3), T1: Bounds(0, 2)}

    def read(self, *offsets: int) -> None:
        for offset in offsets:
            self.reader.poll(T0, offset, self.log[T0][offset])

    def check(self, *, gaps_allowed: bool = False) -> list[Anomaly]:
        final = Reads("final")
        for partition, records in self.log.items():
            steps = [(offset, None) for offset in records]
            steps += [(start, end) for start, end in self.gaps[partition]]  # type: ignore[misc]
            for offset, end in sorted(steps):
                if end is None:
                    final.poll(partition, offset, records[offset])
                else:
                    final.gap(partition, offset, end)
        return check(
            [self.first, self.second],
            [self.reader],
            final,
            self.bounds,
            gaps_allowed=gaps_allowed,
        )


def kinds(anomalies: list[Anomaly]) -> list[str]:
    return sorted(anomaly.kind.value for anomaly in anomalies)


def test_a_history_without_anomalies_has_none() -> None:
    story = Story()
    story.read(0, 1, 2)
    assert story.check() == []
    assert counts(story.check()) == "none"
    assert story.first.acked_count == 3


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    story = Story()
    story.first.ack(1, UNKNOWN)
    assert story.check() == []
    del story.log[T0][2]
    story.bounds[T0] = Bounds(0, 2)
    assert story.check() == []
    assert story.first.acked_count == 2


def lose(story: Story) -> None:
    del story.log[T0][2]
    story.bounds[T0] = Bounds(0, 2)


def lose_what_was_seen(story: Story) -> None:
    story.read(0, 1, 2)
    story.first.ack(1, UNKNOWN)
    lose(story)


def lose_in_the_middle(story: Story) -> None:
    del story.log[T0][1]


def repeat(story: Story) -> None:
    story.log[T0][3] = Record(2, 0)
    story.bounds[T0] = Bounds(0, 4)


def ack_elsewhere(story: Story) -> None:
    story.second.ack(1, 7)


def see_another(story: Story) -> None:
    story.reader.poll(T0, 0, Record(1, 0))
    story.first.send(T0)
    story.reader.poll(T0, 1, Record(1, 3))  # sent, and gone: offset 1 was given again


def invent(story: Story) -> None:
    story.log[T0][3] = FOREIGN
    story.bounds[T0] = Bounds(0, 4)


def never_sent(story: Story) -> None:
    story.log[T0][3] = Record(2, 99)
    story.bounds[T0] = Bounds(0, 4)


def wrong_partition(story: Story) -> None:
    story.second.send(T1)
    story.log[T0][3] = Record(2, 2)
    story.bounds[T0] = Bounds(0, 4)


def hand_out_what_nobody_sent(story: Story) -> None:
    story.reader.poll(T0, 0, FOREIGN)


def reorder(story: Story) -> None:
    log = story.log[T0]
    log[0], log[2] = log[2], log[0]
    story.first.ack(0, 2)
    story.first.ack(1, 0)


def skip(story: Story) -> None:
    story.read(0, 2)


def step_back(story: Story) -> None:
    story.read(0, 1, 0)


def twice(story: Story) -> None:
    story.read(0, 0)


def end_too_high(story: Story) -> None:
    story.bounds[T0] = Bounds(0, 5)


def start_too_low(story: Story) -> None:
    story.first.ack(0, UNKNOWN)
    del story.log[T0][0]


def lose_with_notice(story: Story) -> None:
    del story.log[T0][1]
    story.gaps[T0] = [(1, 2)]


def tell_a_reader_of_a_gap(story: Story) -> None:
    story.reader.gap(T0, 0, 2)


@pytest.mark.parametrize(
    ("plant", "names"),
    [
        (lose, ["lost-write"]),
        (lose_what_was_seen, ["lost-write"]),
        (lose_in_the_middle, ["lost-write", "unaccounted-offset"]),
        (repeat, ["duplicate"]),
        (ack_elsewhere, ["inconsistent-offsets"]),
        (see_another, ["inconsistent-offsets", "lost-write"]),
        (invent, ["foreign"]),
        (never_sent, ["foreign"]),
        (wrong_partition, ["foreign"]),
        (hand_out_what_nobody_sent, ["foreign"]),
        (reorder, ["reordered"]),
        (skip, ["poll-skip"]),
        (step_back, ["nonmonotonic-poll"]),
        (twice, ["nonmonotonic-poll"]),
        (end_too_high, ["unaccounted-offset"]),
        (start_too_low, ["unaccounted-offset"]),
        (lose_with_notice, ["gap"]),
        (tell_a_reader_of_a_gap, ["gap"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_planted_anomaly_is_named(plant: Callable[[Story], None], names: list[str]) -> None:
    story = Story()
    plant(story)
    assert kinds(story.check()) == names


def test_every_anomaly_is_planted_somewhere() -> None:
    planted = {
        name
        for mark in test_a_planted_anomaly_is_named.pytestmark  # type: ignore[attr-defined]
        for _, names in mark.args[1]
        for name in names
    }
    assert planted == {kind.value for kind in Kind}


def test_a_loss_with_notice_is_no_anomaly_where_gaps_are_allowed() -> None:
    story = Story()
    lose_with_notice(story)
    story.reader.poll(T0, 0, Record(1, 0))
    story.reader.gap(T0, 1, 2)
    story.reader.poll(T0, 2, Record(1, 1))
    assert story.check(gaps_allowed=True) == []


def test_a_reader_may_pass_over_what_is_in_a_gap_and_go_where_it_seeks() -> None:
    story = Story()
    lose_with_notice(story)
    story.read(0, 2)
    story.reader.seek(T0, 0)
    story.read(0)
    assert kinds(story.check(gaps_allowed=True)) == []


def test_an_anomaly_says_where_and_what() -> None:
    story = Story()
    lose(story)
    (anomaly,) = story.check()
    assert str(anomaly) == (
        "lost-write at t-0 offset 2: record 1 of producer 1, acknowledged there, is not in the log"
    )
    assert counts([anomaly]) == "lost-write 1"
