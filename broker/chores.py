"""Chores: periodic background work of a broker, each chore in a task of its own.

| chore | how often | what |
|---|---|---|
| keep_house | `housekeeping_interval_ms` | whatever is due: the directory's upkeep.py, groups |
| scrub | every second | reads sealed segments again, as much as its rate allows |
| reopen | every second; less often if that is slow | opens what could not be opened |
| tell_stuck | every second | says when the write-ahead log, or the lanes, are stuck, and go on |
| clean | every second; every 50 ms while a partition is cleaned | cleans compacted partitions |
| watch_certificates | `ssl_reload_interval_ms`; 0: a day | reads changed files, tells of the end |

Whatever may block runs in a lane.  Nobody waits for a chore, so a failure in one does not end the
broker: it is an error in the log (with a traceback if it is a bug of ours), and the next round
tries again (docs/decisions/0183).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog
import trio

from .core import Core, wall_ms
from .error_map import STORAGE_FAILURES
from .loop.loop_clock import monotonic_ms
from .peers.tls import REMINDER_MS

log = structlog.get_logger()

SCRUB_STEP_S: Final = 1.0
CLEAN_STEP_S: Final = 0.05
"""Between two steps of a cleaning."""
CLEAN_LOOK_S: Final = 1.0
"""Between two looks whether there is a partition to clean."""
REOPEN_LOOK_S: Final = 1.0
REOPEN_ROUND_S: Final = 0.1
"""How long a round tries one after the other; who was not tried is the first of the next round."""
REOPEN_REST: Final = 10
"""So many times longer than a round it rests: a damaged log may be read as a whole each time."""
LOOK_S: Final = 1.0
"""Between two looks whether a pause has become a shorter one."""


async def _pause(interval_ms: Callable[[], int]) -> None:
    """Wait as long as it says, also where it says something else meanwhile."""
    began = trio.current_time()
    while (left := began + interval_ms() / 1000 - trio.current_time()) > 0:  # noqa: ASYNC110 - settings tell nobody
        await trio.sleep(min(left, LOOK_S))


@contextmanager
def _told(event: str) -> Iterator[None]:
    """What fails is told, and no more than that."""
    try:
        yield
    except STORAGE_FAILURES as exc:
        log.error(event, error=str(exc))
    except Exception:
        log.exception(event)


def _monotonic_ms(core: Core) -> int | None:
    """The clock that a jump of the wall clock is noticed by: the machine's own may jump, one that
    somebody sets on purpose is believed."""
    return monotonic_ms() if core.now_ms is wall_ms else None


async def keep_house(core: Core) -> None:
    """Roll by age, delete what is too old, close what is idle, forget what expired, for ever."""
    while True:
        await _pause(lambda: core.config.housekeeping_interval_ms)
        tell_sums(core, trio.current_time())  # first: a disk that fails must not silence them
        monotonic_ms = _monotonic_ms(core)
        # Offsets and transactional ids are as precious as records: one clock for all, and one
        # reading of it, the one that was looked at.  Where it was not, nothing goes by age.
        now_ms, age_ms = core.now_ms(), None
        with _told("housekeeping_failed"):
            await core.lanes.run(core.topics.manager.housekeeping, now_ms, monotonic_ms)
            age_ms = now_ms if core.topics.manager.believes_clock else None
            await core.topics.keep_defaults()
        # Each by itself: a transaction that is open for too long ends also on a disk that fails.
        for keep in (core.groups.keep_house, core.transaction_upkeep.keep_house):
            with _told("housekeeping_failed"):
                keep(age_ms)
        with _told("housekeeping_failed"):
            core.shares.keep_house()


def tell_sums(core: Core, now: float) -> None:
    """Log how many lines were left out, where the window is over; at the end with math.inf."""
    if core.authorizer is not None:
        core.authorizer.audit.keep_house(now)
    for lines in (
        core.closing_lines,
        core.failed_reads.lines,
        core.failed_changes,
        core.groups.lines,
        core.transactions.lines,
    ):
        lines.keep_house(now)


async def scrub(core: Core) -> None:
    """Read sealed segments again, for ever; what is found damaged is repaired."""
    while True:
        await trio.sleep(SCRUB_STEP_S)
        if core.config.scrub_bytes_per_second:
            with _told("scrub_failed"):
                await core.lanes.run(core.scrubber.step, core.now_ms())


async def tell_stuck(core: Core) -> None:
    """Log when a write to the write-ahead log does not end, or no lane comes free, and that it did,
    for ever: nothing fails on a disk that does not answer."""
    told_s = lanes_told_s = 0.0
    while True:
        await trio.sleep(LOOK_S)
        stuck_s = core.topics.manager.wal.statistics().stuck_s
        if stuck_s and not told_s:
            effect = "what is to be durable waits for it, unacknowledged; nothing has failed"
            facts = {"effect": effect, "advice": "check the disk"}
            log.warning("wal_stuck", seconds=round(stuck_s, 1), **facts)
        elif told_s and not stuck_s:
            log.info("wal_goes_on", seconds_min=round(told_s, 1))
        told_s = stuck_s
        if (lanes_s := core.lanes.stuck_s) and not lanes_told_s:
            effect = "what is not in memory cannot be read, and what takes a file is not answered"
            facts = {"effect": effect, "advice": "check the disk"}
            log.warning("lanes_stuck", seconds=round(lanes_s, 1), **facts)
        elif lanes_told_s and not lanes_s:
            log.info("lanes_go_on", seconds_min=round(lanes_told_s, 1))
        lanes_told_s = lanes_s


async def reopen(core: Core) -> None:
    """Try again to open what could not be opened, for ever: clients are told that nobody leads it,
    and do not ask for it any more."""
    pause_s = REOPEN_LOOK_S
    while True:
        await trio.sleep(pause_s)
        began = trio.current_time()
        with _told("reopening_failed"):
            await core.topics.open_again(began + REOPEN_ROUND_S)
        pause_s = max(REOPEN_LOOK_S, REOPEN_REST * (trio.current_time() - began))


async def clean(core: Core) -> None:
    """Clean compacted partitions, for ever; what is under way at the end is given up."""
    cleaner = core.cleaner
    try:
        while True:
            await trio.sleep(CLEAN_STEP_S if cleaner.is_running else CLEAN_LOOK_S)
            with _told("cleaner_failed"):
                if core.config.cleaner_enable:
                    await core.lanes.run(cleaner.step, core.now_ms(), _monotonic_ms(core))
                elif cleaner.is_running:
                    await core.lanes.run(cleaner.abandon)
    finally:
        cleaner.abandon()


async def watch_certificates(core: Core) -> None:
    """Have certificates read again when their files have changed, and tell of their end, for
    ever."""
    looks_ms = core.config.ssl_reload_interval_ms
    while True:
        await trio.sleep((looks_ms or REMINDER_MS) / 1000)
        for certificate in core.certificates:
            with _told("certificate_not_watched"):
                if looks_ms:
                    await core.lanes.run(certificate.look)
                certificate.remind()
