"""What each durability class can lose, in words, for `topic describe`.

The table of promises is docs/formats.md's neighbour in the design: acknowledged after what, lost by
what.  A class that is not here is printed by its name alone, never with a promise that is made up.
"""

from typing import NamedTuple


class Promise(NamedTuple):
    """When a record is acknowledged, and what two kinds of accident may cost of those that were."""

    acknowledged: str
    process_death: str
    power_cut: str


PROMISES: dict[str, Promise] = {
    "fsync": Promise(
        "after it was synced to the disk",
        "nothing",
        "nothing",
    ),
    "disk": Promise(
        "after it was written to the file, before it was synced",
        "nothing",
        "the records of about the last second, those not yet synced",
    ),
    "memory": Promise(
        "after it was written to the file; nothing is synced on purpose",
        "nothing is promised",
        "nothing is promised",
    ),
    "ephemeral": Promise(
        "as soon as it is in memory",
        "everything",
        "everything",
    ),
}
