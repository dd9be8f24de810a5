"""What each durability class can lose, in words, for `topic describe`.

The promises are those of docs/storage.md.  What is lost is worded "at most", and said with what
consumers see in its place.  A class that is not here is printed by its name alone, never with a
promise that is made up.  Where the broker's data is on a file system that keeps less than a disk,
that is said beside the promise.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from segbroker.client import Admin


class Promise(NamedTuple):
    """When a record is acknowledged, and what two kinds of accident may cost of those that were."""

    acknowledged: str
    process_death: str
    power_cut: str
    instead: str
    """What consumers see where something was lost; empty where nothing can be."""


PROMISES: dict[str, Promise] = {
    "fsync": Promise(
        "after it was synced to the disk",
        "nothing",
        "nothing",
        "",
    ),
    "disk": Promise(
        "after it was written to the file, before it was synced",
        "nothing",
        "at most the records not yet synced, those of about the last second",
        "a gap (lost_tail) of at most 1,048,576 offsets; a new leader epoch",
    ),
    "memory": Promise(
        "after it was written to the file; it is synced when its segment is full",
        "nothing is promised; nothing as long as the machine runs on",
        "at most everything since the last full segment",
        "a gap (lost_tail) of at most 1,048,576 offsets; a new leader epoch",
    ),
    "ephemeral": Promise(
        "as soon as it is in memory",
        "everything",
        "everything",
        "an empty log that goes on at most 1,048,576 offsets further; a new leader epoch",
    ),
}


def weakness_of(admin: "Admin") -> str:
    """How what is acknowledged may be lost all the same where the broker has its data; empty: no
    way that is known, or the broker does not say."""
    from segbroker.client.errors import ClusterAuthorizationFailed, UnsupportedByBroker

    with suppress(ClusterAuthorizationFailed, UnsupportedByBroker):
        ground = admin.broker_status().get("file_system") or {}
        if ground.get("weakness"):
            return f"{ground['kind']} at {ground['mount_point']}: {ground['weakness']}"
    return ""


def promise_lines(durability: str, weakness: str) -> list[str]:
    """What the durability class means, in words; weakness: of where the broker has its data."""
    promise = PROMISES.get(durability)
    if promise is None:
        return [f"durability: {durability or 'this broker does not say'}"]
    lines = [
        f"durability: {durability}",
        f"  a record is acknowledged         {promise.acknowledged}",
        f"  lost when the broker is killed   {promise.process_death}",
        f"  lost when the power is cut       {promise.power_cut}",
    ]
    if weakness and durability != "ephemeral":
        lines.append(f"  but the data is on               {weakness}")
    if promise.instead:
        lines += [
            f"  consumers then see               {promise.instead}",
            "  an acknowledged offset           is never given to another record",
        ]
    return lines
