"""What an offline check has to say: one finding per fact, in sentences for a person.

| level | means | exit code |
|---|---|---|
| note | a crash, an interrupted deletion or an earlier repair explains it; no record is lost | 0 |
| damage | bytes are not what was written, files are not where they were, or cannot be read | 8 |
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple, TypeAlias

from ..disk.storage import NO_DESCRIPTORS, Storage


class Level(Enum):
    """How bad it is."""

    NOTE = "note"
    DAMAGE = "damage"


class Finding(NamedTuple):
    """One fact.  Offsets [from_offset, to_offset) are those that are lost by it; -1: none."""

    level: Level
    path: str
    text: str
    """What is wrong."""
    action: str
    """What a start of the broker does about it."""
    topic: str = ""
    partition: int = -1
    from_offset: int = -1
    to_offset: int = -1

    @property
    def is_damage(self) -> bool:
        return self.level is Level.DAMAGE

    def as_map(self) -> dict[str, object]:
        """The finding for JSON, without what does not apply."""
        row: dict[str, object] = {"level": self.level.value, "path": self.path, "text": self.text}
        row["action"] = self.action
        if self.topic:
            row |= {"topic": self.topic, "partition": self.partition}
        if self.from_offset >= 0:
            row |= {"from": self.from_offset, "to": self.to_offset}
        return row


Progress: TypeAlias = Callable[[int], object]
"""Called with the bytes of each file that was checked."""


def note(path: str, text: str, action: str) -> Finding:
    """A finding that needs nobody."""
    return Finding(Level.NOTE, path, text, action)


def damage(path: str, text: str, action: str) -> Finding:
    """A finding that somebody should look at."""
    return Finding(Level.DAMAGE, path, text, action)


def unreadable(exc: OSError, path: str, action: str) -> Finding:
    """What the disk does not give; what else there is, is checked all the same.

    path: where the error names no file.  Raises it again where it says nothing of the disk: we are
    not allowed to, or have no descriptor left.
    """
    if isinstance(exc, PermissionError) or exc.errno in NO_DESCRIPTORS:
        raise exc
    named = exc.filename if isinstance(exc.filename, str) else path
    return damage(named, f"it cannot be read: {exc.strerror or exc}", action)


def no_files(storage: Storage, paths: Iterable[str], action: str) -> Iterator[Finding]:
    """Directories among these, each of which has to be a file, if it is there."""
    for path in paths:
        try:
            storage.listdir(path)
        except OSError:
            continue
        yield damage(path, "a directory is in the place of a file", action)
