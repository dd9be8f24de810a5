"""What is read of a manifest that is not one, or not one yet."""

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from segbroker.segments.directory.unopened import Unopened
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.errors import PartitionRefused
from segbroker.segments.settings.topic_config import TopicConfig

from .classes import manager_on, topic_with
from .tools import flip, lose_wal, offsets_in, read_from

MANIFEST = "/data/topics/t/partition_0/t_partition_0.manifest"


class Beside(MemoryStorage):
    """A disk on which something happens between the making of a manifest and its first byte."""

    happens: Callable[[], object] | None = None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        is_made = create and not self.exists(path)
        file = super().open(path, create=create, read_only=read_only)
        if is_made and path == MANIFEST and self.happens is not None:
            self.happens()
        return file


def overwrite(disk: MemoryStorage, content: bytes) -> None:
    file = disk.open(MANIFEST)
    file.truncate(0)
    file.pwrite(content, 0)
    file.close()


def test_who_looks_while_a_new_log_is_opened_raises_no_alarm() -> None:
    # The maintenance looks at a partition that it does not know to be open.
    disk = Beside()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig())
    looks = Unopened(disk, "/data")
    seen: list[list[tuple[str, int]]] = []
    disk.happens = lambda: seen.append(looks.step(manager.topics, lambda *_: False, None))
    with capture_logs() as events:
        manager.get_handler("t", 0)
    assert seen == [[("t", 0)]]
    assert events == []


def test_a_manifest_of_other_bytes_is_told() -> None:
    disk = MemoryStorage()
    topic_with(disk, "fsync").close()
    overwrite(disk, b"no manifest")
    with capture_logs() as events:
        manager = manager_on(disk)
        manager.get_handler("t", 0)
    told = [event["path"] for event in events if event["event"] == "manifest_unreadable"]
    assert told == [MANIFEST]
    assert manager.report.counts["manifest_rebuilt"] == 1


def test_a_manifest_of_other_bytes_of_what_is_not_served_is_not_told_with_each_try() -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, "fsync")
    manager.alter_topic("t", {"on.corruption": "refuse"})
    manager.close()
    lose_wal(disk)
    overwrite(disk, b"no manifest")
    flip(disk, MANIFEST.replace(".manifest", "_segment_0.log"), 100)
    manager = manager_on(disk)
    with pytest.raises(PartitionRefused):
        manager.get_handler("t", 0)
    with capture_logs() as events:
        for _ in range(3):  # once a second by the broker, for ever
            with pytest.raises(PartitionRefused):
                manager.get_handler("t", 0)
    assert events == []


def test_records_behind_an_empty_manifest_are_found_and_it_is_told_as_rebuilt() -> None:
    disk = MemoryStorage()
    topic_with(disk, "fsync").close()
    overwrite(disk, b"")
    manager = manager_on(disk)
    assert offsets_in(read_from(manager.get_handler("t", 0), 0)) == [0, 1, 2]
    assert manager.report.counts["manifest_rebuilt"] == 1
