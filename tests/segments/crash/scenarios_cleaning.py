"""Compacted topics: crashes at each step of a cleaning, and of what comes before and behind it.

Segments have 512 bytes; a batch of one record here has 171, so two make a segment, but for the
first: its third batch begins the next one.
"""

from segbroker.protocol.compression import Codec
from segbroker.protocol.markers import Outcome

from .driver import Driver
from .recording import Fault
from .registry import scenario
from .scenarios_faults import fault, with_unsynced_names

COMPACT = "compact"
FILLING = bytes(100)


def put(driver: Driver, *keys: str, codec: Codec = Codec.NONE) -> None:
    """One batch; the value tells the key."""
    pairs = [(key.encode(), key.encode() + FILLING) for key in keys]
    driver.put("t", *pairs, codec=codec)


def seal(driver: Driver) -> None:
    """Let the active segment be full, and sealed."""
    driver.tick(by_ms=60_000)
    driver.tick()


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def a_segment_is_cleaned(driver: Driver) -> None:
    put(driver, "a", "b")
    put(driver, "a")
    seal(driver)
    driver.clean("t", may_go=[0])
    put(driver, "c")


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def two_batches_in_two_segments_become_one(driver: Driver) -> None:
    driver.put("t", (b"a", bytes(360)))
    driver.put("t", (b"a", bytes(360)))
    seal(driver)
    driver.clean("t", may_go=[0])


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def cleaned_where_nothing_was_written_since_the_last_start(driver: Driver) -> None:
    put(driver, "a", "b")
    put(driver, "a")
    seal(driver)
    driver.close()
    driver.open()
    driver.clean("t", may_go=[0])


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def segments_become_one(driver: Driver) -> None:
    for key in ("a", "b", "a", "b", "a"):
        put(driver, key)
    seal(driver)
    driver.clean("t", may_go=range(3))
    put(driver, "a")


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def the_row_of_segments_that_became_one_is_damaged(driver: Driver) -> None:
    put(driver, "b")
    put(driver, "a")
    seal(driver)
    put(driver, "a")
    seal(driver)
    put(driver, "c", "d")
    seal(driver)
    driver.clean("t", may_go=[1])
    number, other = driver.handler("t").sealed_numbers()
    assert (number, other) == (1, 2), "it stands for the first two"
    driver.kill()
    driver.damage_row("t", 0, number)
    driver.open()
    put(driver, "b")


@scenario(durability="disk", cleanup_policy=COMPACT, segment_ms="50000")
def segments_of_class_disk_become_one(driver: Driver) -> None:
    driver.put("t", (b"a", bytes(360)))
    driver.put("t", (b"a", bytes(360)))
    seal(driver)
    driver.clean("t", may_go=[0])
    driver.tick()


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def cleaned_again_and_again(driver: Driver) -> None:
    for round_ in range(2):
        for key in ("a", "b", "a"):
            put(driver, key)
        seal(driver)
        driver.clean("t", may_go=range(3 * round_ + 1))


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def cleaned_and_closed(driver: Driver) -> None:
    for key in ("a", "b", "a", "a"):
        put(driver, key)
    seal(driver)
    driver.clean("t", may_go=range(3))
    driver.close()
    driver.open()
    put(driver, "b")
    seal(driver)
    driver.clean("t", may_go=range(4))


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def cleaned_after_a_restart(driver: Driver) -> None:
    for key in ("a", "b", "a", "a"):
        put(driver, key)
    seal(driver)
    driver.close()
    driver.open()
    driver.clean("t", may_go=range(3))


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def compressed_batches_are_cleaned(driver: Driver) -> None:
    put(driver, "a", "b", "c", codec=Codec.ZSTD)
    put(driver, "a", "c", codec=Codec.LZ4)
    seal(driver)
    driver.clean("t", may_go=[0, 2])


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000", delete_retention_ms="0")
def tombstones_go(driver: Driver) -> None:
    put(driver, "a", "b")
    driver.put("t", (b"a", None))
    seal(driver)
    driver.clean("t", may_go=[0])
    put(driver, "c")
    seal(driver)
    driver.clean("t", may_go=[0, 2])


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def the_last_batch_of_a_producer_is_emptied(driver: Driver) -> None:
    driver.put("t", (b"a", b"1"), (b"b", b"1"), producer=(7, 2, 5))
    put(driver, "a", "b")
    seal(driver)
    driver.clean("t", may_go=[0, 1])
    driver.close()
    driver.open()
    driver.put("t", (b"a", b"2"), producer=(7, 2, 7))


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000", delete_retention_ms="0")
def transactions_are_cleaned(driver: Driver) -> None:
    # 0: a | 1: a of 7, aborted by 2 | 3: b of 7, committed by 4 | 5: b
    put(driver, "a")
    driver.put("t", (b"a", b"x"), producer=(7, 0, 0), transactional=True)
    driver.mark("t", Outcome.ABORT, 7)
    driver.put("t", (b"b", b"y"), producer=(7, 0, 1), transactional=True)
    driver.mark("t", Outcome.COMMIT, 7)
    put(driver, "b")
    seal(driver)
    driver.clean("t", may_go=[1, 3])
    put(driver, "c")
    seal(driver)
    driver.clean("t", may_go=[1, 2, 3])


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000", delete_retention_ms="0")
def a_committed_transaction_goes_with_its_marker(driver: Driver) -> None:
    # 0: a of 7, committed by 1 | 2: b of 7, committed by 3 | 4: a     then 1 is nobody's marker
    driver.put("t", (b"a", b"x"), producer=(7, 0, 0), transactional=True)
    driver.mark("t", Outcome.COMMIT, 7)
    driver.put("t", (b"b", b"y"), producer=(7, 0, 1), transactional=True)
    driver.mark("t", Outcome.COMMIT, 7)
    put(driver, "a")
    seal(driver)
    driver.clean("t", may_go=[0])
    put(driver, "c")
    seal(driver)
    driver.clean("t", may_go=[0, 1])
    driver.kill()
    driver.open()
    driver.put("t", (b"b", b"z"), producer=(7, 0, 2))


@scenario(durability="fsync", cleanup_policy="compact,delete", segment_ms="50000")
def cleaned_and_deleted_from(driver: Driver) -> None:
    for key in ("a", "b", "a", "c", "a"):
        put(driver, key)
    seal(driver)
    driver.clean("t", may_go=range(3))
    driver.delete_records("t", 0, 4)
    driver.tick()


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def killed_while_it_is_cleaned(driver: Driver) -> None:
    for key in ("a", "b", "a", "a"):
        put(driver, key)
    seal(driver)
    driver.clean("t", may_go=range(3))
    driver.kill()
    driver.open()
    put(driver, "b")
    seal(driver)
    driver.clean("t", may_go=range(4))


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def a_buffer_that_is_too_small_for_all_keys(driver: Driver) -> None:
    for n in range(8):
        driver.put("t", *((b"%d" % ((10 * n + i) % 60), b"") for i in range(10)))
    seal(driver)
    driver.clean("t", may_go=range(20), buffer_bytes=24 * 64)


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def cleaned_beside_an_open_transaction(driver: Driver) -> None:
    # 0: a | 1: b of 7, open | 2: a     and behind the seal its commit
    put(driver, "a")
    put(driver, "a")
    seal(driver)
    driver.put("t", (b"b", b"x"), producer=(7, 0, 0), transactional=True)
    put(driver, "a")
    put(driver, "b")
    seal(driver)
    driver.clean("t", may_go=[0])
    driver.mark("t", Outcome.COMMIT, 7)
    seal(driver)
    driver.clean("t", may_go=[0, 1, 2])


def failing(driver: Driver, call: str, name: str) -> None:
    """Two segments of which something goes, then a cleaning that meets a failure, and a restart."""
    driver.put("t", (b"a", bytes(360)))
    driver.put("t", (b"a", bytes(360)))
    seal(driver)
    fault(driver, Fault(call, name, 0))
    driver.clean("t", may_go=[0])
    driver.kill()
    driver.open()
    driver.handler("t")
    driver.clean("t", may_go=[0])


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def the_sync_of_a_cleaned_segment_fails(driver: Driver) -> None:
    failing(driver, "fdatasync", ".cleaned")


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def the_decision_of_a_cleaning_fails(driver: Driver) -> None:
    failing(driver, "fdatasync", ".manifest")


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def the_decision_of_a_cleaning_can_neither_be_synced_nor_cut_off(driver: Driver) -> None:
    fault(driver, Fault("truncate", ".manifest", 0))
    failing(driver, "fdatasync", ".manifest")


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def the_rename_of_a_cleaned_segment_fails(driver: Driver) -> None:
    failing(driver, "rename", ".cleaned")


@scenario(durability="disk", cleanup_policy=COMPACT, segment_ms="50000")
def the_sync_of_a_cleaned_name_fails_beside_names_that_wait(driver: Driver) -> None:
    with_unsynced_names(driver)
    driver.put("t", (b"a", bytes(360)))
    driver.put("t", (b"a", bytes(360)))
    seal(driver)
    put(driver, "b")
    driver.tick()
    driver.put("t", (b"c", bytes(360)))
    fault(driver, Fault("fsync_dir", "partition_0", 0))
    driver.clean("t", may_go=[0])
    driver.tick()
    driver.tick()
    put(driver, "d")
    driver.tick()


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def the_sync_of_the_new_name_of_a_cleaned_segment_fails(driver: Driver) -> None:
    for size in (100, 101):
        driver.put("t", (b"a", bytes(size)), (b"of %d" % size, b"x"))
    seal(driver)
    fault(driver, Fault("fsync_dir", "partition_0", 1))
    driver.clean("t", may_go=[0])
    driver.tick()
    driver.tick()
    driver.close()


@scenario(durability="fsync", cleanup_policy=COMPACT, segment_ms="50000")
def cleaned_behind_a_checkpoint_that_could_not_be_synced(driver: Driver) -> None:
    for key in ("a", "b", "a", "a"):
        put(driver, key)
    seal(driver)
    driver.clean("t", may_go=range(3))
    fault(driver, Fault("fdatasync", ".manifest", 0))
    driver.close()
    driver.open()
    put(driver, "b")
    seal(driver)
    driver.clean("t", may_go=range(4))
