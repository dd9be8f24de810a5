"""What becomes of files under a running broker: no record is lost unsaid.

The long tier: `python -m tests.soak.running_damage`.
"""

from collections.abc import Iterator

import pytest

from segbroker.segments.directory import manager
from segbroker.segments.directory.ending import end_of
from segbroker.segments.disk.storage import StorageFile
from segbroker.segments.log.partition_log import PartitionLog
from segbroker.segments.log.segment import ActiveSegment
from segbroker.segments.metadata.metadata import Metadata
from segbroker.segments.partition import failing
from segbroker.segments.partition.failing import FailingPartition
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.replay.resuming import CeilingRow

from .running_damage import Case

SEEDS = (*range(1, 20), 61, 81)


def test_files_that_change_under_a_broker_cost_nothing_in_silence() -> None:
    cases = [Case(seed).run() for seed in SEEDS]
    assert [problem for case in cases for problem in case.problems] == []
    assert any(case.lost for case in cases)
    assert any(not case.lost and not case.refused for case in cases)


def test_a_case_comes_of_its_seed() -> None:
    assert Case(3).run().trace == Case(3).run().trace


def say_no_ends_of_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By now a stop says where a failed partition ends: what these faults lose would be told."""

    def ends(handler: DiskHandler, known: Metadata) -> Iterator[CeilingRow]:
        if not handler.has_failed or handler.find_loss() is not None:
            yield from end_of(handler, known)

    monkeypatch.setattr(manager, "end_of", ends)


def test_a_file_that_is_not_open_and_that_nobody_looks_for_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def opened(self: ActiveSegment) -> StorageFile:
        if self.file is None:
            self.file = self.storage.open(self.path)
        return self.file

    def is_in_place(self: ActiveSegment) -> bool:
        return self.file is None or self.file.is_in_place(self.size)

    monkeypatch.setattr(ActiveSegment, "opened", opened)
    monkeypatch.setattr(ActiveSegment, "is_in_place", is_in_place)
    # By now a stop looks at the bytes as well.
    monkeypatch.setattr(failing, "check_promised", lambda opened, promised: True)
    say_no_ends_of_failed(monkeypatch)
    assert Case(81).run().problems


def test_a_stop_that_lets_frames_go_behind_a_file_that_was_cut_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = PartitionLog.look

    def looked(self: PartitionLog) -> None:
        if self.failed is None:
            look(self)

    is_whole = property(lambda self: False, lambda self, value: None)
    monkeypatch.setattr(PartitionLog, "look", looked)
    monkeypatch.setattr(FailingPartition, "is_in_doubt", is_whole)
    say_no_ends_of_failed(monkeypatch)
    assert Case(61).run().problems


def test_a_stop_keeps_the_frames_of_a_file_that_it_cannot_look_at() -> None:
    assert Case(96686).run().problems == []
