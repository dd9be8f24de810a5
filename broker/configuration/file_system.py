"""Which file system the data directory is on, and what a sync is worth there.

A broker promises what fdatasync promises.  On some file systems that is less than a disk's, and
nobody says so: a volume that was not mounted, a container without one, a mount with an option from
a benchmark.  So the start says it, and whoever asks how the broker is doing hears it, too.

| on | its sync |
|---|---|
| tmpfs, ramfs | does nothing: what is in memory is gone when the machine restarts |
| overlay | reaches the disk, but the layer of a container is removed with the container |
| any, mounted `volatile`, `nobarrier`, `barrier=0` | does nothing, or stops at the drive's cache |
| of a network, or another process (FUSE) | is as good as the server's, or that program's |

Linux only: the table of mounts is that of proc(5), /proc/self/mountinfo.  Where it cannot be read
nothing is known, and nothing is said.
"""

import os
import re
from typing import Final, NamedTuple

MOUNTS: Final = "/proc/self/mountinfo"

_IN_MEMORY: Final = "it is in memory: a power cut, or a restart of the machine, loses everything"
_OF_CONTAINER: Final = "it is the layer of a container: what is in it is removed with the container"
_UNSYNCED: Final = "it is mounted so that a sync may leave data where a power cut loses it"
_OF_OTHERS: Final = "what is acknowledged is as durable as the sync of its server"

_TYPES: Final = {
    "tmpfs": _IN_MEMORY,
    "ramfs": _IN_MEMORY,
    "devtmpfs": _IN_MEMORY,
    "rootfs": _IN_MEMORY,
    "overlay": _OF_CONTAINER,
    "aufs": _OF_CONTAINER,
} | dict.fromkeys(
    ("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "lustre", "afs"),
    _OF_OTHERS,
)
_UNSYNCED_OPTIONS: Final = frozenset({"nobarrier", "barrier=0", "volatile"})
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class FileSystem(NamedTuple):
    """Where the data is."""

    kind: str
    """As mount(8) names it: "ext4"."""
    mount_point: str
    weakness: str | None
    """How acknowledged data may be lost there that a disk would keep, in words; None: no way that
    is known."""


def file_system_of(path: str, mounts: str = MOUNTS) -> FileSystem | None:
    """The file system that a directory is on, links followed; None: unknown.

    Args:
        path: of the directory.
        mounts: the table of mounts; what is mounted later hides what was before it.
    """
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            rows = file.read().splitlines()
    except OSError:
        return None
    path = os.path.realpath(path)
    found: FileSystem | None = None
    for row in rows:
        # 36 35 98:0 /root /mount/point options [optional ...] - type source options of the whole
        of_mount, _, of_whole = row.partition(" - ")
        try:
            _, _, _, _, escaped, options = of_mount.split(" ")[:6]
            kind, _, more = of_whole.split(" ")
        except ValueError:
            continue
        mount_point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), escaped)
        if not f"{path}/".startswith(mount_point.rstrip("/") + "/"):
            continue
        if found is None or len(mount_point) >= len(found.mount_point):
            found = FileSystem(kind, mount_point, _weakness(kind, f"{options},{more}"))
    if found is None:
        return None
    # A name that is not UTF-8 is shown with question marks.
    return found._replace(mount_point=found.mount_point.encode(errors="replace").decode())


def _weakness(kind: str, options: str) -> str | None:
    if not _UNSYNCED_OPTIONS.isdisjoint(options.split(",")):
        return _UNSYNCED
    if kind == "fuse" or kind.startswith("fuse."):
        return _OF_OTHERS
    return _TYPES.get(kind)
