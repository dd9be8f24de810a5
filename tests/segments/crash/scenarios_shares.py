"""Share groups: what became of records, over snapshots, restarts and deletions of their topics."""

from uuid import UUID

from segbroker.segments.metadata.share_groups import (
    STATES,
    RecordState,
    ShareRow,
    Span,
    states_fields,
)

from .driver import Driver
from .registry import scenario

AVAILABLE, DONE, ARCHIVED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED


@scenario(durability="fsync")
def records_of_share_groups(driver: Driver) -> None:
    driver.append("t", count=4)
    driver.share("g", "t", 0)
    driver.share("g", "t", 0, (1, 2, AVAILABLE, 1))
    driver.share("g", "t", 0, (2, 2, DONE, 2))
    driver.kill()
    driver.open()
    driver.share("g", "t", 1, (3, 3, DONE, 1))
    driver.share("h", "t", 2, (2, 2, ARCHIVED, 5))
    driver.tick(by_ms=61_000)
    driver.set_share("g", "t", 0)
    driver.share("g", "t", 4)
    driver.close()
    driver.open()
    driver.set_share("g", "t", 1)
    driver.share("g", "t", 1, (2, 2, DONE, 1))
    driver.forget_share("h")


@scenario(durability="fsync")
def share_groups_of_topics_that_are_deleted(driver: Driver) -> None:
    driver.create("u")
    driver.share("g", "t", 3)
    driver.share("g", "u", 5, (6, 6, DONE, 1))
    driver.share("h", "u", 7)
    before = driver.running.topics["u"].topic_id
    driver.delete("u")
    late(driver, "h", before)
    driver.create("u")
    late(driver, "g", before)
    driver.share("h", "u", 1)
    driver.kill()
    driver.open()
    driver.share("g", "u", 2)
    driver.forget_share("g", "u")
    driver.running.wal.checkpoint()
    driver.delete_all("t", "u")
    driver.close()
    driver.open()


@scenario(durability="fsync")
def share_groups_and_a_wal_that_is_recycled(driver: Driver) -> None:
    # What fills the files is said of the group: the log stays small, and every disk quick to judge.
    driver.append("t", size=300)
    for offset in range(4):
        gaps = [(offset + at, offset + at, DONE, 1) for at in range(2, 240, 2)]
        driver.share("g", "t", offset, *gaps)
    driver.append("t", size=300)
    driver.running.wal.checkpoint()
    driver.share("g", "t", 40)


def late(driver: Driver, group: str, topic_id: UUID) -> None:
    """Somebody acknowledges what was read before the topic was deleted."""
    row = ShareRow("u", topic_id, 0, 6, [Span(8, 8, DONE, 1)])
    driver.record(STATES, **states_fields(group, [row]))
