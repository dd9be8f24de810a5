"""For every test: signals are as a terminal gives them; Hypothesis and trio do not mind the time;
what is collected is nothing for the collector of cycles.

With `-n`, a worker takes a file at a time, as with `--dist loadfile`, but for three things: half of
the workers take what computes and the others what waits (for a daemon, a client, a timer), as long
as there is any, so that the processors are busy while somebody waits; of each the long ones are
first, so that no worker is left alone with one at the end; and the tests that share a virtual
machine (SHARED) go to one worker, so that there is one of it.
"""

import gc
import signal
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from .support import patient_clock

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

SHARED = "tests/spark/session/"
WAITING = (
    "tests/spark/",
    "tests/cli/",
    "tests/client/",
    "tests/faults/",
    "tests/groups/",
    "tests/system/",
)
# A quarter of a minute and more each in a run of all, the longest first.
LONG = (
    SHARED,
    "tests/segments/test_crash_images",
    "tests/spark/test_programs.py",
    "tests/system/test_share_groups.py",
    "tests/system/test_together.py",
    "tests/client/test_groups.py",
    "tests/simulation/test_simulation.py",
    "tests/faults/test_daemon_faults.py",
    "tests/faults/test_call_chain.py",
    "tests/faults/test_kill_loop.py",
    "tests/spark/test_broker_restart.py",
    "tests/cli/test_command_line.py",
    "tests/system/test_install.py",
    "tests/client/test_silence.py",
    "tests/client/test_share_groups.py",
    "tests/cli/test_serve.py",
    "tests/system/test_logins.py",
    "tests/client/test_misbehaving.py",
    "tests/faults/test_bit_flips.py",
    "tests/client/test_blocking.py",
    "tests/segments/test_second_life.py",
    "tests/spark/test_columns.py",
    "tests/faults/test_torn.py",
    "tests/protocol/test_batch_parity.py",
    "tests/spark/test_sink.py",
    "tests/cli/test_produce_consume.py",
    "tests/cli/test_broker.py",
    "tests/segments/test_planted_bugs.py",
    "tests/faults/test_failing_syncs.py",
    "tests/cli/test_security.py",
    "tests/system/test_java_client.py",
    "tests/system/test_group_migration.py",
    "tests/spark/test_many_partitions.py",
    "tests/system/test_kafka_python.py",
    "tests/client/test_simulated_groups.py",
    "tests/client/test_share_faults.py",
    "tests/client/test_transactions.py",
    "tests/broker/test_long_answers.py",
    "tests/system/test_mixed_groups.py",
    "tests/system/test_oauth_logins.py",
    "tests/client/test_away.py",
    "tests/client/test_oauth.py",
    "tests/system/test_confluent_kafka_releases.py",
    "tests/cli/test_absence.py",
    "tests/client/test_absence.py",
    "tests/broker/test_long_lived.py",
    "tests/client/test_not_sent.py",
    "tests/groups/",
)

# A machine that is busy with something else makes any strategy "too slow".
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell that starts a job in the background makes it ignore SIGINT, and every child inherits
# that: the tests that press Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """PySpark leaves a handler of its own in a process that had a context once."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def unit_of(nodeid: str) -> str:
    """What a worker takes at once: a file, or all files that share something."""
    return SHARED if nodeid.startswith(SHARED) else nodeid.split("::", 1)[0]


@cache
def place_of(unit: str) -> int:
    """Where it stands in the run: the long ones first."""
    return next((n for n, start in enumerate(LONG) if unit.startswith(start)), len(LONG))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays to the end: a million objects that no collection has to look at."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # pytest-trio marks the tests before
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place_of(unit_of(item.nodeid)))
    for item in items:
        if item.get_closest_marker("trio") is not None:
            item.add_marker(pytest.mark.trio(run=patient_clock.run), append=False)


class Files(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Files, and what is shared as if it was one."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: "WorkerController") -> None:
        """One that waits where half of the workers compute already."""
        computing = sum(
            any(
                not unit.startswith(WAITING) and not all(done.values())
                for unit, done in work.items()
            )
            for worker, work in self.assigned_work.items()
            if worker is not node
        )
        waits = computing >= len(self.nodes) // 2
        wanted = (unit for unit in self.workqueue if unit.startswith(WAITING) is waits)
        self.workqueue.move_to_end(next(wanted, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> Files | None:
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # not by number: few tests may be long ones
    return Files(config, log)
