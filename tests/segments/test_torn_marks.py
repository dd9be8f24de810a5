"""Open transactions that lost records with the power: marked by the start, wherever it ends."""

import errno

import pytest

from segbroker.segments.directory import starting
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.metadata.control import EVENT_SIZE_MAX, Event
from segbroker.segments.metadata.transactions import (
    BOOT_TORN,
    SECTION,
    TRANSACTION,
    State,
    Transaction,
    transactions_of,
)
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.journal import WalConfig

from .crash.recording import RecordingStorage
from .test_failures import partition_on, write
from .tools import SMALL, manager_on

UNSYNCED = pytest.mark.parametrize("durability", ["disk", "memory"])
ROWS = pytest.mark.parametrize("says_its_boot", [True, False], ids=["row", "older-row"])


def put(manager: DiskManager, *, says_its_boot: bool) -> None:
    """An open transaction in the partition; of an older version, whose rows name no boot."""
    known = Transaction("tx", 7, 0, state=State.ONGOING, started_ms=1, partitions={"t": (0,)})
    row = known._replace(boot=manager.boot_number).pack()
    outcomes: list[OSError | None] = []
    manager.record_soon(
        outcomes.append, TRANSACTION, id="tx", row=row if says_its_boot else row[:-1]
    )
    assert outcomes == [None]


def opened_with_one(durability: str, *, says_its_boot: bool) -> tuple[MemoryStorage, DiskManager]:
    """One record is acknowledged, and not synced."""
    disk = MemoryStorage()
    config = TopicConfig({**SMALL.overrides, "durability": durability})
    manager, handler = partition_on(disk, config)
    write(handler, 0)
    assert handler.high_watermark == 1
    put(manager, says_its_boot=says_its_boot)
    return disk, manager


def boot_of(manager: DiskManager) -> int:
    (known,) = transactions_of(manager.section(SECTION))
    return known.boot


@UNSYNCED
@ROWS
@pytest.mark.parametrize("then", ["kill", "power cut"])
def test_wherever_the_start_behind_a_power_cut_ends_the_next_one_has_it_marked(
    durability: str, says_its_boot: bool, then: str
) -> None:
    disk, _ = opened_with_one(durability, says_its_boot=says_its_boot)
    recorded = RecordingStorage.over(disk.after_power_cut())
    images: list[MemoryStorage] = []
    recorded.on_change = recorded.on_sync = lambda call, path: images.append(
        recorded.after_kill() if then == "kill" else recorded.after_power_cut()
    )
    write(manager_on(recorded).get_handler("t", 0), 1)
    assert len(images) > 10
    assert {boot_of(manager_on(image)) for image in images} == {BOOT_TORN}


@UNSYNCED
@ROWS
@pytest.mark.parametrize("stop", ["kill", "orderly"])
@pytest.mark.parametrize("boots", ["same boot", "another boot", "one boot and another"])
def test_what_has_lost_nothing_is_not_marked(
    durability: str, says_its_boot: bool, stop: str, boots: str
) -> None:
    disk, manager = opened_with_one(durability, says_its_boot=says_its_boot)
    if stop == "orderly" or boots != "same boot":
        manager.close()
    image = disk.after_kill() if boots == "same boot" else disk.after_power_cut()
    for _ in range(3):
        manager = manager_on(image)
        assert boot_of(manager) == manager.boot_number
        write(manager.get_handler("t", 0), 1)
        if stop == "orderly" or boots == "one boot and another":
            manager.close()
        image = image.after_power_cut() if boots == "one boot and another" else image.after_kill()


@UNSYNCED
def test_what_a_start_of_an_older_version_has_not_marked_is_torn(
    durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote the gap, and died before it had aborted the transaction."""
    disk, _ = opened_with_one(durability, says_its_boot=True)
    image = disk.after_power_cut()
    with monkeypatch.context() as patched:
        patched.setattr(starting, "mark_torn", lambda metadata, boot_id: None)
        manager = manager_on(image)
    handler = manager.get_handler("t", 0)
    assert manager.report.counts["gap"] == 1
    handler.sync()
    for then in (image.after_kill(), image.after_power_cut()):
        assert boot_of(manager_on(then)) == BOOT_TORN


class OnceFull(MemoryStorage):
    """Has no room for one of the snapshots that are written."""

    refuses = -1

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if create and "/meta/snapshot-" in path:
            self.refuses -= 1
            if not self.refuses:
                raise OSError(errno.ENOSPC, "planted", path)
        return super().open(path, create=create, read_only=read_only)


@pytest.mark.parametrize("refuses", [1, 2])
def test_another_boot_is_one_also_where_the_start_needs_more_than_one_try(refuses: int) -> None:
    """It gives the spare files of the write-ahead log up, and begins once more."""
    disk, _ = opened_with_one("disk", says_its_boot=True)
    cut, full = disk.after_power_cut(), OnceFull()
    full._root, full._boot, full.refuses = cut._root, cut._boot, refuses
    manager = manager_on(full)
    assert full.refuses <= 0, "it has tried"
    assert manager.is_new_boot
    assert boot_of(manager) == BOOT_TORN


def test_a_row_as_large_as_an_event_may_be_keeps_no_start_from_marking_it() -> None:
    """With the mark it is larger: no event is written then, but a snapshot."""
    disk, manager = opened_with_one("disk", says_its_boot=True)
    (known,) = transactions_of(manager.section(SECTION))
    disk = disk.after_kill()
    manager = DiskManager("/data", storage=disk, flushers=0, wal=WalConfig())
    manager.open()

    def event(size: int) -> dict[str, object]:
        offsets = {"g": (("t", 0, 1, -1, "m" * size, 1),)}
        return {"id": "tx", "row": known._replace(offsets=offsets).pack()[:-1]}

    size = EVENT_SIZE_MAX - 1_000
    size += EVENT_SIZE_MAX - len(Event(manager.last_seq + 1, TRANSACTION, event(size)).encode())
    outcomes: list[OSError | None] = []
    manager.record_soon(outcomes.append, TRANSACTION, **event(size + 1))
    assert isinstance(outcomes.pop(), OSError)
    manager.record_soon(outcomes.append, TRANSACTION, **event(size))
    assert outcomes == [None]
    assert boot_of(manager_on(disk.after_power_cut())) == BOOT_TORN
