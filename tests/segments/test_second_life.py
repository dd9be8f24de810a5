"""What a start after a kill goes by is there after a power cut as well."""

import pytest

from ..support.extent import share
from .crash.explorer import Plan, silence
from .crash.quick import SECONDS_MAX
from .crash.scenarios import SCENARIOS
from .crash.second_life import SecondLife

NOT_LOOKED_AT = {
    "truncated_to_nothing",
    "the_first_batches_of_a_producer",
}
"""A log that a library had cut to nothing, and was killed before it had synced that, is opened
without a sync like any new one: the records may be there again, and nobody was told that they went.
The other one counts the images that are looked at here in another way."""
NAMES = [name for name in SCENARIOS if name not in NOT_LOOKED_AT]


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("name", share(["closed_while_empty", *NAMES[::16]], NAMES))
def test_what_a_start_after_a_kill_has_seen_outlives_a_power_cut(name: str) -> None:
    life = SecondLife()
    with silence():
        SCENARIOS[name](Plan(instead=life.look))
    assert life.kills > 10
    assert life.cuts > life.kills
