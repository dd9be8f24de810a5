"""No acked record is lost on any disk that a crash may leave, and no loss is silent.

Every scenario of tests/segments/crash is run, and after each of its operations the disks that a
power cut or the end of the process may leave are recovered, judged, written to, cut off once more
and read again.  Two files of tests share the scenarios of the quick tier (crash/quick.py); `make
soak` recovers every image, and those of random scenarios.  The harness itself is proved by
test_planted_bugs, and here.
"""

from collections.abc import Iterator

import pytest

from segbroker.segments.disk.memory import MemoryStorage

from .crash import alike, images
from .crash.alike import says_nothing
from .crash.driver import Driver
from .crash.explorer import Found, Plan, silence
from .crash.images import Images, digest_of, known_content
from .crash.quick import PARTS, PLAN, SECONDS_MAX, look_at, names
from .crash.recording import RecordingStorage
from .crash.scenarios import SCENARIOS


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("name", names(0))
def test_nothing_acked_is_lost_on_any_disk_a_power_cut_may_leave(name: str) -> None:
    look_at(name)


def test_the_files_of_tests_share_all_scenarios() -> None:
    shared = [name for part in range(PARTS) for name in names(part)]
    assert sorted(shared) == sorted(SCENARIOS)


def a_short_life(driver: Driver) -> None:
    driver.open()
    driver.create("t", 1)
    driver.append("t", count=6)
    driver.close()


LEFT_OUT = [
    ("fdatasync", "segment_0.log"),
    ("fdatasync", "segment_1.log"),
    ("fdatasync", ".msgpack.tmp"),
    ("fsync_dir", "/partition_0"),
    ("fsync_dir", "/topics/t"),
    ("fsync_dir", "/topics"),
    ("fsync_dir", "/meta"),
]


@pytest.mark.parametrize("ignored", LEFT_OUT)
def test_a_sync_that_is_left_out_is_noticed(ignored: tuple[str, str]) -> None:
    with silence():
        driver = Driver(PLAN)
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


def test_disks_that_differ_in_what_nobody_reads_are_of_one_kind() -> None:
    disk = RecordingStorage()
    disk.open("/f.tmp", create=True)
    disk.fsync_dir("/")
    disk.open("/f.tmp").pwrite(b"abcdefgh", 0)
    images = list(Images(disk).now())
    assert len({image.key for image in images}) > 5
    # Killed, or cut off: two boots.
    assert len({image.kind for image in images}) == 2


def test_a_copy_in_quarantine_of_what_is_there_now_makes_another_kind() -> None:
    """Recovery keeps damage that it does not find kept already (two seeds of a long run)."""
    disk = RecordingStorage()
    disk.mkdir("/quarantine")
    log = disk.open("/a_segment_0.log", create=True)
    log.pwrite(b"torn one", 0)
    log.fdatasync()
    disk.fsync_dir("/")
    copy = disk.open("/quarantine/a_segment_0.log.0", create=True)
    disk.fsync_dir("/quarantine")
    copy.pwrite(b"torn", 0)
    copy.pwrite(b" one", 4)
    of_boots = {image.kind for image in Images(disk).now() if not image.is_kill}
    assert len(of_boots) == 2, "as it is kept, and torn"


def test_some_files_say_nothing_beside_the_others() -> None:
    used = ["/data/wal/shard-00/wal-3.log", "/data/wal/shard-00/free-0.log"]
    silent = [
        "/data/wal/shard-00.wal-3",
        "/data/witness/shard-00.wal-3",
        "/data/meta/snapshot-1.msgpack",
        "/data/witness/snapshot-1",
        "/data/witness/snapshot-2",
        "/data/witness/wal-from-0",
        "/data/witness/wal-from-4",
    ]
    said = [
        "/data/wal/shard-00.wal-2",
        "/data/witness/shard-01.wal-3",
        "/data/witness/shard-00.kept-3",
        "/data/meta/snapshot-2.msgpack",
        "/data/witness/snapshot-3",
        "/data/witness/wal-from-5",
        "/data/witness/shard-00.wal-3.reached-4096",
    ]
    assert list(says_nothing([*silent, *said, *used])) == silent
    assert not list(says_nothing([*said, "/data/topics/t"]))


@pytest.fixture
def _all_segments_are_alike(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if recovery read no segment of a log; what was remembered of files is forgotten."""
    with monkeypatch.context() as patch:
        patch.setattr(alike, "_of_segment", lambda data: 1)
        alike.taken_from.cache_clear()
        known_content.cache_clear()
        yield
    alike.taken_from.cache_clear()
    known_content.cache_clear()


@pytest.mark.usefixtures("_all_segments_are_alike")
def test_disks_that_are_wrongly_taken_for_alike_are_noticed() -> None:
    with silence():
        driver = Driver(Plan(alike_every=4))
        driver.open()
        driver.create("t", 1, durability="disk")
        with pytest.raises(Found, match="two disks that are alike"):
            driver.append("t", count=6)


def test_files_that_are_wrongly_said_to_say_nothing_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if recovery read no file of the WAL."""
    monkeypatch.setattr(
        images, "says_nothing", lambda paths: (path for path in paths if "/wal-" in path)
    )
    with silence():
        driver = Driver(Plan(alike_every=4))
        driver.open()
        with pytest.raises(Found, match="two disks that are alike"):
            driver.create("t", 1, durability="fsync")
