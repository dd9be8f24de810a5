"""Topics: made, grown, altered, deleted, made again; ids."""

from .driver import Driver
from .registry import scenario


@scenario()
def topics_in_a_row(driver: Driver) -> None:
    for name in ("one", "two", "three"):
        driver.create(name)
    driver.append("two", count=2)


@scenario(durability="fsync")
def topics_made_and_deleted_together(driver: Driver) -> None:
    driver.append("t")
    driver.create_all("one", "two", "three")
    driver.append("two", count=2)
    driver.append("one")
    driver.delete_all("t", "two")
    driver.append("three")
    driver.create_all("two", "four")
    driver.append("two")


@scenario()
def a_topic_of_many_partitions(driver: Driver) -> None:
    driver.create("t", 4)
    driver.append("t", 3, 2)
    driver.append("t", 0)


@scenario(durability="fsync")
def a_topic_grows(driver: Driver) -> None:
    driver.append("t", count=2)
    driver.grow("t", 3)
    driver.append("t", 2, 2)
    driver.append("t", 0)


@scenario(durability="fsync")
def a_topic_becomes_faster(driver: Driver) -> None:
    driver.append("t", count=2)
    driver.alter("t", durability="disk")
    driver.append("t", count=2)
    driver.tick()
    driver.append("t")


@scenario(durability="disk")
def a_topic_becomes_safer(driver: Driver) -> None:
    driver.append("t", count=2)
    driver.tick()
    driver.alter("t", durability="fsync")
    driver.append("t", count=3)


@scenario(durability="disk")
def a_topic_becomes_safer_with_records_that_are_not_synced(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.alter("t", durability="fsync")
    driver.append("t")


@scenario(durability="fsync")
def a_topic_gets_other_segments(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.alter("t", segment_bytes="2048")
    driver.append("t", count=4)
    driver.alter("t", segment_bytes="512", segment_records="1")
    driver.append("t", count=3)


@scenario(durability="fsync")
def all_topics_get_other_segments(driver: Driver) -> None:
    driver.append("t", count=2)
    driver.choose(segment_records="1")
    driver.append("t", count=2)
    driver.create("own", segment_records="2")
    driver.append("own", count=3)
    driver.choose(segment_bytes="2048")
    driver.append("t", count=2)
    driver.close()
    driver.open()
    driver.choose()
    driver.append("t", count=2)


@scenario(durability="fsync")
def a_topic_is_deleted(driver: Driver) -> None:
    driver.create("other")
    driver.append("t", count=5)
    driver.append("other", count=2)
    driver.delete("t")
    driver.append("other")


@scenario(durability="disk")
def a_topic_is_deleted_with_unsynced_records(driver: Driver) -> None:
    driver.append("t", count=6)
    driver.delete("t")
    driver.close()
    driver.open()


@scenario(durability="fsync")
def a_topic_is_made_again(driver: Driver) -> None:
    driver.append("t", count=5)
    driver.delete("t")
    driver.create("t")
    driver.append("t", count=3)
    driver.delete("t")
    driver.create("t", 2)
    driver.append("t", 1)


@scenario(durability="disk")
def a_topic_is_made_again_of_class_disk(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.delete("t")
    driver.create("t", durability="disk")
    driver.append("t", count=2)
    driver.tick()
    driver.append("t")


@scenario(durability="fsync")
def a_topic_is_made_again_after_a_restart(driver: Driver) -> None:
    driver.append("t", count=2)
    driver.delete("t")
    driver.close()
    driver.open()
    driver.create("t")
    driver.append("t", count=2)
    driver.kill()
    driver.open()
    driver.append("t")


@scenario()
def ids_of_producers(driver: Driver) -> None:
    driver.allocate(5)
    driver.allocate(1)
    driver.kill()
    driver.open()
    driver.allocate(3)
