"""EIO from the N-th sync of a segment or WAL file, for every N, and the kernel drops the pages.

N-th fdatasync fails, the pages are gone -> the process goes on as it can
                                            killed after any operation behind it
                                            -> the next start, in the same boot: no log ends
                                               below what was acknowledged, unless it is refused
"""

from contextlib import suppress
from itertools import count

import pytest

from segbroker.segments.errors import StorageError
from segbroker.segments.settings.topic_config import Durability

from ..support.extent import share
from .crash.explorer import Explorer, Plan, silence
from .crash.images import _contents_of, digest_of
from .crash.recording import Fault
from .crash.scenarios import SCENARIOS
from .crash.second_life import left_by

NAMES = [
    "killed_and_started_again_of_class_disk",
    "records_of_class_memory",
    "rolls_of_class_disk",
    "closed_and_opened_again_of_class_disk",
    "classes_side_by_side",
    "a_topic_becomes_faster",
    "a_topic_becomes_safer_with_records_that_are_not_synced",
    "segments_of_class_disk_become_one",
    "interleaved_transactions_over_rolls",
]


class Killed:
    """A scenario is killed after each of its operations behind the failure, and started again."""

    def __init__(self, number: int) -> None:
        self.fault = Fault("fdatasync", ".log", number)
        self.has_failed = False
        self.kills = 0
        self._known: set[tuple[int, int]] = set()

    def look(self, explorer: Explorer) -> None:
        """Kill it here.  Raises Found."""
        disk, model = explorer.disk, explorer.model
        disk.drops = True
        self.has_failed = disk.counts.get(0, 0) > self.fault.nth
        key = digest_of(disk, durable=False), model.version
        if not self.has_failed or key in self._known or _is_being_marked(explorer):
            return
        self._known.add(key)
        self.kills += 1
        seen = explorer.opener(left_by(disk)).see()
        for topic, lives in model.topics.items():
            life = lives[0] if lives else None
            for number, partition in enumerate(life.partitions if life is not None else ()):
                if topic not in seen.topics or partition.durability is Durability.EPHEMERAL:
                    continue
                found = seen.topics[topic].partitions[number]
                if not found.error and found.end < partition.acked:
                    explorer.report(f"{topic}/{number} ends at {found.end} below {partition.acked}")


def _is_being_marked(explorer: Explorer) -> bool:
    """Between a failure and its mark nobody knows of it."""
    contents = _contents_of(explorer.disk, durable=False)
    marks = [content for path, content in contents.items() if path.endswith(".unsynced")]
    return any(mark is not None and not mark.endswith(b"\n") for mark in marks)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", share(NAMES[:2], NAMES))
def test_no_offset_is_given_twice_where_a_failed_sync_takes_it_from_memory(name: str) -> None:
    kills = 0
    for number in count():
        killed = Killed(number)
        plan = Plan(instead=killed.look, faults=(killed.fault,))
        with silence(), suppress(StorageError, ExceptionGroup):
            SCENARIOS[name](plan)
        kills += killed.kills
        if not killed.has_failed:
            break
    assert kills > 30
