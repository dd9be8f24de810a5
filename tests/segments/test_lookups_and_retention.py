"""A look-up goes on while retention, or a request to delete records, takes the front of the log:
it answers by the log as it is then, and nobody hears that an offset he never named is gone."""

from collections.abc import Callable

import pytest

from segbroker.segments.disk.memory import MemoryFile, MemoryStorage

from .test_retention import DAY, NOW, partition_on

FOLDER = "/data/topics/t/partition_0"
FIRST = f"{FOLDER}/t_partition_0_segment_0"


class MeanwhileStorage(MemoryStorage):
    """Calls `meanwhile` once, before or behind the opening of the file `at`."""

    meanwhile: Callable[[], object] | None = None
    at = ""
    is_before = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        call = self.meanwhile
        if call is None or path != self.at:
            return super().open(path, create=create, read_only=read_only)
        self.meanwhile = None
        if self.is_before:
            call()
            return super().open(path, create=create, read_only=read_only)
        file = super().open(path, create=create, read_only=read_only)
        call()
        return file


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("at", [f"{FIRST}.index", f"{FIRST}.log"])
@pytest.mark.parametrize("by", ["retention", "request"])
def test_an_offset_by_time_while_the_segment_that_has_it_goes(
    by: str, at: str, is_before: bool
) -> None:
    disk = MeanwhileStorage()
    manager, handler = partition_on(disk, 10, retention_ms=7 * DAY)
    handler._log.files.indexes.drop(FOLDER)
    handler._log.files.files.drop(FOLDER)
    disk.at, disk.is_before = at, is_before

    def go() -> None:
        if by == "request":
            handler.delete_records_before(5)
        else:
            manager.keep_house_now(NOW + 7 * DAY + 5 * 60_000)

    disk.meanwhile = go
    found = handler.offset_for_timestamp(NOW + 1)
    assert disk.meanwhile is None, "it went"
    assert found is not None
    assert handler.log_start_offset > 1
    assert found[0] in (1, handler.log_start_offset)
