"""Idempotent producers with several batches in flight, of which a power cut leaves some: after each
crash they send all of them again (resending.py)."""

from .driver import Driver
from .registry import scenario
from .resending import Resending

ONE_SEGMENT = {"durability": "fsync", "segment_bytes": "4096"}


@scenario(**ONE_SEGMENT)
def the_first_batches_of_a_producer(driver: Driver) -> None:
    producer = Resending(driver)
    producer.send(3, (7, 0, 0))
    producer.send(2, (7, 0, 3))
    assert producer.asked > 20


@scenario(**ONE_SEGMENT)
def five_batches_that_begin_an_epoch(driver: Driver) -> None:
    driver.append("t", count=2, producer=(7, 0, 0))
    Resending(driver).send(5, (7, 1, 0))


@scenario(durability="fsync")
def the_first_batches_of_a_producer_in_two_segments(driver: Driver) -> None:
    driver.append("t", count=2)
    Resending(driver).send(4, (7, 0, 0))


@scenario(**ONE_SEGMENT)
def more_first_batches_than_a_client_has_in_flight(driver: Driver) -> None:
    Resending(driver).send(6, (7, 0, 0))
