"""A sync that fails, whichever it is, costs nothing that was acknowledged, and is not repeated.

Ten scenarios; the long tier: `python -m tests.soak.failing_syncs --scenarios 40`.
"""

from contextlib import suppress

import pytest

from tests.simulation.disk import File

from .failing_syncs import fail_at, syncs_of


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_failed_sync_is_believed_and_nothing_acknowledged_rests_on_it(seed: int) -> None:
    count = syncs_of(seed)
    assert count > 10, "a scenario with hardly a sync proves nothing"
    for number in range(1, count + 1):
        assert fail_at(seed, number).problems == [], f"sync {number} of {count}"


def test_a_failed_sync_that_nobody_believes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fdatasync = File.fdatasync

    def ignored(self: File) -> None:
        with suppress(OSError):
            fdatasync(self)

    monkeypatch.setattr(File, "fdatasync", ignored)
    assert any(fail_at(1, number).problems for number in range(1, syncs_of(1) + 1))
