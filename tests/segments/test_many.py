"""Many topics and partitions: what is new is synced together, and with its first records."""

import errno
from uuid import UUID

import pytest

from segbroker.segments.checks.findings import Level
from segbroker.segments.checks.log_check import LogChecker
from segbroker.segments.directory.manager import NewTopic, TopicMeta
from segbroker.segments.directory.topic_registry import REMOVED_AT_ONCE
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage, _Directory
from segbroker.segments.errors import (
    InvalidPartitions,
    InvalidTopicName,
    TopicCollides,
    TopicExists,
    UnknownTopic,
)
from segbroker.segments.metadata.metadata import encode_topic
from segbroker.segments.names import partition_paths
from segbroker.segments.recovery.survey import Circumstances
from segbroker.segments.settings.topic_config import TopicConfig

from .tools import append, batch_of, manager_on, offsets_in, read_from

TOPICS = "/data/topics"
DISK = TopicConfig({"durability": "disk"})
MEMORY = TopicConfig({"durability": "memory"})
FSYNC = TopicConfig({})


class Syncs(MemoryStorage):
    """Knows what was synced, and fails to sync directories whose path is `failing`."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []
        self.failing = ""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = _File(path, plain._inode, self)
        file.owner = self
        return file

    def fsync_dir(self, path: str) -> None:
        self.synced.append(path)
        if path == self.failing:
            raise OSError(errno.EIO, "planted", path)
        super().fsync_dir(path)


class _File(MemoryFile):
    owner: Syncs

    def fdatasync(self) -> None:
        self.owner.synced.append(self.path)
        super().fdatasync()


def wanted(*names: str, config: TopicConfig = DISK) -> list[NewTopic]:
    return [NewTopic(name, 2, config) for name in names]


NAMES = [f"t{number}" for number in range(50)]


def test_topics_that_are_made_together_are_durable_with_two_syncs_of_the_log() -> None:
    disk = Syncs()
    manager = manager_on(disk)
    manager.create_topic("first", 1, DISK)  # the log has its first file then
    disk.synced.clear()
    made = manager.create_topics(wanted(*NAMES))
    assert [meta.name for meta in made if isinstance(meta, TopicMeta)] == NAMES
    assert len([path for path in disk.synced if path.endswith(".log")]) == 2
    assert disk.synced.count(TOPICS) == 1
    assert {f"{TOPICS}/{name}" for name in NAMES} <= set(disk.synced)
    again = manager_on(disk.after_power_cut())
    assert sorted(again.topics) == sorted(["first", *NAMES])
    for name in NAMES:
        assert again.topics[name] == manager.topics[name]
        assert again.get_handler(name, 1).log_end_offset == 0


def test_each_of_them_has_an_outcome_of_its_own() -> None:
    manager = manager_on(MemoryStorage())
    manager.create_topic("there", 1, DISK)
    asked = [
        NewTopic("a", 1, DISK),
        NewTopic("there", 1, DISK),
        NewTopic("no/name", 1, DISK),
        NewTopic("a", 3, DISK),
        NewTopic("none", 0, DISK),
        NewTopic("b", 2, FSYNC),
    ]
    kinds = [type(outcome) for outcome in manager.create_topics(asked)]
    expected = [TopicMeta, TopicExists, InvalidTopicName, TopicExists, InvalidPartitions, TopicMeta]
    assert kinds == expected
    assert {name: meta.partitions for name, meta in manager.topics.items()} == {
        "there": 1,
        "a": 1,
        "b": 2,
    }


class CaseInsensitive(MemoryStorage):
    """A file system for which the directories of the topics `A` and `a` are one, that of `A`."""

    def _parent(self, path: str) -> tuple[_Directory, str]:
        return super()._parent(path.replace("/topics/a", "/topics/A"))

    def _directory(self, path: str) -> _Directory:
        return super()._directory(path.replace("/topics/a", "/topics/A"))


def test_where_case_counts_for_nothing_a_topic_takes_the_directory_of_no_other() -> None:
    disk = CaseInsensitive()
    manager = manager_on(disk)
    asked = [NewTopic(name, 1, FSYNC) for name in ("A", "a")]
    kinds = [type(outcome) for outcome in manager.create_topics(asked)]
    assert kinds == [TopicMeta, TopicCollides]
    append(manager.get_handler("A", 0), batch_of(b"x"))
    with pytest.raises(TopicCollides, match="'a' collides with existing topic: A"):
        manager.create_topic("a", 1, FSYNC)
    assert manager.get_handler("A", 0).log_end_offset == 1
    manager.close()
    manager = manager_on(disk)
    assert manager.get_handler("A", 0).log_end_offset == 1
    manager.close()


def test_topics_of_names_that_are_alike_go_on_where_they_are_there() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    older = TopicMeta("x_y", UUID(int=7), 1, TopicConfig({"durability": "ephemeral"}), 0)
    manager.create_topic("x.y", 1, FSYNC)
    manager.record_now("topic_created", **encode_topic(older))  # as earlier versions did
    for _ in ("as they were recorded", "as they are in the snapshot"):
        manager.close()
        manager = manager_on(disk)
        assert set(manager.topics) == {"x.y", "x_y"}
        assert manager.get_handler("x.y", 0).log_end_offset == 0
        assert manager.get_handler("x_y", 0).log_end_offset == 0
    manager.delete_topic("x.y")
    asked = [NewTopic(name, 1, FSYNC) for name in ("x.y", "a.b", "a_b", "a.b")]
    kinds = [type(outcome) for outcome in manager.create_topics(asked)]
    assert kinds == [TopicCollides, TopicMeta, TopicCollides, TopicExists]
    manager.delete_topic("x_y")
    manager.create_topic("x.y", 1, FSYNC)


@pytest.mark.parametrize(("failing", "made"), [(f"{TOPICS}/b", ["a", "c"]), (TOPICS, [])])
def test_a_topic_whose_directories_cannot_be_synced_was_not_made(
    failing: str, made: list[str]
) -> None:
    disk = Syncs()
    manager = manager_on(disk)
    disk.failing = failing
    outcomes = manager.create_topics(wanted("a", "b", "c"))
    assert [one.name for one in outcomes if isinstance(one, TopicMeta)] == made
    assert sorted(manager.topics) == made
    disk.failing = ""
    assert sorted(manager_on(disk.after_kill()).topics) == made
    asked = wanted(*({"a", "b", "c"} - {*made}))
    assert all(isinstance(one, TopicMeta) for one in manager.create_topics(asked))
    append(manager.get_handler("b", 1), batch_of(b"v"))


def test_topics_that_are_deleted_together_are_gone_with_one_sync_of_the_log() -> None:
    disk, gone = Syncs(), NAMES[:10]
    manager = manager_on(disk)
    manager.create_topics(wanted(*gone, "kept", config=FSYNC))
    for name in (*gone[:5], "kept"):
        append(manager.get_handler(name, 0), batch_of(b"v"))
    disk.synced.clear()
    outcomes = manager.delete_topics([*gone, "unknown"])
    assert [type(outcome) for outcome in outcomes] == [TopicMeta] * len(gone) + [UnknownTopic]
    assert len([path for path in disk.synced if path.endswith(".log")]) == 2
    assert disk.synced.count(TOPICS) == 1
    assert disk.listdir(TOPICS) == ["kept"]
    again = manager_on(disk.after_power_cut())
    assert list(again.topics) == ["kept"]
    assert offsets_in(read_from(again.get_handler("kept", 0), 0)) == [0]


def test_a_deleted_topic_of_more_partitions_than_are_removed_at_once_is_removed() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 2 * REMOVED_AT_ONCE + 1, DISK)
    manager.get_handler("t", 7)
    manager.delete_topic("t")
    assert disk.listdir(TOPICS) == []


def test_a_partition_that_never_was_open_is_opened_without_a_sync_and_closed_without_one() -> None:
    disk = Syncs()
    manager = manager_on(disk)
    manager.create_topics(wanted("t"))
    disk.synced.clear()
    manager.get_handler("t", 0)
    manager.get_handler("t", 1)
    assert disk.synced == []
    manager.close()
    assert [path for path in disk.synced if path.startswith(TOPICS)] == []
    disk.synced.clear()
    again = manager_on(disk)
    disk.synced.clear()
    again.get_handler("t", 1)
    assert disk.synced == []


def test_what_is_durable_in_a_log_has_a_manifest_that_is() -> None:
    disk = Syncs()
    manager = manager_on(disk)
    manager.create_topics(wanted("t"))
    handler = manager.get_handler("t", 0)
    folder = f"{TOPICS}/t/partition_0"
    append(handler, batch_of(b"a"))
    assert disk.after_power_cut().listdir(folder) == []
    handler.sync()
    image = disk.after_power_cut()
    names = ["t_partition_0.manifest", "t_partition_0_segment_0.log"]
    assert image.listdir(folder) == names
    report = manager_on(image)
    assert offsets_in(read_from(report.get_handler("t", 0), 0))[:1] == [0]
    assert "manifest_rebuilt" not in report.report.counts
    disk.synced.clear()
    append(handler, batch_of(b"b"))
    handler.sync()
    assert disk.synced == [f"{folder}/{names[1]}"]  # once


def test_a_log_start_is_durable_also_where_nothing_of_the_log_was() -> None:
    disk = Syncs()
    manager = manager_on(disk)
    manager.create_topics(wanted("t", config=MEMORY))
    handler = manager.get_handler("t", 0)
    for value in (b"a", b"b", b"c"):
        append(handler, batch_of(value))
    handler.delete_records_before(2)
    again = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert again.log_start_offset == 2


def test_after_a_kill_the_manifest_is_durable_before_anybody_is_served() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topics(wanted("t"))
    append(manager.get_handler("t", 0), batch_of(b"a"))
    killed = disk.after_kill()  # nothing was synced, and all is there
    manager_on(killed).get_handler("t", 0)
    image = killed.after_power_cut()
    assert "t_partition_0.manifest" in image.listdir(f"{TOPICS}/t/partition_0")
    manager = manager_on(image)
    manager.get_handler("t", 0)
    assert "manifest_rebuilt" not in manager.report.counts


def test_records_of_a_deleted_topic_are_its_own_also_without_a_manifest() -> None:
    disk = Syncs()
    manager = manager_on(disk)
    manager.create_topics(wanted("t"))
    append(manager.get_handler("t", 0), batch_of(b"a"))
    before = disk.after_kill()
    before.unlink(f"{TOPICS}/t/partition_0/t_partition_0.manifest")
    manager.delete_topic("t")
    after = disk.after_kill()
    # The metadata of after the deletion, the directories of before it.
    after._root.names["data"].names["topics"] = before._root.names["data"].names["topics"]  # type: ignore[union-attr]
    again = manager_on(after)
    assert [row.what for row in again.report.rows] == ["orphan_removed"]
    assert after.listdir(TOPICS) == []


def test_a_missing_manifest_is_damage_only_in_a_log_that_was_synced() -> None:
    for closes, level in ((False, Level.NOTE), (True, Level.DAMAGE)):
        disk = MemoryStorage()
        manager = manager_on(disk)
        manager.create_topics(wanted("t"))
        append(manager.get_handler("t", 0), batch_of(b"a"))
        if closes:
            manager.close()
        paths = partition_paths("/data", "t", 0)
        disk.unlink(paths.manifest)
        checker = LogChecker(disk, paths, Circumstances(1_000), name=("t", 0))
        found = [one.level for one in checker.check() if one.path == paths.manifest]
        assert found == [level], closes
