"""Directories under topics/ that belong to no topic, or to no partition of one.

| found | it is | what is done |
|---|---|---|
| `~<id>` | a deleted topic on its way out | removed, soon (topic_registry.py) |
| no topic of that name, no records | a topic whose creation was not finished | removed |
| ..., records of an epoch that was deleted | a deletion that was not finished | removed |
| ..., records of another epoch | a topic that the metadata has lost | put aside in quarantine/ |
| a partition beyond the count, no records | growth that was not finished | removed |
| ..., with records | growth that the metadata has lost | put aside |
| ..., with files that no log of that name has | a copy of another topic, a backup | put aside |
| a file | somebody's, too | left alone |
| a directory that the disk does not give | a topic's, if one is called so | it is not served |

A directory is put aside only after damage, when events of the write-ahead log are gone.  What looks
like an orphan then is somebody's data, and only a person can say whose.
"""

import errno
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import structlog

from ..decisions import base_header
from ..disk.storage import (
    NO_DESCRIPTORS,
    Storage,
    make_own_dirs,
    read_file,
    remove_tree,
    set_aside,
    size_of,
)
from ..metadata.metadata import Metadata
from ..names import LogPaths, file_stem, partition_paths
from ..recovery.known import read_known
from ..settings.topic_config import Durability

log = structlog.get_logger()

Missing: TypeAlias = dict[tuple[str, int], OSError | None]
"""Topic and partition, and why nobody could look; None: it has no directory."""


class Orphan(NamedTuple):
    """A directory that nothing owns.  `has_records`: nobody deleted what is in it; records, or what
    is no file of a log under this name."""

    path: str
    topic: str
    partition: int
    has_records: bool

    @property
    def links(self) -> int:
        """How far below it a link to a directory is one of a topic: to its partitions."""
        return int(self.partition < 0 and self.path.endswith(f"/{self.topic}"))


def find_orphans(
    storage: Storage, root: str, state: Metadata, missing: Missing
) -> Iterator[Orphan]:
    """What lies under topics/ and is not known; into `missing` go the partitions that are known and
    have no directory that can be read: all of them when the last orphan was told.  Raises OSError.
    """
    topics = f"{root}/topics"
    not_seen = {
        name: meta
        for name, meta in state.topics.items()
        if meta.config.durability is not Durability.EPHEMERAL
    }
    for name in storage.listdir(topics):
        path = f"{topics}/{name}"
        meta = state.topics.get(name)
        try:
            folders = storage.listdir(path)
        except NotADirectoryError:
            continue
        except OSError as exc:  # one topic that the disk does not give keeps no other from a start
            if isinstance(exc, PermissionError) or exc.errno in NO_DESCRIPTORS:
                raise
            log.error("topic_directory_not_read", path=path, error=str(exc))
            if not_seen.pop(name, None) is not None and meta is not None:
                missing.update(((name, n), exc) for n in range(meta.partitions))
            continue
        if name.startswith("~"):
            yield Orphan(path, name, -1, has_records=False)
        elif meta is None or meta.config.durability is Durability.EPHEMERAL:
            logs = list(_partitions(root, name, folders))
            deleted = state.deleted_epoch(name)
            others = {folder for folder in folders if not folder.startswith("~")}
            others -= {paths.folder.rpartition("/")[2] for _, paths in logs}
            kept = any(_has_records(storage, paths, deleted) for _, paths in logs)
            yield Orphan(path, name, -1, kept or bool(others))
        else:
            del not_seen[name]
            there = set(folders)
            missing.update(
                ((name, n), None) for n in range(meta.partitions) if f"partition_{n}" not in there
            )
            for folder in folders:
                if folder.startswith("~"):
                    yield Orphan(f"{path}/{folder}", name, -1, has_records=False)
            for number, paths in _partitions(root, name, folders):
                if number >= meta.partitions:
                    yield Orphan(paths.folder, name, number, _has_records(storage, paths, -1))
    for name, meta in not_seen.items():
        missing.update(((name, n), None) for n in range(meta.partitions))


def remove_orphan(storage: Storage, orphan: Orphan, mark: str) -> None:
    """Out of the way first, durably, then removed.  Raises OSError."""
    folder = orphan.path.rpartition("/")[0]
    grave = f"{folder}/~{mark}"
    if move_to_grave(storage, orphan.path, grave, links=orphan.links):
        storage.fsync_dir(folder)
        remove_tree(storage, grave, links=orphan.links)


def move_to_grave(storage: Storage, path: str, grave: str, *, links: int) -> bool:
    """Rename the directory of a deleted topic.  False: it cannot be renamed, as what the lower
    layer of an overlay has, and was removed where it was.  Raises OSError, EBUSY where something is
    mounted: what was in it is gone.

    links: as of `remove_tree`.
    """
    try:
        storage.rename(path, grave)
    except OSError as exc:
        if exc.errno not in (errno.EXDEV, errno.EBUSY):
            raise
        remove_tree(storage, path, links=links)
        return False
    return True


def put_aside(storage: Storage, root: str, orphan: Orphan, mark: str) -> str:
    """Move it to quarantine/, durably; where it is then.  Raises OSError."""
    folder = f"{root}/quarantine"
    suffix = "" if orphan.partition < 0 else f"-{orphan.partition}"
    target = f"{folder}/{file_stem(orphan.topic)}{suffix}~{mark}"
    make_own_dirs(storage, folder)
    try:
        set_aside(storage, orphan.path, target)
    except OSError as exc:
        if exc.errno != errno.EXDEV:
            raise
        _move_piecewise(storage, orphan.path, target)
    storage.fsync_dir(orphan.path.rpartition("/")[0])
    return target


def _move_piecewise(storage: Storage, path: str, target: str) -> None:
    """Move a directory that cannot be renamed, of an overlay's lower layer, file by file; durably
    there.  Raises OSError: what has not been moved yet is an orphan like before."""
    storage.mkdir(target)
    storage.fsync_dir(target.rpartition("/")[0])
    for name in storage.listdir(path):
        try:
            storage.listdir(f"{path}/{name}")
        except NotADirectoryError:
            storage.rename(f"{path}/{name}", f"{target}/{name}")
        else:
            _move_piecewise(storage, f"{path}/{name}", f"{target}/{name}")
    storage.fsync_dir(target)
    storage.rmdir(path)


def keep_put_aside(storage: Storage, root: str) -> None:
    """Before topics/ is synced: who was killed in `put_aside` has not synced what he moved.  Raises
    OSError."""
    if storage.exists(folder := f"{root}/quarantine"):
        storage.fsync_dir(folder)


def _partitions(root: str, topic: str, folders: list[str]) -> Iterator[tuple[int, LogPaths]]:
    for folder in folders:
        number = folder.removeprefix("partition_")
        if number.isdecimal() and folder == f"partition_{int(number)}":
            yield int(number), partition_paths(root, topic, int(number))


def _has_records(storage: Storage, paths: LogPaths, deleted_epoch: int) -> bool:
    """Whether there are records that no deletion spoke of: above its leader epoch; or files that
    are none of this log's."""
    try:
        names = storage.listdir(paths.folder)
    except NotADirectoryError:
        return True
    if not all(map(paths.is_own, names)):
        return True
    numbers = [paths.segment_number(name) for name in names]
    written = [
        n for n in sorted(n for n in numbers if n is not None) if size_of(storage, paths.log(n))
    ]
    if not written:
        return False
    known = read_known(storage, paths)
    if known is not None and known.epochs:
        return known.epochs[0][0] > deleted_epoch
    # A log that was never synced may have lost its manifest.
    first = base_header(memoryview(read_file(storage, paths.log(written[0]))))
    return first is None or first.leader_epoch > deleted_epoch
