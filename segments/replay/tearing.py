"""Open transactions that have lost records, marked before anybody may commit them (BOOT_TORN).

| a partition of it | and it was last changed | then |
|---|---|---|
| is in doubt: a failed sync cost records, and memory has lost them, too (ceilings.py) | | torn |
| has reserved offsets in another boot | in another boot | torn |
| any other | | as it is |

What opens the partition writes the gap, and the reservation then holds for what comes next: so who
is killed behind that, and before the abort, would find nothing that speaks of the loss.  The mark
stands in the row of the transaction, and goes with the abort.  What begins after the start has
nothing that could be lost, also where the partition is opened later.

In the second case the class of the topic may be `fsync` by now, and another one when the records
were acknowledged.
"""

from collections.abc import Iterable

from ..metadata.metadata import IN_DOUBT, SETTLED, Metadata
from ..metadata.metadata_log import MetadataLog
from ..metadata.transactions import (
    BOOT_TORN,
    BOOT_UNKNOWN,
    SECTION,
    TRANSACTION,
    State,
    Transaction,
    transactions_of,
)


def mark_torn(metadata: MetadataLog) -> None:
    """Mark them; durable when this returns.  After the boot of the machine was noted, and before
    any log is opened.  Raises OSError."""
    rows = [known._replace(boot=BOOT_TORN) for known in _torn(metadata.state)]
    if rows:
        events = [{"id": known.transactional_id, "row": known.pack()} for known in rows]
        metadata.record_all(TRANSACTION, events)


def _torn(state: Metadata) -> Iterable[Transaction]:
    doubted: set[tuple[str, int]] = set()
    earlier: set[tuple[str, int]] = set()
    for meta in state.topics.values():
        for partition, ceiling in state.ceilings[meta.topic_id].items():
            if ceiling.boot == IN_DOUBT:
                doubted.add((meta.name, partition))
            elif ceiling.boot not in (SETTLED, state.boot):
                earlier.add((meta.name, partition))
    if not (doubted or earlier):
        return
    of_both = doubted | earlier
    for known in transactions_of(state.sections.get(SECTION)):
        if known.state is not State.ONGOING or known.boot == BOOT_TORN:
            continue
        lost = doubted if known.boot in (BOOT_UNKNOWN, state.boot) else of_both
        if any((topic, one) in lost for topic, some in known.partitions.items() for one in some):
            yield known
