"""The log as a library: truncation, expiry, streams that are rolled back."""

from .library import LibraryDriver
from .registry import library_scenario


@library_scenario(durability="fsync")
def a_log_grows(driver: LibraryDriver) -> None:
    driver.append(6)
    driver.close()
    driver.open()
    driver.append(3)


@library_scenario(durability="disk")
def a_log_synced_late(driver: LibraryDriver) -> None:
    driver.append(5)
    driver.sync()
    driver.append(5)
    driver.close()


@library_scenario(durability="fsync")
def truncated_inside_the_active_segment(driver: LibraryDriver) -> None:
    driver.append(3)
    driver.truncate(2)
    driver.append(2)


@library_scenario(durability="fsync")
def truncated_into_a_sealed_segment(driver: LibraryDriver) -> None:
    driver.append(9)
    driver.truncate(2)
    driver.append(3)


@library_scenario(durability="fsync")
def truncated_to_nothing(driver: LibraryDriver) -> None:
    driver.append(6)
    driver.truncate(0)
    driver.append(6)


@library_scenario(durability="fsync")
def truncated_after_a_checkpoint(driver: LibraryDriver) -> None:
    driver.append(6)
    driver.close()
    driver.open()
    driver.truncate(5)
    driver.append(2)
    driver.close()


@library_scenario(durability="disk")
def truncated_in_class_disk(driver: LibraryDriver) -> None:
    driver.append(6)
    driver.truncate(3)
    driver.append(4)
    driver.sync()


@library_scenario(durability="fsync")
def old_segments_expire(driver: LibraryDriver) -> None:
    driver.append(9)
    driver.expire(1_005)
    driver.append(3)
    driver.expire(driver.now_ms)
    driver.close()


@library_scenario(durability="disk")
def old_segments_expire_in_class_disk(driver: LibraryDriver) -> None:
    driver.append(7)
    driver.sync()
    driver.expire(1_004)
    driver.append(2)
    driver.sync()


@library_scenario(durability="fsync")
def a_stream_is_published(driver: LibraryDriver) -> None:
    driver.append(2)
    driver.reserve(6, publish=True)
    driver.append()


@library_scenario(durability="fsync")
def a_stream_is_rolled_back(driver: LibraryDriver) -> None:
    driver.append(2)
    driver.reserve(6, publish=False)
    driver.append(2)
