"""No acked record is lost on any disk that a crash may leave, and no loss is silent.

Every scenario of tests/segments/crash is run, and after each of its operations the disks that a
power cut or the end of the process may leave are recovered, judged, written to, cut off once more
and read again.  Here one image of some is looked at; `make soak` looks at all of them, and at
random scenarios.  The harness itself is proved by test_planted_bugs.
"""

import pytest

from segbroker.segments.memory import MemoryStorage

from .crash.driver import Driver
from .crash.explorer import Found, Plan, silence
from .crash.images import Images, digest_of
from .crash.recording import RecordingStorage
from .crash.scenarios import SCENARIOS

QUICK = Plan(thin_every=40, nested_every=60, settle_every=4)


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_acked_is_lost_on_any_disk_a_power_cut_may_leave(name: str) -> None:
    with silence():
        counts = SCENARIOS[name](QUICK)
    assert counts.judged > 100


def a_short_life(driver: Driver) -> None:
    driver.open()
    driver.create("t", 1)
    driver.append("t", count=6)
    driver.close()


@pytest.mark.parametrize(
    "ignored",
    [
        ("fdatasync", "segment_0.log"),
        ("fdatasync", "segment_1.log"),
        ("fdatasync", ".msgpack.tmp"),
        ("fsync_dir", "/partition_0"),
        ("fsync_dir", "/topics/t"),
        ("fsync_dir", "/topics"),
        ("fsync_dir", "/meta"),
    ],
)
def test_a_sync_that_is_left_out_is_noticed(ignored: tuple[str, str]) -> None:
    with silence():
        driver = Driver(Plan())
        driver.disk.ignored.append(ignored)
        with pytest.raises(Found):
            a_short_life(driver)


def contents(disk: RecordingStorage, path: str) -> set[bytes]:
    return {bytes(image.files().get(path) or b"-") for image in Images(disk).now()}


def test_an_unsynced_write_is_there_in_part_or_as_zeros() -> None:
    # | abcd | synced | EFGH |   ->   abcd, abcdE, abcdEF, abcdEFG, abcdEFGH, abcd0000, abcdEF00
    disk = RecordingStorage()
    file = disk.open("/f", create=True)
    disk.fsync_dir("/")
    file.pwrite(b"abcd", 0)
    file.fdatasync()
    file.pwrite(b"EFGH", 4)
    assert contents(disk, "/f") == {
        b"abcd",
        b"abcdE",
        b"abcdEF",
        b"abcdEFG",
        b"abcdEFGH",
        b"abcd\0\0\0\0",
        b"abcdEF\0\0",
    }


def test_of_several_unsynced_writes_any_prefix_persists_and_any_one_may_be_missing() -> None:
    disk = RecordingStorage()
    file = disk.open("/f", create=True)
    disk.fsync_dir("/")
    for place, byte in enumerate((b"a", b"b", b"c")):
        file.pwrite(byte, place)
    assert contents(disk, "/f") == {b"-", b"a", b"ab", b"abc", b"\0bc", b"a\0c", b"ab\0"}


def test_an_overwrite_leaves_the_old_bytes_or_the_new_ones_never_zeros() -> None:
    disk = RecordingStorage()
    file = disk.open("/f", create=True)
    disk.fsync_dir("/")
    file.pwrite(b"old!", 0)
    file.fdatasync()
    file.pwrite(b"NEW!", 0)
    assert contents(disk, "/f") == {b"old!", b"Nld!", b"NEW!", b"NEd!"} | {b"NEW!"}


def test_names_persist_in_order_and_without_regard_to_the_data() -> None:
    disk = RecordingStorage()
    disk.open("/a", create=True)
    disk.rename("/a", "/b")
    disk.open("/c", create=True)
    names = {tuple(sorted(image.files())) for image in Images(disk).now()}
    assert names == {(), ("/a",), ("/b",), ("/b", "/c")}


def test_what_a_failed_sync_left_in_doubt_stays_so_when_a_later_one_succeeds() -> None:
    from .crash.recording import Fault

    disk = RecordingStorage()
    file = disk.open("/f", create=True)
    disk.fsync_dir("/")
    file.pwrite(b"a", 0)
    disk.faults.append(Fault("fdatasync", "/f", 0))
    with pytest.raises(OSError, match="planned"):
        file.fdatasync()
    file.pwrite(b"b", 1)
    disk.open("/f").fdatasync()
    assert contents(disk, "/f") == {b"ab", b"\0b"}
    assert disk.violations == ["I12: /f is synced again after its sync failed"]
    # Written again and synced, it is certain.
    file.pwrite(b"a", 0)
    file.fdatasync()
    assert contents(disk, "/f") == {b"ab"}


def test_a_killed_process_leaves_everything_but_the_end_of_its_last_write() -> None:
    disk = RecordingStorage()
    file = disk.open("/f", create=True)
    file.pwrite(b"ab", 0)
    file.pwrite(b"cd", 2)
    left = {bytes(i.files()["/f"] or b"") for i in Images(disk).now() if i.is_kill}
    assert left == {b"abc", b"abcd"}


def test_equal_disks_have_equal_keys() -> None:
    disk = RecordingStorage()
    disk.mkdir("/d")
    disk.open("/d/f", create=True).pwrite(b"x", 0)
    images = list(Images(disk).now())
    for image in images:
        built: MemoryStorage = image.build()
        assert digest_of(built, durable=True) == digest_of(built, durable=False) == image.key[0]
    contents_by_key = {(image.key, str(sorted(image.files().items()))) for image in images}
    assert len(contents_by_key) == len({image.key for image in images})
