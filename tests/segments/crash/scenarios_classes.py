"""The classes that promise less, the offsets of groups, and damage that waits for an operator."""

import contextlib

from segbroker.segments.errors import StorageError

from .driver import Driver
from .registry import scenario


@scenario(durability="memory")
def records_of_class_memory(driver: Driver) -> None:
    driver.append("t", count=4)
    driver.tick()
    driver.append("t", count=2, producer=(7, 0, 0))
    driver.kill()
    driver.open()
    driver.append("t", count=2)
    driver.close()
    driver.open()
    driver.append("t")


@scenario(durability="memory")
def class_memory_beside_class_fsync(driver: Driver) -> None:
    driver.create("safe", durability="fsync")
    for _ in range(3):
        driver.append("t", size=200)
        driver.append("safe")
    driver.delete_records("t", 0, 1)
    driver.alter("t", durability="fsync")
    driver.append("t")


@scenario(durability="ephemeral", retention_bytes="4096")
def records_of_class_ephemeral(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.tick()
    driver.kill()
    driver.open()
    driver.forget_all("t")
    driver.append("t", count=2)
    driver.close()
    driver.open()
    driver.forget_all("t")
    driver.append("t")


@scenario(durability="fsync")
def offsets_of_groups(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.commit("g", "t", 1)
    driver.commit("g", "t", 2)
    driver.kill()
    driver.open()
    driver.commit("h", "t", 3)
    driver.tick(by_ms=61_000)
    driver.commit("g", "t", 3)
    driver.close()
    driver.open()
    driver.forget("h")


@scenario(durability="fsync")
def generations_of_groups(driver: Driver) -> None:
    driver.generation("g", 1, a=b"all")
    driver.commit("g", "t", 1)
    driver.generation("g", 2, a=b"one", b=b"two")
    driver.kill()
    driver.open()
    driver.generation("g", 3, b=b"all")
    driver.generation("h", 1, c=b"x" * 300)
    driver.running.wal.checkpoint()
    driver.generation("g", 4)
    driver.close()
    driver.open()
    driver.forget_generation("g")


@scenario(durability="fsync")
def members_of_the_consumer_protocol(driver: Driver) -> None:
    driver.consumer_group("g", 1, a=4)
    driver.consumer_group("g", 2, a=2, b=2)
    driver.commit("g", "t", 1)
    driver.kill()
    driver.open()
    driver.consumer_group("g", 3, a=None, b=4)
    driver.running.wal.checkpoint()
    driver.generation("g", 4, c=b"all")
    driver.close()
    driver.open()
    driver.consumer_group("g", 5, d=300)
    driver.record("consumer_group", group="g", epoch=None)


@scenario(durability="fsync")
def members_of_the_streams_protocol(driver: Driver) -> None:
    driver.streams_group("g", 2, topology=True, a=4)
    driver.streams_group("g", 3, a=2, b=2)
    driver.commit("g", "t", 1)
    driver.kill()
    driver.open()
    driver.streams_group("g", 4, a=None, b=4)
    driver.running.wal.checkpoint()
    driver.consumer_group("g", 5, c=4)
    driver.streams_group("g", 6, topology=True, d=300)
    driver.close()
    driver.open()
    driver.streams_group("g", 7, d=None)
    driver.record("streams_group", group="g", epoch=None)


@scenario(durability="fsync")
def offsets_of_a_group_and_a_wal_that_is_recycled(driver: Driver) -> None:
    for offset in range(12):
        driver.append("t", size=300)
        driver.commit("g", "t", offset + 1, metadata="x" * 400)
    driver.running.wal.checkpoint()
    driver.commit("g", "t", 12)


@scenario(durability="fsync", segment_bytes="2048", on_corruption="readonly")
def damage_that_stops_writing(driver: Driver) -> None:
    driver.append("t", count=5)
    driver.close()
    driver.damage("t", 0, 2)
    driver.open()
    assert driver.handler("t").read_only is not None
    driver.kill()
    driver.open()
    driver.alter("t", on_corruption="gap")
    driver.kill()
    driver.open()
    driver.append("t")


@scenario(durability="fsync", segment_bytes="2048", on_corruption="refuse")
def damage_that_stops_everything(driver: Driver) -> None:
    driver.append("t", count=5)
    driver.close()
    driver.damage("t", 0, 2)
    driver.open()
    with contextlib.suppress(StorageError):
        driver.handler("t")
        raise AssertionError("it is served")
    driver.kill()
    driver.open()
    driver.alter("t", on_corruption="gap")
    driver.append("t", count=2)
