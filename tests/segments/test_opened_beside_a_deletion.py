"""A topic is deleted, and made again, while a thread opens a partition of it, or makes segments."""

import threading
import time

import pytest
from structlog.testing import capture_logs

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.errors import UnknownTopic
from segbroker.segments.settings.topic_config import TopicConfig

from .tools import SMALL, append, batch_of, manager_on, offsets_in, read_from


class HeldStorage(MemoryStorage):
    """Whoever opens this file next is held up."""

    def __init__(self) -> None:
        super().__init__()
        self.held: str | None = None
        self.reached, self.goes_on = threading.Event(), threading.Event()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if path == self.held:
            self.held = None
            self.reached.set()
            assert self.goes_on.wait(60)
        return super().open(path, create=create, read_only=read_only)


@pytest.mark.parametrize("policy", ["gap", "refuse"])
def test_what_is_opened_of_a_deleted_topic_touches_nothing_of_the_next_of_its_name(
    policy: str,
) -> None:
    disk = HeldStorage()
    config = TopicConfig({**SMALL.overrides, "on.corruption": policy})
    manager = manager_on(disk)
    manager.create_topic("t", 1, config)
    for number in range(12):
        append(manager.get_handler("t", 0), batch_of(b"%03d" % number + b"x" * 57))
    manager.close()
    manager = manager_on(disk)
    disk.held = "/data/topics/t/partition_0/t_partition_0_segment_3.log"
    outcomes: list[type] = []
    is_made = threading.Event()

    def open_it() -> None:
        try:
            manager.get_handler("t", 0)
        except UnknownTopic:
            outcomes.append(UnknownTopic)

    def make_again() -> None:
        manager.delete_topic("t")
        manager.create_topic("t", 1, config)
        is_made.set()

    threads = [threading.Thread(target=work) for work in (open_it, make_again)]
    threads[0].start()
    assert disk.reached.wait(60), "the files of a segment have other names"
    threads[1].start()
    ends = time.monotonic() + 60
    while not (is_made.is_set() or manager.partitions._opened._waiters):  # type: ignore[attr-defined]
        assert time.monotonic() < ends
        time.sleep(0.001)  # a look at threads, up to a deadline
    disk.goes_on.set()
    for thread in threads:
        thread.join(60)
    assert outcomes == [UnknownTopic]
    append(manager.get_handler("t", 0), batch_of(b"first"))
    for one in (manager, manager_on(disk.after_kill())):
        handler = one.get_handler("t", 0)
        assert (handler.log_start_offset, handler.high_watermark) == (0, 1)
        assert offsets_in(read_from(handler, 0, 1)) == [0]
        assert not [row for row in one.report.rows if row.what in ("gap", "repaired", "refused")]


FOLDER = "/data/topics/t/partition_0"


class SlowToMake(MemoryStorage):
    """Who makes the first segment ahead takes until the topic is made again, or half a second."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.is_made_again = threading.Event(), threading.Event()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        is_maker = threading.current_thread().name == "segment-maker"
        if is_maker and path.startswith(FOLDER) and not self.reached.is_set():
            self.reached.set()
            self.is_made_again.wait(0.5)
        return super().open(path, create=create, read_only=read_only)


def test_no_segment_is_made_ahead_in_the_directory_of_the_next_topic_of_the_name() -> None:
    disk = SlowToMake()
    with (
        capture_logs() as told,
        DiskManager("/data", storage=disk, flushers=1, now_ms=1_000) as manager,
    ):
        manager.create_topic("t", 1, SMALL)
        handler = manager.get_handler("t", 0)
        for number in range(3):
            append(handler, batch_of(b"%03d" % number + b"x" * 57))
        assert disk.reached.wait(60), "segments are made by a thread of another name"
        manager.delete_topic("t")
        manager.create_topic("t", 1, SMALL)
        disk.is_made_again.set()
        manager.partitions.threads.maker.wait_idle()
        assert not disk.listdir(FOLDER)
    assert not [one for one in told if one["log_level"] != "info"]
