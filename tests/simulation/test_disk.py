"""The simulated disk keeps what a machine promises."""

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
