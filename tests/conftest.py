"""For every test: signals are as a terminal gives them; Hypothesis and trio do not mind the time.

With `-n`, a worker takes a file at a time, as with `--dist loadfile`, but for two things: what is
long is begun first, so that no worker is left alone with it at the end; and the tests that share
a virtual machine (SHARED) go to one worker, so that there is one of it.
"""

import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from .support import patient_clock

if TYPE_CHECKING:
    from xdist.remote import Producer

SHARED = "tests/spark/"
# A minute and more each on a quiet machine.
LONG = (
    SHARED,
    "tests/simulation/",
    "tests/segments/test_crash_images",
    "tests/segments/test_model",
    "tests/faults/",
    "tests/system/test_together.py",
)

# A machine that is busy with something else makes any strategy "too slow".
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell that starts a job in the background makes it ignore SIGINT, and every child inherits
# that: the tests that press Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def place_of(nodeid: str) -> int:
    """Where a test stands in the order of the run."""
    return next((n for n, start in enumerate(LONG) if nodeid.startswith(start)), len(LONG))


@pytest.hookimpl(trylast=True)  # pytest-trio marks the tests before
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place_of(item.nodeid))
    for item in items:
        if item.get_closest_marker("trio") is not None:
            item.add_marker(pytest.mark.trio(run=patient_clock.run), append=False)


class Files(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Files, and what is shared as if it was one."""

    def _split_scope(self, nodeid: str) -> str:
        return SHARED if nodeid.startswith(SHARED) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> Files | None:
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # not by number: few tests may be long ones
    return Files(config, log)
