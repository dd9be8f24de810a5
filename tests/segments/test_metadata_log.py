"""The state as a snapshot and the events behind it."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import NoReturn
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from segbroker.protocol import limits
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import CorruptSegment, StorageError, UnsupportedFormat
from segbroker.segments.metadata import control, metadata, metadata_log
from segbroker.segments.metadata.control import Event, apply, decode_event, register
from segbroker.segments.metadata.metadata import (
    RETIRED_MAX,
    VERSION,
    Ceiling,
    Metadata,
    TopicMeta,
    decode_metadata,
    encode_topic,
)
from segbroker.segments.metadata.metadata_log import Done, MetadataLog
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.replay import replay

from .classes import gaps_in
from .crash.driver import Driver
from .crash.explorer import Plan, silence
from .crash.images import Images
from .crash.recording import Fault, RecordingStorage
from .crash.scenarios_faults import fault
from .crashing import CrashingStorage, Killed
from .tools import append, batch_of

PLAIN = TopicConfig({})


def manager_on(storage: MemoryStorage) -> DiskManager:
    manager = DiskManager("/data", storage=storage, flushers=0)
    manager.open()
    return manager


def events_on(storage: MemoryStorage) -> list[Event]:
    return [decode_event(payload) for payload in replay(storage, "/data/wal").control]


class Remembered:
    """An event log that keeps what it is given; `fails` and `held` at the test's word."""

    event_size_max = 1 << 20

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.waiting: list[Done] = []
        self.fails = False
        self.on_control: Callable[[], object] = lambda: None

    def control(self, *payloads: bytes) -> Callable[[], None]:
        self.on_control()
        self.payloads += payloads
        return self.wait

    def wait(self) -> None:
        if self.fails:
            raise OSError(5, "no sync")

    def control_soon(self, payload: bytes, done: Done) -> None:
        self.payloads.append(payload)
        self.waiting.append(done)


@pytest.fixture
def events() -> Remembered:
    return Remembered()


@pytest.fixture
def log(events: Remembered) -> MetadataLog:
    storage = MemoryStorage()
    storage.mkdir("/meta")
    log = MetadataLog(storage, "/meta")
    log.begin(Metadata("cluster"))
    log.attach(events)
    return log


def loaded(log: MetadataLog, payloads: list[bytes]) -> Metadata:
    """What the next process knows: the snapshot, then these events."""
    again = MetadataLog(log._storage, "/meta")
    assert again.load()
    again.replay(payloads)
    return again.state


def topic(name: str, number: int = 1, **settings: int) -> TopicMeta:
    return TopicMeta(name, UUID(int=number), settings.get("partitions", 1), PLAIN, 0)


# Through the manager: bytes on a disk.


def test_administration_writes_one_event_and_no_snapshot() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    before = disk.listdir("/data/meta")
    manager.create_topic("t", 1, PLAIN)
    manager.create_partitions("t", 3)
    manager.alter_topic("t", {"segment.bytes": "4096"})
    manager.create_topic("gone", 1, PLAIN)
    manager.delete_topic("gone")
    assert manager.allocate_producer_ids(10) == range(10)
    assert disk.listdir("/data/meta") == before
    kinds = [event.kind for event in events_on(disk)]
    assert kinds == [
        "topic_created",
        "partitions_grown",
        "topic_altered",
        "topic_created",
        "topic_deleted",
        "producer_ids",
    ]
    again = manager_on(disk.after_power_cut())
    assert list(again.topics) == ["t"]
    assert again.topics["t"].partitions == 3
    assert again.topics["t"].config.overrides == {"segment.bytes": "4096"}
    assert again.allocate_producer_ids(1) == range(10, 11)


def test_a_clean_close_leaves_a_snapshot_and_no_event() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, PLAIN)
    manager.close()
    assert events_on(disk) == []
    assert list(manager_on(disk.after_power_cut()).topics) == ["t"]


def test_a_start_that_finds_nothing_new_writes_no_snapshot() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, PLAIN)
    manager.close()
    before = disk.listdir("/data/meta")
    for _ in range(2):
        manager = manager_on(disk)
        assert manager.get_handler("t", 0).high_watermark == 0
        assert (disk.listdir("/data/meta"), events_on(disk)) == (before, [])
        manager.close()
    assert manager_on(disk).allocate_producer_ids(1) == range(1)
    assert disk.listdir("/data/meta") == before, "an event is enough"


def test_what_the_wal_recycles_is_in_a_snapshot() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, PLAIN)
    for number in range(1_500):  # several files of the small WAL
        manager.allocate_producer_ids(number + 1)
    assert len(events_on(disk)) < 1_500
    again = manager_on(disk.after_power_cut())
    assert list(again.topics) == ["t"]
    assert again.allocate_producer_ids(1).start == 1_500 * 1_501 // 2


def test_a_deletion_that_was_refused_never_comes_true() -> None:
    disk = CrashingStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, PLAIN)
    disk.sync_fails = True
    with pytest.raises(StorageError, match="was not deleted"):
        manager.delete_topic("t")
    assert list(manager.topics) == ["t"]
    # The event is on the disk, as far as a kill is concerned.
    assert [event.kind for event in events_on(disk)][-1] == "topic_deleted"
    disk.sync_fails = False
    manager.housekeeping(10_000)  # the disk is well again: a snapshot settles it
    assert list(manager_on(disk.after_kill()).topics) == ["t"]
    assert list(manager_on(disk.after_power_cut()).topics) == ["t"]


def test_nobody_writes_into_a_topic_whose_deletion_may_come_true() -> None:
    """What class `memory` would acknowledge needs no sync, and would be gone behind a kill."""
    disk = CrashingStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig({"durability": "memory"}))
    append(manager.get_handler("t", 0), batch_of(b"before"))
    disk.sync_fails = True
    for _ in range(2):
        with pytest.raises(StorageError, match="was not deleted"):
            manager.delete_topic("t")
        with pytest.raises(StorageError, match="was to be deleted"):
            manager.get_handler("t", 0)
    disk.sync_fails = False
    manager.housekeeping(10_000)
    append(manager.get_handler("t", 0), batch_of(b"behind"))
    assert manager_on(disk.after_kill()).get_handler("t", 0).log_end_offset == 2


def test_who_sees_that_one_deletion_is_settled_does_not_lift_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second one fails while somebody who asks for a partition hears that the first is over."""
    disk = CrashingStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig({"durability": "memory"}))
    has_settled = manager._metadata.has_settled
    deleting: list[threading.Thread] = []

    def delete() -> None:
        with pytest.raises(StorageError, match="was not deleted"):
            manager.delete_topic("t")

    def heard(doubts: int) -> bool:
        is_over = has_settled(doubts)
        if is_over and is_asking and threading.current_thread() is threading.main_thread():
            disk.sync_fails = True
            deleting.append(threading.Thread(target=delete))
            deleting[0].start()
            deleting[0].join(0.3)  # or it waits for who asks
        return is_over

    is_asking = False
    monkeypatch.setattr(manager._metadata, "has_settled", heard)
    disk.sync_fails = True
    delete()
    disk.sync_fails = False
    manager.housekeeping(10_000)
    is_asking = True
    manager.get_handler("t", 0)
    is_asking = False
    deleting[0].join()
    assert not manager._metadata.is_settled
    with pytest.raises(StorageError, match="was to be deleted"):
        manager.get_handler("t", 0)


# The mechanism.


def test_events_are_applied_over_the_snapshot_in_the_order_of_their_writing(
    log: MetadataLog, events: Remembered
) -> None:
    log.record("topic_created", **encode_topic(topic("a")))
    log.save()
    log.record("topic_created", **encode_topic(topic("b", 2)))
    log.record("topic_deleted", name="a", id=UUID(int=1).bytes)
    state = loaded(log, events.payloads)
    assert (list(state.topics), state.retired, state.seq) == (["b"], {"a": 0}, 3)
    assert state == log.state


def test_a_snapshot_holds_what_is_on_its_way(log: MetadataLog, events: Remembered) -> None:
    # The file with the event may be recycled the moment after.
    log.record("topic_created", **encode_topic(topic("a")))
    rows = [[UUID(int=1).bytes, 0, 77, 1]]
    log.record_soon(lambda error: None, "ceilings", rows=rows)
    assert log.state.ceiling((UUID(int=1), 0)) is None, "not durable yet"
    log.save()
    assert loaded(log, []).ceiling((UUID(int=1), 0)) == Ceiling(77, 1)


def test_an_event_that_failed_is_not_in_the_snapshot_that_settles_it(
    log: MetadataLog, events: Remembered
) -> None:
    log.record("topic_created", **encode_topic(topic("a")))
    events.fails = True
    with pytest.raises(OSError, match="no sync"):
        log.record("topic_deleted", name="a", id=UUID(int=1).bytes)
    assert log.is_settled
    assert list(loaded(log, events.payloads).topics) == ["a"]


def test_an_event_has_one_outcome_whatever_is_told_later(
    log: MetadataLog, events: Remembered
) -> None:
    """A writer that crashes tells everybody, also whom it has told that all is durable."""
    told: list[OSError | None] = []
    log.record_soon(told.append, "producer_ids", next=7)
    log.record_soon(told.append, "topic_created", **encode_topic(topic("a")))
    for error in (None, OSError(5, "the writer crashed")):
        events.waiting[1](error)
    log.save()
    assert told == [None]
    assert list(loaded(log, []).topics) == ["a"]


def test_an_event_that_there_is_no_memory_to_tell_of_has_not_happened(
    log: MetadataLog, events: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs_out(*_: object) -> NoReturn:
        raise MemoryError

    events.on_control = runs_out
    monkeypatch.setattr(metadata_log, "as_os_error", runs_out)
    with pytest.raises(MemoryError):
        log.record("topic_created", **encode_topic(topic("a")))
    log.save()
    assert not loaded(log, []).topics


def test_without_a_log_of_events_every_change_is_a_snapshot() -> None:
    storage = CrashingStorage()
    storage.mkdir("/meta")
    log = MetadataLog(storage, "/meta")
    log.begin(Metadata("cluster"))
    told: list[OSError | None] = []
    log.record("producer_ids", next=7)
    assert loaded(log, []).next_producer_id == 7
    log.record_soon(told.append, "producer_ids", next=9)
    assert (told, loaded(log, []).next_producer_id) == ([None], 9)
    storage.sync_fails = True
    log.record_soon(told.append, "producer_ids", next=11)
    assert isinstance(told[-1], OSError)
    assert (log.state.next_producer_id, log.is_settled) == (9, False)
    with capture_logs() as lines:
        for _ in range(3):  # once a second, for as long as it takes
            assert not log.settle()
        storage.sync_fails = False
        for _ in range(2):
            assert log.settle()
    assert [line["event"] for line in lines] == ["metadata_unsettled", "metadata_settled"]
    assert loaded(log, []).next_producer_id == 9


def test_applying_events_again_changes_nothing() -> None:
    chance = random.Random(5)
    for _ in range(50):
        state = Metadata("cluster")
        history = list(_history(chance))
        for event in history:
            state = apply(state, event)
        start = chance.randrange(len(history))
        again = state
        for event in history[start:]:
            again = apply(again, event)
        assert again == state, f"from event {start} of {history}"


def _history(chance: random.Random) -> Iterator[Event]:
    """Changes as a manager makes them, in their order."""
    living: dict[str, TopicMeta] = {}
    next_id = 0
    for seq in range(1, 40):
        name = chance.choice("abc")
        meta = living.get(name)
        if meta is None:
            next_id += 1
            living[name] = meta = topic(name, next_id)
            yield Event(seq, "topic_created", encode_topic(meta))
            continue
        known = {"name": name, "id": meta.topic_id.bytes}
        match chance.randrange(5):
            case 0:
                del living[name]
                yield Event(seq, "topic_deleted", known)
            case 1:
                yield Event(seq, "partitions_grown", {**known, "partitions": seq})
            case 2:
                yield Event(seq, "epochs", {"rows": [[meta.topic_id.bytes, 0, seq]]})
            case 3:
                rows = [[meta.topic_id.bytes, 0, chance.randrange(100), 1]]
                yield Event(seq, "ceilings", {"rows": rows})
            case _:
                yield Event(seq, "producer_ids", {"next": seq * 10})


def test_events_of_an_earlier_topic_of_the_name_say_nothing_of_this_one() -> None:
    old, new = topic("t", 1), topic("t", 2, partitions=3)
    state = Metadata("cluster").with_topics([new])
    state = state.with_ceilings([(new.topic_id, 0, Ceiling(40, 1))])
    state = state.with_epochs([(new.topic_id, 0, 5)])
    key = {"name": "t", "id": old.topic_id.bytes}
    for kind, fields in (
        ("topic_deleted", {}),
        ("partitions_grown", {"partitions": 9}),
        ("topic_altered", {"config": {"segment.bytes": "4096"}}),
    ):
        assert apply(state, Event(1, kind, {**key, **fields})) == replace(state, seq=1)
    # Its own making, again: what was reserved since then stays reserved.
    made = Event(1, "topic_created", encode_topic(new))
    assert apply(state, made) == replace(state, seq=1)
    # The deletion of this one was absorbed, and the making of another comes again.
    after = apply(state, Event(1, "topic_created", encode_topic(old)))
    assert (after.topics["t"].topic_id, after.ceiling((new.topic_id, 0))) == (old.topic_id, None)


def test_a_snapshot_of_a_later_version_is_not_read() -> None:
    data = bytearray(Metadata("cluster").encode())
    data[4:6] = (VERSION + 1).to_bytes(2, "big")
    with pytest.raises(UnsupportedFormat, match=f"snapshot has format {VERSION + 1}, this version"):
        decode_metadata(bytes(data), "snapshot")
    data[4:6] = bytes(2)
    with pytest.raises(CorruptSegment, match="version 0, not"):
        decode_metadata(bytes(data), "snapshot")
    data[:6] = b"SBMX" + VERSION.to_bytes(2, "big")
    with pytest.raises(CorruptSegment, match="SBMX"):
        decode_metadata(bytes(data), "snapshot")


def test_what_a_crash_left_of_a_snapshot_goes_at_the_next_start() -> None:
    disk = MemoryStorage()
    manager_on(disk).close()
    left = ["snapshot-1.msgpack.tmp", "snapshot-7.msgpack.tmp"]
    for name in (*left, "notes.tmp"):
        disk.open(f"/data/meta/{name}", create=True)
    manager_on(disk).close()
    names = disk.listdir("/data/meta")
    assert "notes.tmp" in names
    assert not set(left) & set(names)


def test_a_snapshot_whose_name_a_kill_left_unsynced_survives_a_power_cut() -> None:
    """The next start believes the name, and frees the events that the snapshot has absorbed."""
    steps = 0
    while True:
        disk = CrashingStorage()
        manager = manager_on(disk)
        manager.create_topic("t", 1, PLAIN)
        disk.dies_at = len(disk.operations) + steps
        try:
            manager.close()
        except Killed:
            disk.dies_at = -1
            disk._locks.clear()  # the lock of a process that is gone
        else:
            break
        manager_on(disk)  # of the same boot: what is not synced is there
        assert "t" in manager_on(disk.after_power_cut()).topics
        steps += 1
    assert steps > 5


def test_a_snapshot_that_a_kill_left_and_a_start_could_not_sync_survives_a_power_cut() -> None:
    """The start after that believes the name, and frees the events that the snapshot has
    absorbed."""
    refused = 0
    for steps in count(1):
        disk = RecordingStorage()
        manager = manager_on(disk)
        manager.create_topic("t", 1, PLAIN)
        left = steps

        def dies(call: str, path: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise Killed(call)

        disk.on_change = disk.on_sync = dies
        with suppress(Killed):
            manager.close()
        disk.on_change = disk.on_sync = lambda call, path: None
        if left > 0:
            break
        disk.restart()
        disk.faults.append(Fault("fsync_dir", "/meta", 0))
        try:
            manager_on(disk)
        except StorageError:
            refused += 1
            disk.restart()
            manager_on(disk)
        assert all("t" in manager_on(image.build()).topics for image in Images(disk).now())
    assert refused > 5


def test_a_first_snapshot_whose_name_could_not_be_synced_is_not_counted_on() -> None:
    """The start fails, and the next one finds the snapshot there."""
    with silence():
        driver = Driver(Plan())
        fault(driver, Fault("fsync_dir", "/meta", 0))
        with pytest.raises(StorageError, match="planned"):
            driver.open()
        driver.kill()
        driver.open()
        driver.create("t", durability="fsync")
        driver.append("t")
        driver.explorer.finish()


def test_deleted_names_that_are_too_many_to_remember_leave_a_floor_for_every_epoch() -> None:
    names = {f"old {number}": 3 for number in range(RETIRED_MAX - 1)}
    state = Metadata("cluster", retired={**names, "highest": 8}).with_topics([topic("t")])
    assert (state.first_epoch("old 1"), state.first_epoch("never")) == (4, 0)
    state = state.without_topics(["t"])
    for known in (state, decode_metadata(state.encode(), "snapshot")):
        assert (known.retired, known.first_epoch("old 1"), known.first_epoch("never")) == ({}, 9, 9)
    few = Metadata("cluster", retired=names).with_topics([topic("t")]).without_topics(["t"])
    assert (len(few.retired), few.first_epoch("t"), few.first_epoch("never")) == (RETIRED_MAX, 1, 0)


def test_an_event_of_an_unknown_kind_is_not_passed_over(log: MetadataLog) -> None:
    with pytest.raises(UnsupportedFormat, match="control event has format 'merger'"):
        loaded(log, [Event(1, "merger", {}).encode()])


def test_a_further_kind_is_a_registration(
    log: MetadataLog, events: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "KINDS", dict(control.KINDS))
    register(
        "cursor_moved",
        "cursors",
        lambda content, fields: {**(content or {}), fields["name"]: fields["offset"]},
    )
    log.record("cursor_moved", name="a", offset=5)
    log.record("cursor_moved", name="b", offset=7)
    log.save()
    log.record("cursor_moved", name="a", offset=6)
    assert loaded(log, events.payloads).sections == {"cursors": {"a": 6, "b": 7}}


def test_what_another_kind_keeps_survives_a_version_that_does_not_know_it(
    log: MetadataLog, events: Remembered
) -> None:
    log.begin(Metadata("cluster", sections={"leases": [1, 2]}))
    log.record("producer_ids", next=5)
    log.save()
    assert loaded(log, []).sections == {"leases": [1, 2]}


def test_an_event_that_could_not_be_read_back_is_not_written_and_leaves_no_hole(
    log: MetadataLog, events: Remembered
) -> None:
    log.record("producer_ids", next=1)
    events.event_size_max = 100
    told: list[OSError | None] = []
    log.record_soon(told.append, "offsets_forgotten", group="g" * 100, rows=None)
    with pytest.raises(OSError, match=r"event offsets_forgotten of 1\d\d bytes is above 100"):
        log.record("offsets_forgotten", group="g" * 100, rows=None)
    assert [type(error) for error in told] == [OSError]
    assert log.is_settled
    log.record("producer_ids", next=2)
    assert [decode_event(payload).seq for payload in events.payloads] == [1, 2]


def test_events_are_handed_over_in_the_order_of_their_numbers_whoever_records_them(
    log: MetadataLog, events: Remembered
) -> None:
    is_in, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        is_in.set()
        may_go.wait(0.2)  # as long as somebody else could overtake

    events.on_control = hold
    first = threading.Thread(target=lambda: log.record("producer_ids", next=1))
    first.start()
    assert is_in.wait(60)
    log.record_soon(lambda _: None, "producer_ids", next=2)
    may_go.set()
    first.join()
    assert [decode_event(payload).seq for payload in events.payloads] == [1, 2]


def test_events_stand_in_the_order_of_their_numbers_whoever_hears_of_them_first(
    log: MetadataLog, events: Remembered
) -> None:
    storage = log._storage
    meta = TopicMeta("t", UUID(int=1), 1, PLAIN, 0)
    log.record("topic_created", **encode_topic(meta))

    def altered(text: str) -> dict[str, object]:
        return {"name": "t", "id": meta.topic_id.bytes, "config": {"retention.ms": text}}

    def retention() -> list[int]:
        again = MetadataLog(storage, "/meta")
        again.load()
        return [one.state.topics["t"].config.retention_ms for one in (log, again)]

    log.record_soon(lambda error: None, "topic_altered", **altered("1"))
    log.record("topic_altered", **altered("2"))
    log.record_soon(lambda error: None, "topic_altered", **altered("3"))
    log.record("topic_altered", **altered("4"))
    log.save()
    assert retention() == [4, 4]
    first, third = events.waiting
    third(None)
    log.save()
    assert retention() == [4, 4]
    first(None)
    log.save()
    assert retention() == [4, 4]
    log.record("topic_altered", **altered("5"))
    log.save()
    assert retention() == [5, 5]


def test_a_class_that_changes_while_offsets_are_reserved_leaves_none_reserved() -> None:
    disk = MemoryStorage()
    soon: list[Callable[[], object]] = []
    manager = DiskManager("/data", storage=disk, flushers=0, call_soon=soon.append)
    manager.open()
    manager.create_topic("t", 1, TopicConfig({"durability": "disk"}))
    append(manager.get_handler("t", 0), batch_of(b"a"))
    assert soon, "the loop has not heard yet that offsets are reserved"
    manager.alter_topic("t", {"durability": "fsync"})
    for callback in soon:
        callback()
    manager.close()
    again = manager_on(disk.after_power_cut())
    assert gaps_in(again.get_handler("t", 0)) == []
    assert again.report.rows == []


def test_a_snapshot_that_no_start_would_read_is_not_written(
    log: MetadataLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.record("producer_ids", next=7)
    log.save()
    monkeypatch.setattr(metadata, "SNAPSHOT_SIZE_MAX", 100)
    log.record("producer_ids", next=8)
    with pytest.raises(OSError, match=r"the metadata of \d+ bytes is above 100"):
        log.save()
    monkeypatch.undo()
    again = MetadataLog(log._storage, "/meta")
    assert again.load()
    assert again.state.next_producer_id == 7, "the events behind it are still to be applied"


def test_a_snapshot_of_more_groups_than_a_body_has_elements_is_read_again(
    log: MetadataLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "VENDOR_ITEMS_COUNT_MAX", 10)
    for n in range(11):
        log.record("group_emptied", group=f"g{n}", at=n)
    log.save()
    assert len(loaded(log, []).sections["emptied"]) == 11
