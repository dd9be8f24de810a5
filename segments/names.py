"""Names on disk: which a topic may have, and what its files are called.

    topics/<topic>/partition_<N>/<topic>_partition_<N>_segment_<k>.log
                                 <topic>_partition_<N>_segment_<k>.index
                                 <topic>_partition_<N>.manifest
                                 <topic>_partition_<N>.producers
                                 <topic>_partition_<N>.damaged
                                 <topic>_partition_<N>.unsynced
                                 <topic>_partition_<N>_segment_<k>.cleaned
                                 quarantine/

N and k are decimal without leading zeros and are ordered as numbers.  A topic name is 1 to 249 of
[A-Za-z0-9._-], not `.` or `..`, as in Kafka: it cannot leave its directory.  A file name has to
stay under the 255 bytes of a directory entry, so those of a topic with a longer name than 200 begin
with a short form of it (`file_stem`).  Names that begin with `~` are the manager's own (topics on
their way out), so no topic can be called so.
"""

import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from segbroker.protocol.checksums import xxh3_64
from segbroker.protocol.limits import TOPIC_NAME_SIZE_MAX

from .disk.storage import TEMPORARY
from .errors import InvalidTopicName

STEM_SIZE_MAX: Final = 200
"""Bytes of a topic's name in the names of its files."""
_ALLOWED = re.compile(r"[A-Za-z0-9._-]+")
_SEGMENT = re.compile(r"_segment_(0|[1-9][0-9]{0,18})\.(log|index|cleaned)")


def is_topic_name(name: str) -> bool:
    """Whether a topic may have this name."""
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True


def check_topic_name(name: str) -> None:
    """Raises InvalidTopicName for a name that could not be a directory of its own."""
    if not name:
        raise InvalidTopicName(name, "is empty")
    if name in (".", ".."):
        raise InvalidTopicName(name, "is a directory of the file system")
    if not _ALLOWED.fullmatch(name):
        raise InvalidTopicName(name, "has characters other than A-Z a-z 0-9 . _ -")
    if len(name) > TOPIC_NAME_SIZE_MAX:
        raise InvalidTopicName(name, f"has {len(name)} characters, limit {TOPIC_NAME_SIZE_MAX}")


def wal_owner_of(cluster_id: str) -> int:
    """What stands for a data directory in the files of its write-ahead log: 16 bits, never 0."""
    return xxh3_64(cluster_id.encode()) & 0xFFFF or 1


def file_stem(topic: str) -> str:
    """What the file names of a topic begin with: its name, of one of more than 200 characters the
    first 183, `~` and XXH3-64 of the whole as 16 hexadecimal digits."""
    if len(topic) <= STEM_SIZE_MAX:
        return topic
    return f"{topic[: STEM_SIZE_MAX - 17]}~{xxh3_64(topic.encode()):016x}"


@dataclass(frozen=True, slots=True)
class LogPaths:
    """The paths of one log: `folder` and the part that all its file names begin with.

    owner: whose log it is, for its manifest (`owner_of`); 0: nobody says.
    """

    folder: str
    prefix: str
    owner: int = 0

    def log(self, number: int) -> str:
        return f"{self.folder}/{self.prefix}_segment_{number}.log"

    def index(self, number: int) -> str:
        return f"{self.folder}/{self.prefix}_segment_{number}.index"

    def cleaned(self, number: int) -> str:
        """A segment written anew that has not its name yet (swapping.py)."""
        return f"{self.folder}/{self.prefix}_segment_{number}.cleaned"

    @property
    def manifest(self) -> str:
        return f"{self.folder}/{self.prefix}.manifest"

    @property
    def start(self) -> str:
        """The second copy of the log start (deleting.py)."""
        return f"{self.folder}/{self.prefix}.start"

    @property
    def producers(self) -> str:
        return f"{self.folder}/{self.prefix}.producers"

    @property
    def damaged(self) -> str:
        """Why nothing is written, or served, until an operator has looked (on.corruption)."""
        return f"{self.folder}/{self.prefix}.damaged"

    @property
    def unsynced(self) -> str:
        """That a sync of the log has failed, and where the log ended (unsynced.py)."""
        return f"{self.folder}/{self.prefix}.unsynced"

    @property
    def quarantine(self) -> str:
        return f"{self.folder}/quarantine"

    @property
    def replaced(self) -> tuple[str, ...]:
        """What is put in the place of another as a whole, beside what belongs to a segment."""
        return self.manifest, self.start, self.producers, self.damaged

    def is_temporary(self, name: str) -> bool:
        """Whether this is what a crash has left of a replacement of one of the log's files."""
        own = name.removesuffix(TEMPORARY)
        is_replaced = f"{self.folder}/{own}" in self.replaced or self._match(own) is not None
        return own != name and is_replaced

    def is_own(self, name: str) -> bool:
        """Whether a log writes files of this name."""
        is_one = f"{self.folder}/{name}" in (*self.replaced, self.unsynced, self.quarantine)
        return is_one or self._match(name) is not None or self.is_temporary(name)

    def segment_number(self, name: str) -> int | None:
        """The k of a segment's log file; None for any other name."""
        return self._number(name, "log")

    def index_number(self, name: str) -> int | None:
        """The k of a segment's index file; None for any other name."""
        return self._number(name, "index")

    def cleaned_number(self, name: str) -> int | None:
        """The k of a segment written anew; None for any other name."""
        return self._number(name, "cleaned")

    def _number(self, name: str, kind: str) -> int | None:
        match = self._match(name)
        return int(match[1]) if match and match[2] == kind else None

    def _match(self, name: str) -> re.Match[str] | None:
        """Of a file of a segment: its number, and which it is."""
        # Never by looking for ".log" or ".index" anywhere: a topic may have that in its name.
        is_own = name.startswith(self.prefix)
        return _SEGMENT.fullmatch(name, len(self.prefix)) if is_own else None


def owner_of(topic_id: UUID, partition: int) -> int:
    """64 bits that no other partition of any topic has, also of one of the same name; never 0."""
    return xxh3_64(topic_id.bytes + partition.to_bytes(4, "big")) or 1


def owner_tag(owner: int) -> int:
    """The same in 16 bits, for a file with no room for more; 0: nobody says."""
    return (owner & 0xFFFF or 1) if owner else 0


def partition_paths(root: str, topic: str, partition: int, owner: int = 0) -> LogPaths:
    """Where a topic's partition lies under the data directory `root`.

    owner: `owner_of` it, for who may write its manifest.
    """
    folder = f"{root}/topics/{topic}/partition_{partition}"
    return LogPaths(folder, f"{file_stem(topic)}_partition_{partition}", owner)
