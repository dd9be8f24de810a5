"""Rules of transactions and producers, each undone: what the cases of a failing disk have to find.

`python -m tests.soak.failing_transactions --undone` counts how many cases that takes.  As with
the planted bugs of segments/, nothing of the broker may be imported before one is undone.
"""

from typing import Final

from ..segments.planted.planting import Bug

HARNESS: Final = "failing_transactions"
CASES_MAX: Final = 300

UNDONE: Final = (
    Bug(
        "behind a failure the files alone say what is open",
        "failing",
        "            _know(opened, old, is_all_there=is_all_there)\n",
        "",
        HARNESS,
    ),
    Bug(
        "where the end is lost the files alone say what is open",
        "failing",
        "    else:\n        replay_behind(opened, old)",
        "",
        HARNESS,
    ),
    Bug(
        "the next transaction takes the place of one aborted behind damage",
        "producer_replay",
        "    still = {one: first_offset for one, first_offset in rows if first_offset < begin}",
        "    still = {o: at for o, at in dict(rows).items() if at < begin}",
        HARNESS,
    ),
    Bug(
        "behind a failure nothing is open that was before",
        "producer_replay",
        "    rows = (*since, *first.opened_before.items())",
        "    rows = (*since,)",
        HARNESS,
    ),
    Bug(
        "where the end is lost the files alone say what producers sent",
        "producer_replay",
        "    below = before.below(begin, found)",
        "    below = {}",
        HARNESS,
    ),
    Bug(
        "where the end is lost the files alone say who was fenced",
        "producer_replay",
        " | recalled | before.fenced(begin, found)",
        " | recalled",
        HARNESS,
    ),
    Bug(
        "what a failed sync has lost counts as sent",
        "producers",
        "            batches = tuple(one for one in known.batches if one.base_offset < begin)",
        "            batches = known.batches",
        HARNESS,
    ),
    Bug(
        "readers of committed records stop at the high watermark alone",
        "partition_view",
        "        first_offset = opened.producers.transactions.first_open_offset\n",
        "        first_offset = self.high_watermark\n",
        HARNESS,
    ),
    Bug(
        "the first open transaction stays the first",
        "transaction_index",
        "        if first_offset == self.first_open_offset:",
        "        if False:",
        HARNESS,
    ),
    Bug(
        "what is aborted begins with its marker",
        "transaction_index",
        "Aborted(producer_id, first_offset, marker_offset)",
        "Aborted(producer_id, marker_offset, marker_offset)",
        HARNESS,
    ),
    Bug(
        "what reaches over the start of the log is forgotten",
        "transaction_index",
        "        count = bisect_left(self._rows.lasts, log_start_offset)",
        "        count = sum(row.first_offset < log_start_offset for row in self.aborted)",
        HARNESS,
    ),
    Bug(
        "what was aborted in front of a read is not sent with it",
        "transaction_index",
        "for row in self.rows[place:until] if row.first_offset < end]",
        "for row in self.rows[place:until] if begin <= row.first_offset < end]",
        HARNESS,
    ),
    Bug(
        "a reader of committed records is sent what is open",
        "broker.partitions.isolation",
        "up_to=visible_end(handler, isolation_level))",
        "up_to=handler.high_watermark)",
        HARNESS,
    ),
    Bug(
        "what was aborted is not saved",
        "producers",
        "        opened, aborted = self.transactions.open, self.transactions.aborted",
        "        opened, aborted = self.transactions.open, []",
        HARNESS,
    ),
    Bug(
        "what is open is not saved",
        "producers",
        "            first_offset = opened.get(producer_id, -1)",
        "            first_offset = -1",
        HARNESS,
    ),
    Bug(
        "a start does not replay producers",
        "opening",
        "        replay_producers(opened)\n",
        "",
        HARNESS,
    ),
    Bug(
        "of a producer the last batch alone is known",
        "producers",
        "        for batch in reversed(known.batches):",
        "        for batch in known.batches[-1:]:",
        HARNESS,
    ),
    Bug(
        "an older epoch is heard",
        "producers",
        "        if epoch < known.epoch:",
        "        if False:",
        HARNESS,
    ),
    Bug(
        "a marker leaves the epoch as it is",
        "producers",
        "        if known is None or known.epoch != header.producer_epoch:\n            resumes",
        "        if known is None:\n            resumes",
        HARNESS,
    ),
    Bug(
        "an epoch keeps the batches of the one before",
        "producers",
        "        if known.epoch == header.producer_epoch and known.batches:",
        "        if known.batches:",
        HARNESS,
    ),
    Bug(
        "a cleaning goes beyond what is stable",
        "compacting",
        "        return Limits(self._owner.last_stable_offset, ",
        "        return Limits(self._owner.high_watermark, ",
        HARNESS,
    ),
    Bug(
        "a cleaning takes what was aborted for what stands",
        "survivors",
        "        return place < len(rows) and rows[place].first_offset <= header.base_offset",
        "        return False",
        HARNESS,
    ),
)
