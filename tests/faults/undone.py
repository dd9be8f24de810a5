"""Mends of what becomes of files under a broker, each undone again: what the cases have to find.

`python -m tests.soak.running_damage --undone` counts how many cases that takes.  As with
the planted bugs of segments/, nothing of the broker may be imported before one is undone.
"""

from typing import Final

from ..segments.planted.planting import Bug

HARNESS: Final = "running_damage"
CASES_MAX: Final = 300

UNDONE: Final = (
    Bug(
        "what was overwritten behind a full disk is taken for torn",
        "failing",
        "(salvage if in_doubt else check_promised)(old, promised)",
        "salvage(old, promised) if in_doubt else True",
        HARNESS,
    ),
    Bug(
        "of a directory that was removed nothing is told",
        "replaying",
        "    if not present and first.base_offset and not first.position:",
        "    if False:",
        HARNESS,
    ),
    Bug(
        "a longer file is taken for its own",
        "segment",
        "if size < self.size or (size > self.size and not self.is_half_written):",
        "if size < self.size:",
        HARNESS,
    ),
    Bug(
        "a file that is opened again may be shorter",
        "segment",
        "if size < self.size or (size > self.size and not self.is_half_written):",
        "if size > self.size and not self.is_half_written:",
        HARNESS,
    ),
    Bug(
        "nobody looks for a file that is not open",
        "segment",
        "        if not size:\n            return True",
        "        if True:\n            return True",
        HARNESS,
    ),
    Bug(
        "a longer file is in its place",
        "segment",
        "            return found == size\n",
        "            return found == size\n        return True\n",
        HARNESS,
    ),
    Bug(
        "a longer file is in the place of one that is open",
        "partition_log",
        "                away = self._overwritten()\n",
        "                away = None\n",
        HARNESS,
    ),
    Bug(
        "what an opening has found is said with the next group",
        "opened_partitions",
        "            handler.say_end()\n",
        "            pass\n",
        HARNESS,
    ),
    Bug(
        "a stop trusts the files of a log that failed",
        "failing",
        "                elif not opened.is_closed:\n                    check_promised(",
        "                elif False:\n                    check_promised(",
        HARNESS,
    ),
    Bug(
        "a stop lets frames go though something is in doubt",
        "manager",
        "not (handler.has_unsynced or handler.is_in_doubt)",
        "not handler.has_unsynced",
        HARNESS,
    ),
    Bug(
        "no look at the files of a log that failed",
        "partition_log",
        "            if self.sync_failed or self.is_over:\n",
        "            if self.failed is not None or self.is_over:\n",
        HARNESS,
    ),
    Bug(
        "a segment with the next one in its place begins another log",
        "ownership",
        "    if following == sealed.end_of(place):",
        "    if False:",
        HARNESS,
    ),
    Bug(
        "a segment that was cut is of another log",
        "ownership",
        "    return following == found.next_offset  # one",
        "    return True  # one",
        HARNESS,
    ),
    Bug(
        "frames of what is sealed and was cut are void behind a failure",
        "failing",
        "        self._save_sealed(old)\n",
        "",
        HARNESS,
    ),
    Bug(
        "a checkpoint lets the frames of a segment go that is away",
        "handler",
        "        self._vouch(opened, end_offset)\n        return self._mend_missing()",
        "        self._vouch(opened, end_offset)\n        return True",
        HARNESS,
    ),
    Bug(
        "a checkpoint looks at what it syncs alone",
        "handler",
        "            end_offset = opened.sync()\n            opened.look()",
        "            end_offset = opened.sync()",
        HARNESS,
    ),
    Bug(
        "a segment that was cut when it was sealed is whole",
        "mending_partition",
        "        if size_now(opened.storage, opened.paths.log(row.number), row.size) != row.size",
        "        if not opened.storage.exists(opened.paths.log(row.number))",
        HARNESS,
    ),
    Bug(
        "what is written anew is read by the path",
        "salvaging",
        "    if segment.file is None:\n",
        "    if True:\n",
        HARNESS,
    ),
    Bug(
        "a sync does not look where the file is",
        "partition_log",
        "                        if not file.is_in_place(size):",
        "                        if False:",
        HARNESS,
    ),
    Bug(
        "the upkeep does not look for files",
        "handler",
        "            opened.look(waits=False)\n            if roll_what_is_old",
        "            if roll_what_is_old",
        HARNESS,
    ),
    Bug(
        "no repeated batch is recognised behind a start",
        "opening",
        "        replay_producers(opened)\n",
        "",
        HARNESS,
    ),
    Bug(
        "what is read is compared with nothing",
        "reading",
        "            if end > count or xxh3_64(buffer[begin:end]) != sums[ordinal]:",
        "            if end > count:",
        HARNESS,
    ),
    Bug(
        "what is known of producers is forgotten behind a failure",
        "failing",
        "            _know(opened, old, is_all_there=is_all_there)\n",
        "",
        HARNESS,
    ),
    Bug(
        "segments of a deleted topic are those of the next of its name",
        "ownership",
        "            return header.leader_epoch < first_epoch",
        "            return False",
        HARNESS,
    ),
    Bug(
        "what is sealed is not looked at",
        "partition_log",
        "                    elif rotating_only and segment.file and not segment.is_in_place():",
        "                    elif False:",
        HARNESS,
    ),
    Bug(
        "a reader repairs though there is no descriptor to read frames with",
        "mending_partition",
        "            if exc.errno in NO_DESCRIPTORS:\n                raise\n",
        "",
        HARNESS,
    ),
    Bug(
        "a checkpoint repairs though the frames cannot be read",
        "mending_partition",
        "self._mend(problem, self._put_back) for",
        "self._mend(problem, self._put_back_if_read) for",
        HARNESS,
    ),
    Bug(
        "a stop behind a full disk says nothing of where the log ends",
        "ending",
        "handler.acks_unsynced and not (is_whole and handler.high_watermark == end_offset)",
        "handler.acks_unsynced",
        HARNESS,
    ),
    Bug(
        "what was sealed before the last checkpoint is not looked at",
        "handler",
        "not self.mend_missing(since[0])",
        "not self.mend_missing(since[1])",
        HARNESS,
    ),
)
