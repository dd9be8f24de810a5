"""For every test: signals are as a terminal gives them; Hypothesis and trio do not mind the time.

With `-n`, a worker takes a file at a time, as with `--dist loadfile`, but for three things: what
waits (for a daemon, a client, a timer) is begun by turns with what computes, so that the processors
are busy while somebody waits; of each the long ones are first, so that no worker is left alone with
one at the end; and the tests that share a virtual machine (SHARED) go to one worker, so that there
is one of it.
"""

import signal
from collections.abc import Collection
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from .support import patient_clock

if TYPE_CHECKING:
    from xdist.remote import Producer

SHARED = "tests/spark/"
WAITING = (SHARED, "tests/cli/", "tests/client/", "tests/groups/", "tests/system/")
# Half a minute and more each on a quiet machine.
LONG = (
    SHARED,
    "tests/system/test_share_groups.py",
    "tests/client/test_groups.py",
    "tests/system/test_together.py",
    "tests/client/test_misbehaving.py",
    "tests/system/test_logins.py",
    "tests/client/test_share_groups.py",
    "tests/client/test_blocking.py",
    "tests/segments/test_crash_images",
    "tests/simulation/",
    "tests/faults/test_kill_loop.py",
    "tests/faults/test_daemon_faults.py",
    "tests/faults/test_call_chain.py",
    "tests/segments/test_model",
)

# A machine that is busy with something else makes any strategy "too slow".
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell that starts a job in the background makes it ignore SIGINT, and every child inherits
# that: the tests that press Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def unit_of(nodeid: str) -> str:
    """What a worker takes at once: a file, or all files that share something."""
    return SHARED if nodeid.startswith(SHARED) else nodeid.split("::", 1)[0]


def places_of(units: Collection[str]) -> dict[str, float]:
    """Where each stands in the run, from 0 to 1: both kinds evenly, of each the long ones first."""
    places: dict[str, float] = {}
    for kind in (True, False):
        of_kind = [unit for unit in units if unit.startswith(WAITING) is kind]
        of_kind.sort(key=lambda unit: [not unit.startswith(start) for start in LONG])
        for n, unit in enumerate(of_kind):
            places[unit] = n / len(of_kind)
    return places


@pytest.hookimpl(trylast=True)  # pytest-trio marks the tests before
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = places_of({unit_of(item.nodeid): None for item in items})
    items.sort(key=lambda item: places[unit_of(item.nodeid)])
    for item in items:
        if item.get_closest_marker("trio") is not None:
            item.add_marker(pytest.mark.trio(run=patient_clock.run), append=False)


class Files(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Files, and what is shared as if it was one."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> Files | None:
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # not by number: few tests may be long ones
    return Files(config, log)
