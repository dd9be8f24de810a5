"""What recovery found and did: one row per fact, for the log, for SERVER_INFO and for `verify`.

| what | means | records lost |
|---|---|---|
| replayed | frames of the write-ahead log were put into a segment | none |
| not_replayed | frames of a segment that was repaired and damaged again had no place | those |
| wal_damaged | frames of the write-ahead log that had been synced are not valid | see the gaps |
| wal_torn | frames of the last group are: torn by a power cut, or damaged | none, or those |
| not_served | what the WAL holds of a partition could not be put back: it stays there | none yet |
| unknown_topic | records of a topic or partition that the metadata has lost: in `path` | those |
| cut | bytes behind the last whole batch, of a write that nobody was told about | none |
| gap | offsets [from, to) are gone; an empty control batch stands for them | those |
| repaired | a segment was written anew from what is whole in it | see its gaps |
| quarantined | damaged bytes were kept aside; `path` is where | - |
| index_rebuilt | an index was missing or wrong and was made again | none |
| manifest_rebuilt | a manifest was missing or wrong and was made again from the segments | none |
| cleaning_finished | a cleaned segment, decided on before a crash, has its name now | none |
| orphan_removed | a directory or file that belongs to nothing was removed | none |
| readonly | the partition takes no writes until an operator repairs (on.corruption) | - |
| refused | the partition was not opened (on.corruption) | - |

Rows are kept up to ROWS_MAX and counted beyond; a loss is logged when it is added, so nothing is
silent whoever opens the log.  A fact that is found again is told once: a partition whose disk is
full is tried anew every few seconds, and would push the others out.  Thread-safe.
"""

import threading
from collections import Counter
from typing import Final, NamedTuple

import structlog

log = structlog.get_logger()

ROWS_MAX: Final = 10_000

LOST_TAIL: Final = "lost_tail"
"""The reason of a gap whose offsets were reserved, of which at most all were used."""
WHAT_TO_DO: Final = {
    LOST_TAIL: "at most these were lost (power, or a failed sync); durability=fsync loses none",
    "gap": "consumers get a gap; check the disk, and whether an older copy was put back",
    "quarantined": "keep the copy until nobody needs it, then delete it",
    "wal_damaged": "what was acknowledged shortly before the stop may be lost; check the disk",
    "wal_torn": "a power cut while they were written explains it; without one, check the disk",
    "not_served": "check the disk; it is tried again every few seconds",
    "unknown_topic": "nothing is served of it; `segbroker dump` reads the batches that were kept",
    "readonly": "check the disk, then: segbroker verify --repair, or on.corruption=gap",
    "refused": "check the disk, then: segbroker verify --repair, or on.corruption=gap",
}
"""By reason or by `what`: the advice that is logged with a loss."""


class ReportRow(NamedTuple):
    """One fact.  Offsets are [from_offset, to_offset); -1 where there are none."""

    what: str
    path: str
    topic: str = ""
    partition: int = -1
    from_offset: int = -1
    to_offset: int = -1
    bytes: int = 0
    reason: str = ""

    def as_map(self) -> dict[str, object]:
        """The row for JSON and msgpack, without what does not apply."""
        row: dict[str, object] = {"what": self.what, "path": self.path}
        if self.topic:
            row |= {"topic": self.topic, "partition": self.partition}
        if self.from_offset >= 0:
            row |= {"from": self.from_offset, "to": self.to_offset}
        if self.bytes:
            row["bytes"] = self.bytes
        if self.reason:
            row["reason"] = self.reason
        return row


class RecoveryReport:
    """The rows of one opening, or of everything that a manager has opened so far."""

    def __init__(self) -> None:
        self.rows: list[ReportRow] = []
        self.counts: Counter[str] = Counter()
        self.offsets_lost = 0
        self.offsets_lost_at_most = 0
        """Of these, what the ends of logs may have lost: offsets that were reserved, and used or
        not, nobody knows."""
        self._told: set[ReportRow] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return sum(self.counts.values())

    def add(self, row: ReportRow) -> None:
        """Keep a row, unless it was there before; a loss is logged.  In any thread."""
        with self._lock:
            if row in self._told:
                return
            self.counts[row.what] += 1
            if row.what == "gap":
                self.offsets_lost += row.to_offset - row.from_offset
                if row.reason == LOST_TAIL:
                    self.offsets_lost_at_most += row.to_offset - row.from_offset
            if len(self.rows) < ROWS_MAX:
                self.rows.append(row)
                self._told.add(row)
        if row.what in WHAT_TO_DO:
            advice = WHAT_TO_DO.get(row.reason, WHAT_TO_DO[row.what])
            log.error(f"recovery_{row.what}", **_fields(row), advice=advice)
        else:
            log.info(f"recovery_{row.what}", **_fields(row))

    def summary(self) -> dict[str, int]:
        """How many rows of each kind, and how many offsets are in gaps, and in lost tails."""
        return {
            **self.counts,
            "offsets_lost": self.offsets_lost,
            "offsets_lost_at_most": self.offsets_lost_at_most,
        }


def _fields(row: ReportRow) -> dict[str, object]:
    return {key: value for key, value in row.as_map().items() if key != "what"}


class LogReport:
    """The report as one log's recovery writes to it: topic and partition are filled in."""

    __slots__ = ("_report", "partition", "topic")

    def __init__(
        self, report: RecoveryReport | None = None, topic: str = "", partition: int = -1
    ) -> None:
        self._report = report if report is not None else RecoveryReport()
        self.topic = topic
        self.partition = partition

    def add(
        self,
        what: str,
        path: str,
        from_offset: int = -1,
        to_offset: int = -1,
        *,
        size: int = 0,
        reason: str = "",
    ) -> None:
        """Add a row of this log.  size: bytes that the row speaks of."""
        self._report.add(
            ReportRow(what, path, self.topic, self.partition, from_offset, to_offset, size, reason)
        )
