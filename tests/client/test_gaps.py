"""What a reader is told of lost offsets: each of them, in order, and nothing that was deleted."""

from random import Random
from typing import Any

import pytest

from segbroker.client.errors import CorruptBatch, GapError, OffsetOutOfRange, TopicRecreated
from segbroker.client.prefetched import Prefetched
from segbroker.client.records import Gap, Record, TopicPartition
from segbroker.protocol.record_batch import GapReason

from .simulated import Partition, World
from .test_fetching import Reader, store
from .test_interrupted import Interrupting

A = TopicPartition("a", 0)


class Setting:
    """One partition with ten batches of ten records, and a reader from its start."""

    def __init__(self, *, segbroker: bool = True, batches: int = 10, **settings: Any) -> None:  # noqa: ANN401
        self.world = World(create_topics=False)
        self.world.broker.is_segbroker = segbroker
        self.partition = self.fill(batches)
        self.reader = Reader(self.world, **settings)

    def fill(self, batches: int) -> Partition:
        (partition,) = self.world.cluster.create("a")
        for _ in range(batches):
            store(partition, [b"x"] * 10)
        return partition

    def read_from(self, offset: int, items: int) -> list[int | Gap]:
        self.reader.fetching.assign([A], offset)
        return self.read(items)

    def read(self, items: int) -> list[int | Gap]:
        """So many offsets and gaps; a batch is read whole."""
        found: list[int | Gap] = []
        prefetched = self.reader.fetching.prefetched
        while len(found) < items:
            self.world.run(self.reader.has_news)
            fetched = prefetched.take()
            if fetched is None:
                continue
            if fetched.gap is not None:
                found.append(fetched.gap)
                continue
            records: list[Record] = self.reader.fetching.open(fetched).records()
            found += [record.offset for record in records]
        return found

    def refresh(self) -> None:
        """A look at the cluster; a fetch that was on its way has been answered."""
        done = self.world.engine.cluster.refreshed()
        self.world.run(lambda: done.done)

    @property
    def lost(self) -> int:
        return sum(self.reader.fetching.prefetched.lost_counts.values())


# Inside the log.


def with_gap(**settings: Any) -> Setting:  # noqa: ANN401 - passed on
    setting = Setting(batches=1, **settings)
    setting.partition.store_gap(30, GapReason.CORRUPTION)
    store(setting.partition, [b"behind"])
    return setting


def test_a_gap_behind_what_is_paused_leaves_the_others_their_room() -> None:
    """It is in the log: with what it comes behind it is read again."""
    setting = with_gap(on_gap="yield", prefetch_bytes=1)
    setting.partition.batches.pop()  # the gap is the last of it
    setting.partition.log_end = 30
    (other,) = setting.world.cluster.create("b")
    store(other, [b"x"])
    fetching = setting.reader.fetching
    fetching.assign([A], 0)
    setting.world.run(lambda: fetching.states[A].fetch_offset == 30)
    fetching.pause([A])
    fetching.assign([A, TopicPartition("b", 0)], 0)
    assert setting.read(1) == [0]
    fetching.resume([A])
    assert setting.read(11) == [*range(10), Gap("a", 0, 10, 30, "corruption")]
    assert setting.lost == 20


def test_a_gap_in_the_log_is_yielded_in_its_place() -> None:
    setting = with_gap(on_gap="yield")
    items = setting.read_from(0, 12)
    assert items == [*range(10), Gap("a", 0, 10, 30, "corruption"), 30]
    assert setting.lost == 20


def test_a_gap_is_raised_once_and_reading_goes_on_behind_it() -> None:
    setting = with_gap()
    assert setting.read_from(0, 10) == list(range(10))
    with pytest.raises(GapError, match=r"a-0: offsets \[10, 30\) are lost: .*damaged") as caught:
        setting.read(1)
    assert caught.value.gap == Gap("a", 0, 10, 30, "corruption")
    assert setting.reader.fetching.state(A).position == 30
    assert setting.read(1) == [30]
    assert setting.lost == 20


def test_a_gap_that_is_skipped_is_counted() -> None:
    setting = with_gap(on_gap="skip")
    assert setting.read_from(0, 11) == [*range(10), 30]
    assert setting.lost == 20


def test_a_gap_that_ctrl_c_keeps_from_being_told_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting = with_gap()
    assert setting.read_from(0, 10) == list(range(10))
    Interrupting(monkeypatch, Prefetched, "_release", 0, False)
    with pytest.raises(KeyboardInterrupt):
        setting.read(1)
    assert setting.lost == 20


@pytest.mark.parametrize("offset", [10, 11, 29])
def test_of_a_gap_only_what_was_asked_for_is_told(offset: int) -> None:
    setting = with_gap(on_gap="yield")
    assert setting.read_from(offset, 2) == [Gap("a", 0, offset, 30, "corruption"), 30]


def test_a_bounded_reading_is_told_of_a_gap_only_up_to_its_end() -> None:
    setting = Setting(batches=1, on_gap="yield", stop_at_end=True)
    setting.partition.store_gap(20, GapReason.CAP)
    setting.reader.fetching.assign([A], 0)
    state = setting.reader.fetching.state(A)
    setting.world.run(lambda: state.stop_offset is not None)
    state.stop_offset = 15
    assert setting.read(11) == [*range(10), Gap("a", 0, 10, 15, "cap")]
    assert setting.reader.fetching.is_ended


def test_a_loss_that_takes_several_batches_is_one_gap() -> None:
    setting = Setting(batches=0, on_gap="yield")
    end = (1 << 31) + 10
    setting.partition.store_gap(end, GapReason.LOST_TAIL)
    store(setting.partition, [b"behind"])
    assert len(setting.partition.batches) == 3
    assert setting.read_from(0, 2) == [Gap("a", 0, 0, end, "lost_tail"), end]


def test_what_was_deleted_inside_the_log_is_no_gap() -> None:
    setting = Setting(batches=1)
    setting.partition.store_gap(30, GapReason.DELETED)
    store(setting.partition, [b"behind"])
    assert setting.read_from(0, 11) == [*range(10), 30]
    assert setting.lost == 0


def test_a_flipped_bit_does_not_turn_records_into_something_to_pass_over() -> None:
    setting = Setting(batches=2)
    control = bytearray(setting.partition.batches[0])
    control[22] |= 0x20  # the control bit, in the low byte of the attributes
    setting.partition.batches[0] = bytes(control)
    with pytest.raises(CorruptBatch, match="a-0 at 0"):
        setting.read_from(0, 1)


# Below the log start.


def test_below_the_log_start_the_floor_says_what_was_lost_and_what_was_deleted() -> None:
    setting = Setting(on_gap="yield")
    setting.partition.evict(40, "cap")
    setting.partition.delete(60)
    items = setting.read_from(7, 11)
    assert items == [Gap("a", 0, 7, 40, "cap"), *range(60, 70)]
    assert setting.lost == 33


@pytest.mark.parametrize("offset", [40, 55])
def test_what_was_deleted_on_purpose_is_passed_over_without_a_word(offset: int) -> None:
    setting = Setting()
    setting.partition.evict(40, "cap")
    setting.partition.delete(60)
    assert setting.read_from(offset, 10) == list(range(60, 70))
    assert setting.lost == 0


def test_apache_kafka_does_not_say_why_something_is_gone() -> None:
    setting = Setting(segbroker=False, on_gap="yield")
    setting.partition.delete(60)
    assert setting.read_from(7, 11) == [Gap("a", 0, 7, 60, "unknown"), *range(60, 70)]


def test_a_reader_that_is_overtaken_by_retention_gets_its_gap() -> None:
    setting = Setting(batches=2)
    assert setting.read_from(0, 20) == list(range(20))
    for _ in range(8):
        store(setting.partition, [b"x"] * 10)
    setting.partition.evict(60, "ttl")
    with pytest.raises(GapError) as caught:
        setting.read(1)
    assert caught.value.gap == Gap("a", 0, 20, 60, "ttl")
    assert setting.read(40) == list(range(60, 100))


def test_a_seek_while_the_floors_are_asked_for_makes_the_answer_void() -> None:
    setting = Setting(on_gap="yield")
    setting.partition.evict(40, "cap")
    setting.reader.fetching.assign([A], 7)
    state = setting.reader.fetching.state(A)
    setting.world.run(lambda: state.resolving and state.fetch_offset == 7)
    setting.reader.fetching.seek(A, 90)
    assert setting.read(10) == list(range(90, 100))


# The tail.


@pytest.mark.parametrize("segbroker", [True, False])
def test_a_tail_that_was_read_and_is_lost_is_told_and_what_follows_is_read(segbroker: bool) -> None:
    setting = Setting(segbroker=segbroker, on_gap="yield")
    assert setting.read_from(0, 100) == list(range(100))
    setting.partition.truncate(70)
    assert setting.read(1) == [Gap("a", 0, 70, 100, "lost_tail")]
    store(setting.partition, [b"new"] * 5)
    assert setting.read(5) == [70, 71, 72, 73, 74]


def test_a_lost_tail_that_was_written_over_is_noticed_by_the_leader_epoch() -> None:
    setting = Setting(on_gap="yield")
    assert setting.read_from(0, 100) == list(range(100))
    setting.partition.truncate(70)
    for _ in range(5):
        store(setting.partition, [b"new"] * 10)
    assert setting.partition.log_end == 120
    items = setting.read(51)
    assert items == [Gap("a", 0, 70, 100, "lost_tail"), *range(70, 120)]


def test_a_lost_tail_and_the_notice_of_it_in_the_log_are_told_as_one_range() -> None:
    # After a power cut the log goes on at its ceiling: the first batch of the new epoch is a gap.
    setting = Setting(on_gap="yield")
    assert setting.read_from(0, 100) == list(range(100))
    setting.partition.truncate(70)
    setting.partition.store_gap(1_000, GapReason.LOST_TAIL)
    store(setting.partition, [b"new"])
    items = setting.read(2)
    if len(items) == 2 and isinstance(items[1], Gap):
        items += setting.read(1)
    gaps = [item for item in items if isinstance(item, Gap)]
    assert [item for item in items if not isinstance(item, Gap)] == [1_000]
    assert (gaps[0].from_offset, gaps[-1].to_offset) == (70, 1_000)
    assert sum(gap.lost_count for gap in gaps) == setting.lost == 930


def test_of_what_was_prefetched_and_is_lost_nothing_is_handed_out() -> None:
    setting = Setting(on_gap="yield")
    assert setting.read_from(0, 10) == list(range(10))
    setting.world.run(lambda: setting.reader.fetching.state(A).fetch_offset == 100)
    setting.partition.truncate(70)
    setting.world.run(lambda: setting.reader.fetching.state(A).fetch_offset == 70)
    assert setting.read(61) == [*range(10, 70), Gap("a", 0, 70, 100, "lost_tail")]


def test_a_leader_that_changed_and_lost_nothing_is_nothing_to_tell() -> None:
    setting = Setting()
    assert setting.read_from(0, 100) == list(range(100))
    setting.partition.truncate(100)
    store(setting.partition, [b"new"] * 10)
    assert setting.read(10) == list(range(100, 110))
    assert setting.lost == 0


def test_an_epoch_that_begins_while_another_is_asked_about_costs_no_time_out() -> None:
    setting = Setting(on_gap="yield")
    assert setting.read_from(0, 100) == list(range(100))
    setting.partition.truncate(70)
    setting.partition.begins_epoch_late = True
    assert setting.read(1) == [Gap("a", 0, 70, 100, "lost_tail")]
    store(setting.partition, [b"new"] * 5)
    assert setting.read(5) == [70, 71, 72, 73, 74]
    assert setting.world.now_ms < 30_000, "half of what a call may take"


def test_a_leader_that_does_not_know_the_epoch_of_what_was_read_is_asked_a_few_times_only() -> None:
    # Its epochs were found from its batches, and compaction has left none of epoch 1.
    setting = Setting(batches=0)
    setting.partition.truncate(0)
    for _ in range(2):
        store(setting.partition, [b"x"] * 10)
    setting.partition.truncate(20)
    assert setting.read_from(0, 20) == list(range(20))
    setting.partition.epoch_starts = [(0, 0), (2, 20)]
    setting.refresh()
    setting.world.broker.requests.clear()
    store(setting.partition, [b"new"])
    setting.world.run(lambda: setting.reader.has_news() or len(setting.world.broker.requests) > 20)
    assert setting.reader.has_news()
    assert setting.read(1) == [20]
    assert setting.lost == 0


def test_a_leader_that_has_not_reached_the_epoch_of_what_was_read_does_not_stop_the_reader() -> (
    None
):
    # The epoch lies outside of a batch's checksum: a bit of it has flipped.
    setting = Setting(batches=1)
    setting.partition.leader_epoch = 64
    store(setting.partition, [b"x"] * 10)
    setting.partition.leader_epoch = 0
    assert setting.read_from(0, 20) == list(range(20))
    store(setting.partition, [b"new"])
    assert setting.read(1) == [20]
    assert setting.lost == 0


def of_two_epochs() -> Setting:
    """100 records were read, those from 50 on of leader epoch 1."""
    setting = Setting(batches=5, on_gap="yield")
    setting.partition.truncate(50)
    for _ in range(5):
        store(setting.partition, [b"x"] * 10)
    assert setting.read_from(0, 100) == list(range(100))
    return setting


@pytest.mark.parametrize("batches", [0, 3, 5, 8])
def test_an_older_log_in_the_place_of_what_was_read_is_told(batches: int) -> None:
    # Put back as it was at 40, in epoch 0, and written on: below, up to or above the position.
    setting = of_two_epochs()
    setting.partition.restore(40)
    for _ in range(batches):
        store(setting.partition, [b"other"] * 10)
    end = 40 + 10 * batches
    behind = min(50, end)
    items = setting.read(1 + end - behind)
    assert items == [Gap("a", 0, behind, 100, "lost_tail"), *range(behind, end)]
    store(setting.partition, [b"more"])
    assert setting.read(1) == [end]


def test_a_log_that_is_older_by_two_epochs_is_told_from_the_first_that_it_does_not_have() -> None:
    setting = of_two_epochs()
    setting.partition.truncate(100)
    store(setting.partition, [b"x"] * 10)
    assert setting.read(10) == list(range(100, 110))
    setting.partition.restore(40)
    for _ in range(8):
        store(setting.partition, [b"other"] * 10)
    items = setting.read(72)
    assert items == [
        Gap("a", 0, 100, 110, "lost_tail"),
        Gap("a", 0, 50, 100, "lost_tail"),
        *range(50, 120),
    ]


def test_an_older_log_behind_a_lost_tail_is_told_from_the_epoch_before_that() -> None:
    setting = of_two_epochs()
    setting.partition.truncate(80)
    for _ in range(3):
        store(setting.partition, [b"new"] * 10)
    assert setting.read(31) == [Gap("a", 0, 80, 100, "lost_tail"), *range(80, 110)]
    setting.partition.restore(40)
    for _ in range(8):
        store(setting.partition, [b"other"] * 10)
    assert setting.read(2) == [Gap("a", 0, 80, 110, "lost_tail"), Gap("a", 0, 50, 80, "lost_tail")]
    assert setting.read(70) == list(range(50, 120))


def test_of_what_was_prefetched_of_a_newer_log_nothing_is_handed_out() -> None:
    setting = Setting(batches=5, on_gap="yield")
    setting.partition.truncate(50)
    for _ in range(5):
        store(setting.partition, [b"x"] * 10)
    assert setting.read_from(0, 10) == list(range(10))
    setting.world.run(lambda: setting.reader.fetching.state(A).fetch_offset == 100)
    setting.partition.restore(40)
    for _ in range(8):
        store(setting.partition, [b"other"] * 10)
    setting.world.run(lambda: setting.reader.fetching.state(A).fetch_offset < 100)
    items = setting.read(41)
    assert items == [*range(10, 50), Gap("a", 0, 50, 100, "lost_tail")]


def test_a_seek_after_an_older_log_was_put_back_reads_there() -> None:
    setting = of_two_epochs()
    setting.partition.restore(40)
    for _ in range(8):
        store(setting.partition, [b"other"] * 10)
    setting.reader.fetching.seek(A, 90)
    assert setting.read(10) == list(range(90, 100))
    assert setting.lost == 0


def test_an_offset_that_the_caller_made_up_is_an_error_and_no_loss() -> None:
    setting = Setting(on_gap="yield")
    with pytest.raises(OffsetOutOfRange, match="offset 500"):
        setting.read_from(500, 1)
    assert setting.lost == 0


# Another topic of the same name.


def test_a_recreated_topic_is_told_and_then_read_from_its_start() -> None:
    setting = Setting(on_gap="yield")
    assert setting.read_from(0, 100) == list(range(100))
    setting.partition = setting.fill(2)
    setting.refresh()
    assert setting.read(21) == [Gap("a", 0, 100, 100, "recreated"), *range(20)]


def test_of_another_log_no_end_is_known_before_it_was_fetched_from() -> None:
    setting = Setting(on_gap="yield")
    assert setting.read_from(0, 100) == list(range(100))
    state = setting.reader.fetching.state(A)
    assert state.end_offset == 100
    setting.partition = setting.fill(2)
    setting.refresh()
    assert setting.read(1) == [Gap("a", 0, 100, 100, "recreated")]
    assert state.end_offset == -1
    assert setting.read(20) == list(range(20))
    assert state.end_offset == 20


def test_a_recreated_topic_is_raised_once() -> None:
    setting = Setting()
    assert setting.read_from(0, 100) == list(range(100))
    setting.partition = setting.fill(2)
    setting.refresh()
    with pytest.raises(TopicRecreated, match="another one of this name"):
        setting.read(1)
    assert setting.reader.fetching.state(A).position == 0
    assert setting.read(20) == list(range(20))


def test_an_offset_that_is_sought_before_the_caller_has_heard_is_of_the_old_topic() -> None:
    setting = Setting(on_gap="yield")
    assert setting.read_from(0, 100) == list(range(100))
    setting.partition = setting.fill(2)
    setting.refresh()
    setting.reader.fetching.seek(A, 10)
    assert setting.reader.fetching.state(A).position == 10
    assert setting.read(1) == [Gap("a", 0, 10, 100, "recreated")]
    assert setting.read(20) == list(range(20))


def test_the_start_that_is_sought_is_that_of_the_topic_there_is() -> None:
    setting = Setting(on_gap="yield")
    assert setting.read_from(0, 100) == list(range(100))
    setting.partition = setting.fill(2)
    setting.refresh()
    setting.reader.fetching.seek(A, "start")
    assert setting.read(20) == list(range(20))


def test_what_was_prefetched_of_the_old_topic_comes_before_the_new_one() -> None:
    setting = Setting(on_gap="yield")
    assert setting.read_from(0, 10) == list(range(10))
    setting.world.run(lambda: setting.reader.fetching.state(A).fetch_offset == 100)
    setting.partition = setting.fill(1)
    setting.refresh()
    assert setting.read(101) == [*range(10, 100), Gap("a", 0, 100, 100, "recreated"), *range(10)]


def test_what_the_new_topic_loses_costs_nothing_of_the_old_one() -> None:
    """Its offsets are others."""
    setting = Setting(on_gap="yield")
    fetching = setting.reader.fetching
    assert setting.read_from(0, 10) == list(range(10))
    setting.world.run(lambda: fetching.state(A).fetch_offset == 100)
    setting.partition = setting.fill(4)
    setting.refresh()
    setting.world.run(lambda: fetching.state(A).fetch_offset == 40)
    setting.partition.truncate(20)
    setting.refresh()
    setting.world.run(lambda: fetching.state(A).fetch_offset == 20)
    assert setting.read(112) == [
        *range(10, 100),
        Gap("a", 0, 100, 100, "recreated"),
        *range(20),
        Gap("a", 0, 20, 40, "lost_tail"),
    ]


def test_a_partition_that_the_new_topic_does_not_have_ends() -> None:
    world = World(create_topics=False)
    for partition in world.cluster.create("a", 2):
        store(partition, [b"x"] * 10)
    reader = Reader(world, on_gap="skip")
    reader.fetching.subscribe(["a"], "start")
    assert len(reader.read(20)) == 20
    (partition,) = world.cluster.create("a")
    store(partition, [b"new"] * 3)
    done = world.engine.cluster.refreshed()
    world.run(lambda: done.done)
    assert [record.value for record in reader.read(3)] == [b"new"] * 3
    assert list(reader.fetching.states) == [A]


# All of it, at random.


@pytest.mark.parametrize("seed", range(60))
def test_every_offset_is_a_record_or_deleted_or_told(seed: int) -> None:
    random = Random(seed)
    setting = Setting(batches=random.randrange(3), on_gap="yield", segbroker=True)
    partition = setting.partition
    setting.reader.fetching.assign([A], 0)
    state = setting.reader.fetching.state(A)
    prefetched = setting.reader.fetching.prefetched
    deleted: set[int] = set()
    expected = 0
    for _ in range(60):
        end, start = partition.log_end, partition.log_start
        match random.randrange(12):
            case 0 | 1 | 2 | 3:
                store(partition, [b"x"] * random.randrange(1, 5))
            case 4:
                partition.store_gap(end + random.randrange(1, 9), GapReason.CORRUPTION)
            case 5:
                partition.store_gap(end + 3, GapReason.DELETED)
                deleted.update(range(end, end + 3))
            case 6 if end > start:
                to = random.randrange(start, end)
                partition.evict(to, "cap")
            case 7 if end > start:
                to = random.randrange(start, end)
                partition.delete(to)
                deleted.update(range(start, to))
            case 8 if partition.batches:
                # Losing a tail takes whole batches; the log goes on behind what was ever there.
                cut = min(start + random.randrange(20), end)
                while any(
                    b.base_offset < cut < b.next_offset for b in map(_header, partition.batches)
                ):
                    cut -= 1
                if cut >= start:
                    partition.truncate(cut)
                    partition.store_gap(end + random.randrange(1, 9), GapReason.LOST_TAIL)
            case _:
                setting.world.turn()
                setting.world.now_ms += 20
        while (fetched := prefetched.take()) is not None:
            expected = _account(setting, fetched, expected, deleted)
    done_at = partition.log_end

    def caught_up() -> bool:
        return bool(prefetched.ready or prefetched.errors) or state.position == done_at

    while state.position != done_at:
        setting.world.run(caught_up)
        fetched = prefetched.take()
        if fetched is not None:
            expected = _account(setting, fetched, expected, deleted)
    assert all(offset in deleted for offset in range(expected, done_at))


def _header(batch: bytes) -> Any:  # noqa: ANN401
    from segbroker.protocol.record_batch import read_header

    return read_header(batch)


def _account(setting: Setting, fetched: Any, expected: int, deleted: set[int]) -> int:  # noqa: ANN401
    """The offset that must come next; nothing was passed over, nothing came twice."""
    if fetched.gap is not None:
        first, behind = fetched.gap.from_offset, fetched.gap.to_offset
        # It may begin before what is expected: records that were read, and are gone since.
        assert all(offset in deleted for offset in range(expected, first)), fetched.gap
        return max(expected, int(behind))
    for record in setting.reader.fetching.open(fetched).records():
        assert record.offset >= expected, "it came twice"
        assert all(o in deleted for o in range(expected, record.offset)), "passed over in silence"
        expected = record.offset + 1
    return expected


def test_what_is_given_up_of_a_topic_that_is_gone_makes_room_for_the_next_fetch() -> None:
    """Nobody else would wake the I/O thread."""
    setting = Setting(fetch_partition_bytes=100)
    assert setting.read_from(0, 10) == list(range(10))
    fetching = setting.reader.fetching
    setting.world.run(lambda: fetching.state(A).fetch_offset >= 20)
    assert fetching.state(A).buffered_bytes >= 100
    setting.partition = setting.fill(1)
    setting.refresh()
    assert fetching.state(A).topics_ahead_count == 1
    woken: list[int] = []
    fetching.prefetched._on_room = lambda: woken.append(fetching.prefetched.buffered_bytes)
    fetching.go_back(A, 5)
    assert woken == [0]


@pytest.mark.parametrize("is_noticed", [False, True])
@pytest.mark.parametrize("segbroker", [False, True])
def test_who_goes_back_hears_of_a_tail_that_was_lost_meanwhile(
    segbroker: bool, is_noticed: bool
) -> None:
    """The log has become longer again since: other records lie where it goes on."""
    setting = Setting(segbroker=segbroker, on_gap="yield")
    assert setting.read_from(0, 50) == list(range(50))
    fetching = setting.reader.fetching
    setting.world.run(lambda: fetching.state(A).fetch_offset == 100)
    if not is_noticed:
        fetching.go_back(A, 40)
    setting.partition.truncate(20)
    for _ in range(5):
        store(setting.partition, [b"new"] * 10)
    setting.refresh()
    if is_noticed:
        setting.world.run(lambda: fetching.state(A).fetch_offset == 70)
        fetching.go_back(A, 40)
    lost = Gap("a", 0, 20, 100 if is_noticed else 40, "lost_tail")
    assert setting.read(51) == [lost, *range(20, 70)]


def test_who_goes_back_before_what_was_lost_reads_that_again() -> None:
    setting = Setting(on_gap="yield")
    assert setting.read_from(0, 50) == list(range(50))
    fetching = setting.reader.fetching
    setting.world.run(lambda: fetching.state(A).fetch_offset == 100)
    setting.partition.truncate(20)
    store(setting.partition, [b"new"] * 10)
    setting.refresh()
    setting.world.run(lambda: fetching.state(A).fetch_offset == 30)
    fetching.go_back(A, 10)
    assert setting.read(21) == [Gap("a", 0, 20, 100, "lost_tail"), *range(10, 30)]


def test_who_seeks_to_where_a_record_of_an_epoch_was_read_hears_of_the_tail_that_was_lost() -> None:
    """As a transform that goes on where the group stands; the log has become longer again since."""
    setting = Setting(on_gap="yield")
    assert setting.read_from(0, 50) == list(range(50))
    setting.reader.fetching.seek(A, 60, read_in_epoch=0)
    setting.partition.truncate(20)
    for _ in range(6):
        store(setting.partition, [b"new"] * 10)
    assert setting.read(61) == [Gap("a", 0, 20, 60, "lost_tail"), *range(20, 80)]


def test_who_is_back_where_an_epoch_begins_hears_of_a_tail_that_was_lost_below() -> None:
    """It has read nothing of an earlier one, but begins where the group stands: behind a record."""
    setting = Setting(batches=6, on_gap="yield")
    setting.partition.truncate(60)  # nothing, but it is of another epoch what comes
    for _ in range(10):
        store(setting.partition, [b"x"] * 10)
    fetching = setting.reader.fetching
    fetching.assign([A], 0)
    fetching.seek(A, 60, read_in_epoch=0)
    setting.world.run(lambda: fetching.state(A).fetch_offset > 60)
    fetching.go_back(A, 60)
    setting.partition.truncate(20)
    for _ in range(6):
        store(setting.partition, [b"new"] * 10)
    setting.refresh()
    assert setting.read(1) == [Gap("a", 0, 20, 60, "lost_tail")]
    assert setting.read(60) == list(range(20, 80))


@pytest.mark.parametrize("offset", [40, 80])
def test_who_goes_back_over_a_lost_tail_and_the_notice_of_it_hears_of_both(offset: int) -> None:
    """After a power cut: both are one gap, and were fetched ahead."""
    setting = Setting(on_gap="yield")
    assert setting.read_from(0, 90) == list(range(90))
    fetching = setting.reader.fetching
    setting.world.run(lambda: fetching.state(A).fetch_offset == 100)
    setting.partition.truncate(70)
    setting.partition.store_gap(1_000, GapReason.LOST_TAIL)
    store(setting.partition, [b"new"])
    setting.refresh()
    setting.world.run(lambda: fetching.state(A).fetch_offset == 1_001)
    fetching.go_back(A, offset)
    begins = max(offset, 70)
    again = list(range(offset, 70))
    assert setting.read(len(again) + 2) == [*again, Gap("a", 0, begins, 1_000, "lost_tail"), 1_000]
