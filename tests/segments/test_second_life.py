"""What a start after a kill goes by is there after a power cut as well."""

from contextlib import suppress
from itertools import count

import pytest

from segbroker.segments.errors import StorageError

from ..support.extent import share
from .crash.explorer import Explorer, Plan, silence
from .crash.extent import QUICK
from .crash.quick import SECONDS_MAX
from .crash.recording import Fault
from .crash.scenarios import SCENARIOS
from .crash.second_life import SecondLife

NOT_LOOKED_AT = {
    "truncated_to_nothing",
    "the_first_batches_of_a_producer",
}
"""A log that a library had cut to nothing, and was killed before it had synced that, is opened
without a sync like any new one: the records may be there again, and nobody was told that they went.
The other one counts the images that are looked at here in another way."""
ALIKE_EVERY = share(QUICK["alike_every"], 1)
NAMES = [name for name in SCENARIOS if name not in NOT_LOOKED_AT]


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("name", share(["closed_while_empty", *NAMES[::32]], NAMES))
def test_what_a_start_after_a_kill_has_seen_outlives_a_power_cut(name: str) -> None:
    life = SecondLife(alike_every=ALIKE_EVERY)
    with silence():
        SCENARIOS[name](Plan(instead=life.look))
    assert life.kills > 10
    assert life.cuts > life.kills


BEHIND_FAILURES = [
    "every_sync_of_a_directory_fails",
    "a_sync_of_names_made_ahead_fails",
    "a_sync_of_names_made_ahead_fails_in_class_disk",
    "a_sync_of_names_fails_and_the_last_segment_is_empty",
    "cleaned_and_closed",
    "killed_while_it_is_cleaned",
    "segments_go_and_what_is_known_of_a_producer_has_no_room",
]
"""Scenarios that go on behind a failed sync of names."""


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("name", share(BEHIND_FAILURES[:2], BEHIND_FAILURES))
def test_what_a_start_finds_where_the_process_before_could_not_sync_names_outlives_a_power_cut(
    name: str,
) -> None:
    """Each sync of the partition's directory fails in turn; then the process is killed."""
    life = SecondLife(behind_failure=True, alike_every=ALIKE_EVERY)
    looked_at: list[Explorer] = []

    def look(explorer: Explorer) -> None:
        looked_at[:] = [explorer]
        life.look(explorer)

    for number in count():
        fails = Fault("fsync_dir", "/partition_0", number)
        with silence(), suppress(StorageError):  # who asks hears of it
            SCENARIOS[name](Plan(instead=look, faults=(fails,)))
        if looked_at[0].disk.counts.get(0, 0) <= number:
            break
    assert life.kills > 5
    assert life.cuts > life.kills
