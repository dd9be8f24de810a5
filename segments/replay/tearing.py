"""Open transactions that have lost records, marked before anybody may commit them (BOOT_TORN).

| it was last changed or looked at | a partition of it | then |
|---|---|---|
| at any time | is in doubt: a failed sync cost records, in memory as well (ceilings.py) | torn |
| in the boot before this one | has reserved offsets, and not said that all of it is synced | torn |
| in an earlier one | is of a class that acknowledges before the sync | torn |
| else | | it has lost nothing: it is of this boot |

What opens the partition writes the gap, and the reservation then holds for what comes next: so who
is killed behind that, and before the abort, would find nothing that speaks of the loss.  The mark
stands in the row of the transaction, and goes with the abort.  What begins after the start has
nothing that could be lost, also where the partition is opened later.

In the second case the class of the topic may be `fsync` by now, and another one when the records
were acknowledged.  In the third a start of an earlier version came between, which marks nothing,
and may have written the gap.  A row that does not say when it was changed, of a version before
that, is of the boot that was noted last: so all this comes before the present one is noted.
"""

from collections.abc import Iterator
from typing import Final

from ..metadata.metadata import IN_DOUBT, SETTLED, Metadata
from ..metadata.metadata_log import MetadataLog
from ..metadata.transactions import (
    BOOT_TORN,
    BOOT_UNKNOWN,
    SECTION,
    TRANSACTION,
    Transaction,
    open_of,
)
from ..settings.topic_config import Durability

UNSYNCED: Final = (Durability.DISK, Durability.MEMORY)


def mark_torn(metadata: MetadataLog, boot_id: str) -> None:
    """Mark them; durable when this returns.  Before this boot of the machine is noted, and before
    any log is opened.  Raises OSError."""
    state = metadata.state
    rows = list(_looked_at(state, state.with_boot(boot_id).boot))
    if rows:
        events = [{"id": known.transactional_id, "row": known.pack()} for known in rows]
        metadata.record_all(TRANSACTION, events)


def _looked_at(state: Metadata, boot: int) -> Iterator[Transaction]:
    """Those that change.  boot: the present one."""
    doubted: set[tuple[str, int]] = set()
    earlier: set[tuple[str, int]] = set()
    for meta in state.topics.values():
        for partition, ceiling in state.ceilings[meta.topic_id].items():
            if ceiling.boot == IN_DOUBT:
                doubted.add((meta.name, partition))
            elif ceiling.boot not in (SETTLED, boot):
                earlier.add((meta.name, partition))
    of_both = doubted | earlier
    unsynced = {meta.name for meta in state.topics.values() if meta.config.durability in UNSYNCED}
    for known in open_of(state.sections.get(SECTION)):
        if known.boot == BOOT_TORN:
            continue
        changed = state.boot if known.boot == BOOT_UNKNOWN else known.boot
        lost = doubted if changed == boot else of_both
        is_torn = any(
            (topic, one) in lost for topic, some in known.partitions.items() for one in some
        )
        if changed not in (boot, state.boot):
            is_torn = is_torn or not unsynced.isdisjoint(known.partitions)
        now = BOOT_TORN if is_torn else boot
        if now != known.boot:
            yield known._replace(boot=now)
