"""The simulated disk keeps what a machine promises."""

import pytest

from .disk import Disk, Mount
from .threads import Threads
from .world import World


def test_a_copy_of_a_disk_draws_no_random_bytes_that_may_be_on_it() -> None:
    world = World(1)
    disk = Disk(world)

    def draw(disk: Disk) -> set[bytes]:
        mount = Mount(disk, Threads(world, 0.0))
        return {mount.random_bytes(8) for _ in range(100)}

    on_it = draw(disk)
    assert len(on_it) == 100
    assert not on_it & draw(disk.copy())


class _Names:
    """A directory of a disk whose next sync of one fails or not, as a test says."""

    def __init__(self, seed: int) -> None:
        world = World(seed)
        self.disk = Disk(world)
        self.mount = Mount(self.disk, Threads(world, 0.0))
        self.mount.mkdir("/data")
        self.mount.fsync_dir("/")

    def make(self, *names: str) -> None:
        for name in names:
            self.mount.open(f"/data/{name}", create=True).close()

    def sync(self) -> None:
        self.mount.fsync_dir("/data")

    def fail(self) -> None:
        self.disk.name_errors = 1.0
        with pytest.raises(OSError, match="the names are not synced"):
            self.sync()
        self.disk.name_errors = 0.0

    @property
    def left(self) -> frozenset[str]:
        self.disk.cut_power()
        return frozenset(self.mount.listdir("/data"))


def test_a_file_that_is_open_says_whether_its_name_leads_to_it() -> None:
    names = _Names(1)
    names.make("a", "b")
    file = names.mount.open("/data/a")
    assert file.is_in_place()
    names.mount.rename("/data/b", "/data/a")
    assert not file.is_in_place(), "replaced"
    names.mount.unlink("/data/a")
    assert not file.is_in_place(), "removed"
    file.close()
    assert file.is_in_place(), "nobody knows"


def test_names_of_which_a_sync_failed_are_seen_and_in_doubt_for_ever() -> None:
    found = set()
    for seed in range(50):
        names = _Names(seed)
        names.make("a", "b")
        names.fail()
        names.make("c")
        names.sync()
        assert names.mount.listdir("/data") == ["a", "b", "c"]
        found.add(names.left)
    assert found == {frozenset(f"{left}c") for left in ("", "a", "b", "ab")}


def test_a_name_that_is_given_anew_behind_a_failed_sync_is_durable() -> None:
    for seed in range(20):
        names = _Names(seed)
        names.make("a")
        names.fail()
        names.mount.rename("/data/a", "/data/b")
        names.sync()
        assert names.left == {"b"}
