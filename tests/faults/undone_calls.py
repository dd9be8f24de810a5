"""Rules about calls of a disk that fail, undone one by one: what failing_calls.py is to find.

Which of them it has found, and which not yet, is in the decision 0545.
`python -m tests.soak.failing_calls --undone` counts how many cases that takes.  As with the planted
bugs of segments/, nothing of the broker may be imported before one is undone.
"""

from typing import Final

from ..segments.planted.planting import Bug

HARNESS: Final = "failing_calls"
CASES_MAX: Final = 400

UNDONE: Final = (
    Bug(
        "what a kill has left is not written again before its sync",
        "recovery.opening",
        "            if segment.size and self._evidence.writes_again:\n",
        "            if False:\n",
        HARNESS,
    ),
    Bug(
        "what is put back is not written where it stands already",
        "replay.replaying",
        "        if len(content):\n            write_all(file, content, 0)\n",
        "",
        HARNESS,
    ),
    Bug(
        "a sync that fails while a log is put back leaves no mark",
        "replay.replaying",
        "            mark_unsynced(storage, paths, scan(memoryview(content), None).next_offset)\n",
        "",
        HARNESS,
    ),
    Bug(
        "the files of a marked log are not made anew",
        "recovery.renewing",
        "        put_file(storage, path, content)\n",
        "",
        HARNESS,
    ),
    Bug(
        "a failed sync leaves no mark",
        "files.unsynced",
        "        if end_offset != known:\n",
        "        if False:\n",
        HARNESS,
    ),
    Bug(
        "where no mark is taken this process forgets",
        "files.unsynced",
        "        storage.unmarked[paths.unsynced] = end_offset\n        return False\n",
        "        return False\n",
        HARNESS,
    ),
    Bug(
        "a log is synced again behind a failed sync",
        "log.partition_log",
        "                self._fail_sync(exc)\n                self._mark_unsynced()\n",
        "                self._mark_unsynced()\n",
        HARNESS,
    ),
    Bug(
        "behind a failed sync the same files are trusted",
        "log.salvaging",
        "            log.storage.replace_file(segment.path, content)\n",
        "",
        HARNESS,
    ),
    Bug(
        "a file that is replaced is not synced",
        "disk.storage",
        "        if synced:\n            file.fdatasync()\n",
        "",
        HARNESS,
    ),
    Bug(
        "the name of a file that is replaced is not synced",
        "disk.storage",
        '    put_file(storage, path, content)\n    storage.fsync_dir(path.rpartition("/")[0])\n',
        "    put_file(storage, path, content)\n",
        HARNESS,
    ),
    Bug(
        "acknowledged though the sync of the write-ahead log failed",
        "wal.shard",
        "                active.file.fdatasync()\n",
        "                with suppress(OSError):\n                    active.file.fdatasync()\n",
        HARNESS,
    ),
    Bug(
        "the write-ahead log begins anew before it is put back",
        "directory.starting",
        "            replayed = self._with_ballast(lambda: self._put_back(found))\n",
        "            self._wal.absorbed()\n"
        "            replayed = self._with_ballast(lambda: self._put_back(found))\n",
        HARNESS,
    ),
    Bug(
        "a partition that could not be put back is forgotten",
        "replay.putting_back",
        "                self.waiting[meta.topic_id.bytes, partition] = frames\n",
        "",
        HARNESS,
    ),
    Bug(
        "a start that failed keeps its directory locked",
        "directory.manager",
        "            self._give_up()\n            raise\n",
        "            raise\n",
        HARNESS,
    ),
    Bug(
        "a mark that no descriptor is there for says that there is none",
        "files.unsynced",
        "    except FileNotFoundError:\n        return None\n",
        "    except OSError:\n        return None\n",
        HARNESS,
    ),
    Bug(
        "a segment that no descriptor is there for counts as unreadable",
        "recovery.known",
        "        return head_of(storage, path)\n    except NoDescriptor:\n        raise\n",
        "        return head_of(storage, path)\n",
        HARNESS,
    ),
    Bug(
        "a checkpoint does not sync",
        "partition.handler",
        "            end_offset = opened.sync()\n            opened.look()",
        "            end_offset = opened.log_end_offset\n            opened.look()",
        HARNESS,
    ),
)
