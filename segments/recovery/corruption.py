"""What becomes of a partition whose bytes are damaged: the topic's on.corruption.

| on.corruption | found while opening | found by a read or the scrub |
|---|---|---|
| gap | repaired, gap; served and written | the same |
| readonly | repaired, gap; served, nothing is written | the same, from then on |
| refuse | not opened, nothing is changed | not served from then on, nothing is changed |

`readonly` and `refuse` hold until an operator has looked, also over a restart: a file beside the
log, `<log>.damaged`, says why.  It is written before anything is repaired.  `segbroker verify
--repair` removes it, and so does setting on.corruption=gap, whether the log is open or not.

A lost tail of class disk is not damage: a power cut explains it.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import structlog

from ..disk.storage import Buffer, Storage, read_file
from ..errors import PartitionRefused
from ..files.unsynced import replace_or_mark, sync_names_or_mark
from ..names import LogPaths
from ..settings.topic_config import OnCorruption

log = structlog.get_logger()

REASON_SIZE_MAX = 4096

Replace: TypeAlias = Callable[[str, Buffer], None]


def read_mark(storage: Storage, paths: LogPaths) -> str:
    """Why an operator has to look at this log first; empty without a reason."""
    try:
        found = bytes(read_file(storage, paths.damaged)[:REASON_SIZE_MAX])
    except FileNotFoundError:
        return ""
    return found.decode(errors="replace").strip() or "damage was found"


def write_mark(storage: Storage, paths: LogPaths, reason: str, replace: Replace) -> None:
    """Remember the reason over a restart; the first one stays.

    replace: puts a file in the place of another, durably.  Raises OSError: then it is not there, or
    the next one would take for durable what is in doubt.
    """
    if storage.exists(paths.damaged):
        return
    try:
        replace(paths.damaged, reason.encode()[:REASON_SIZE_MAX] + b"\n")
    except OSError:
        with suppress(OSError):
            storage.unlink(paths.damaged)
        raise


def remove_mark(storage: Storage, paths: LogPaths) -> None:
    """An operator has looked at a log that is not open; durable at return.  Raises OSError."""
    if storage.exists(paths.damaged):
        storage.unlink(paths.damaged)
        sync_names_or_mark(storage, paths)


def drop_mark(storage: Storage, paths: LogPaths) -> None:
    """The same, where on.corruption=gap says so, of any log.  Where it fails, or comes back behind
    a power cut, the next opening does it, as long as the setting stays.

    Not synced: names of an open log may wait for the same sync, and if it failed nobody would tell
    the log.
    """
    try:
        if storage.exists(paths.damaged):
            storage.unlink(paths.damaged)
    except OSError as exc:
        log.warning("damage_still_marked", path=paths.damaged, error=str(exc))


def check_opening(
    storage: Storage,
    paths: LogPaths,
    policy: OnCorruption,
    damage: str,
    name: tuple[str, int],
) -> str:
    """What the policy says to damage found while opening, or earlier.

    damage: what was found now; empty for none.  name: topic and partition, for the error.
    Returns why nothing may be written, empty when it may.  Raises PartitionRefused, OSError.
    """
    if policy is OnCorruption.GAP:
        drop_mark(storage, paths)
        return ""
    reason = read_mark(storage, paths) or damage
    if not reason:
        return ""
    if policy is OnCorruption.REFUSE:
        raise PartitionRefused(*name, reason)
    write_mark(storage, paths, reason, partial(replace_or_mark, storage, paths))
    return reason
