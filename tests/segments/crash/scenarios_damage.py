"""Damage that recovery repairs, and crashes in the middle of it."""

from segbroker.segments.errors import CorruptSegment
from segbroker.segments.names import partition_paths

from .driver import Driver
from .observing import ROOT, see_handler
from .registry import scenario


@scenario(durability="disk", segment_bytes="2048")
def damage_in_the_active_segment(driver: Driver) -> None:
    driver.append("t", count=6)
    driver.close()
    driver.damage("t", 0, 2)
    driver.open()
    driver.append("t", count=2)
    driver.tick()


@scenario(durability="fsync", segment_bytes="2048")
def damage_at_both_ends_of_a_segment(driver: Driver) -> None:
    driver.append("t", count=6)
    driver.close()
    driver.damage("t", 0, 0)
    driver.damage("t", 0, 5)
    driver.open()
    driver.append("t", count=2)
    driver.close()
    driver.open()
    driver.append("t")


@scenario(durability="fsync", segment_bytes="2048")
def damage_twice(driver: Driver) -> None:
    driver.append("t", count=5)
    driver.close()
    driver.damage("t", 0, 1)
    driver.open()
    driver.append("t", count=3)
    driver.close()
    driver.damage("t", 0, 6)
    driver.open()
    driver.append("t")


@scenario(durability="fsync", segment_bytes="2048")
def damage_under_the_wal(driver: Driver) -> None:
    driver.append("t", count=6)
    driver.kill()
    driver.damage("t", 0, 2)
    driver.open()
    driver.append("t", count=2)


@scenario(durability="disk", segment_bytes="2048")
def damage_after_a_kill(driver: Driver) -> None:
    driver.append("t", count=5)
    driver.tick()
    driver.kill()
    driver.damage("t", 0, 2)
    driver.open()
    driver.append("t")


@scenario(durability="fsync")
def damage_of_a_sealed_segment_under_the_wal(driver: Driver) -> None:
    driver.append("t", count=9)
    sealed = driver.handler("t").sealed_numbers()
    assert len(sealed) > 1, "the damage is in one of them"
    driver.kill()
    driver.damage("t", 0, 1)
    driver.open()
    assert not any(item.is_gap for item in see_handler(driver.handler("t")).items), "I1"
    driver.model.partition("t", 0).damaged.clear()  # from here on it is there
    driver.model.changed()
    driver.append("t")
    driver.close()


@scenario(durability="fsync")
def damage_of_a_sealed_segment_found_in_use(driver: Driver) -> None:
    driver.append("t", count=9)
    handler = driver.handler("t")
    first = handler.sealed_numbers()[0]
    driver.damage("t", 0, 1, in_use=True)
    path = partition_paths(ROOT, "t", 0).log(first)
    assert handler.check_segment(CorruptSegment(path, 0, "what the scrub found"))
    assert not any(item.is_gap for item in see_handler(handler).items), "I1"
    driver.model.partition("t", 0).damaged.clear()  # from here on it is there
    driver.model.changed()
    driver.append("t")
    driver.close()
