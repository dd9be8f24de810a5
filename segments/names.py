"""Names on disk: which file is what, and which topic names can be a directory.

    <data>/LOCK
    <data>/meta/snapshot-<n>.msgpack
    <data>/topics/<topic>/partition_<N>/<topic>_partition_<N>_segment_<k>.log      batches
                                        <topic>_partition_<N>_segment_<k>.index    blocks
                                        <topic>_partition_<N>.manifest             sealed segments
                                        <topic>_partition_<N>.producers            producer state
                                        quarantine/                                damaged originals
    <data>/topics/.deleted-<uuid>                                                  being removed

A topic name is `[A-Za-z0-9._-]{1,200}` and not `.` or `..`, so no name can leave its directory,
and the longest file name stays under the 255 bytes of common file systems.  Names that begin with
a dot followed by `deleted-` are ours and refused.
"""

import re

from .errors import InvalidTopicName

TOPIC_NAME_SIZE_MAX = 200
DELETED_PREFIX = ".deleted-"
QUARANTINE = "quarantine"

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SEGMENT = re.compile(r"_segment_(0|[1-9][0-9]*)\.log")


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicName unless `name` can be a topic."""
    if not name:
        raise InvalidTopicName(name, "is empty")
    if len(name) > TOPIC_NAME_SIZE_MAX:
        raise InvalidTopicName(name, f"has {len(name)} characters, limit {TOPIC_NAME_SIZE_MAX}")
    if name in (".", ".."):
        raise InvalidTopicName(name, "would be another directory")
    if not _TOPIC_NAME.fullmatch(name):
        raise InvalidTopicName(name, "may hold letters, digits, '.', '_' and '-' only")
    if name.startswith(DELETED_PREFIX):
        raise InvalidTopicName(name, f"names beginning with {DELETED_PREFIX!r} are reserved")


def partition_stem(topic: str, partition: int) -> str:
    """What every file of a partition begins with."""
    return f"{topic}_partition_{partition}"


def partition_folder(root: str, topic: str, partition: int) -> str:
    return f"{root}/topics/{topic}/partition_{partition}"


def segment_number(stem: str, file_name: str) -> int | None:
    """The k of `<stem>_segment_<k>.log`, or None for any other file."""
    if not file_name.startswith(stem):
        return None
    match = _SEGMENT.fullmatch(file_name, len(stem))
    return int(match.group(1)) if match else None


def log_path(prefix: str, segment: int) -> str:
    """`prefix` is folder and stem."""
    return f"{prefix}_segment_{segment}.log"


def index_path(prefix: str, segment: int) -> str:
    return f"{prefix}_segment_{segment}.index"
