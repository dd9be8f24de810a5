"""What is written down of streams groups: what changed, and how much room all of it takes."""

from collections.abc import Callable
from typing import Any, cast

from segbroker.broker.failed_changes import FailedChanges
from segbroker.broker.groups.kept_sizes import KeptSizes
from segbroker.broker.groups.kept_streams import KeptStreams
from segbroker.broker.groups.member_epochs import LEAVE
from segbroker.broker.groups.streams_members import StreamsBeat
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.group_rows import Content
from segbroker.segments.metadata.streams_groups import changed

from .test_streams_group import TOPICS, Member, group


class Disk:
    """What is written is durable at once."""

    event_size_max = 4 << 20

    def __init__(self) -> None:
        self.content: Content | None = None
        self.events: list[dict[str, Any]] = []

    def section(self, name: str) -> Content | None:
        return self.content

    def record_soon(
        self, done: Callable[[OSError | None], None], kind: str, **fields: object
    ) -> None:
        self.events.append(fields)
        self.content = changed(self.content, [fields])
        done(None)


def started(disk: Disk) -> tuple[KeptStreams, KeptSizes]:
    sizes = KeptSizes(disk.event_size_max)
    return KeptStreams(cast("DiskManager", disk), sizes, lambda: None, FailedChanges()), sizes


def test_an_event_holds_what_changed_and_the_topology_once() -> None:
    disk = Disk()
    kept, sizes = started(disk)
    some = group()
    one, two = Member(some, "one"), Member(some, "two")
    one.join()
    kept.keep(some)
    alone = sizes.others("")
    two.join()
    kept.keep(some)
    one.beat()
    one.beat()
    kept.keep(some)
    two.beat()
    kept.keep(some)
    first, *later = disk.events
    assert (first["whole"], list(first["members"])) == (True, ["one"])
    assert first["topology"] is not None
    assert later
    assert all(one["topology"] is None and not one["whole"] for one in later)
    _, found = started(disk)
    assert found.others("") == sizes.others("") > alone
    some.heartbeat(0, StreamsBeat("two", LEAVE), TOPICS)
    kept.keep(some)
    one.beat()
    kept.keep(some)
    _, found = started(disk)
    assert found.others("") == sizes.others("")


def test_a_group_that_has_room_again_is_written_down_whole_once() -> None:
    disk = Disk()
    kept, sizes = started(disk)
    some = group()
    one, two = Member(some, "one"), Member(some, "two")
    one.join()
    kept.keep(some)
    size, sizes.size_max = sizes.size_max, 10
    two.join()
    kept.keep(some)
    assert (disk.events[-1]["whole"], disk.events[-1]["members"]) == (True, {})
    sizes.size_max = size
    one.beat()
    kept.keep(some)
    assert (disk.events[-1]["whole"], set(disk.events[-1]["members"])) == (True, {"one", "two"})
    one.beat()
    two.beat()
    kept.keep(some)
    assert not disk.events[-1]["whole"]
    assert disk.events[-1]["topology"] is None


def test_a_topology_for_which_there_was_no_room_is_written_down_when_there_is() -> None:
    disk = Disk()
    kept, sizes = started(disk)
    some = group()
    one = Member(some, "one")
    one.join()
    kept.keep(some)
    size, sizes.size_max = sizes.size_max, 10
    some.heartbeat(0, StreamsBeat("one", LEAVE), TOPICS)
    kept.keep(some)
    assert (disk.events[-1]["whole"], disk.events[-1]["topology"]) == (True, None)
    assert kept.number("g") == some.epoch
    sizes.size_max = size
    one.join()
    kept.keep(some)
    found = kept.find("g")
    assert found is not None
    assert found.topology is not None
    assert list(found.members) == ["one"]
