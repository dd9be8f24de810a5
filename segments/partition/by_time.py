"""What is due in a partition because time has passed, and for no other reason.

| what | when |
|---|---|
| a segment is rolled | it is old (`roll_ms`), or nothing in it is to be kept any more |
| producers are forgotten | they did nothing for producer.id.expiration.ms, by a clock believed |
| aborted transactions are forgotten | the log begins behind them, whatever the clock says |
| what is reserved beyond the end is given back | nothing was appended for IDLE_MS |

Looked at by housekeeping; an append waits only while something is done about it.
"""

from ..log.partition_log import PartitionLog
from ..log.retention import wants_roll
from ..metadata.ceilings import IDLE_MS, PartitionCeiling
from ..settings.topic_config import Durability


def roll_what_is_old(opened: PartitionLog, now_ms: int, age_ms: int | None) -> bool:
    """Whether it was rolled.  age_ms: the time to measure ages by; None: nothing goes by age.

    Raises OSError."""

    def is_old() -> bool:
        active = opened.active
        is_full = active.size > 0 and now_ms - active.first_ms >= opened.config.roll_ms
        return is_full or wants_roll(opened, age_ms)

    if not is_old():
        return False
    with opened.append_lock:
        if opened.is_closed or not is_old():
            return False  # appended, or rolled, meanwhile
        opened.roll(now_ms)
    return True


def forget_producers(
    opened: PartitionLog, now_ms: int, last_append_ms: int, expiration_ms: int
) -> None:
    """Those that did nothing for `expiration_ms`."""
    producers = opened.producers
    if not len(producers):
        return
    is_idle = 0 < last_append_ms <= now_ms - expiration_ms
    old = producers.stale(now_ms, expiration_ms, is_idle=is_idle)
    if old:
        with opened.append_lock:  # not over the look at all of them: appends wait for it
            producers.forget(old)


def forget_aborted(opened: PartitionLog) -> None:
    """Transactions that the log begins behind."""
    transactions, start = opened.producers.transactions, opened.log_start_offset
    aborted = transactions.aborted
    if aborted and aborted[0].last_offset < start:
        with opened.append_lock:
            transactions.forget_before(start)


def settle_ceiling(
    ceiling: PartitionCeiling | None, opened: PartitionLog, now_ms: int, last_append_ms: int
) -> None:
    """Give back what is reserved beyond the end of an idle log."""
    if ceiling is None or ceiling.is_settled or now_ms - last_append_ms < IDLE_MS:
        return
    with opened.append_lock:
        end_offset = opened.log_end_offset
        volatile = opened.config.durability is Durability.EPHEMERAL
        if volatile or opened.recovery_point == end_offset:
            ceiling.settle(end_offset)
