"""The end of a run: the logs as they are, and once more after recoveries that must change nothing.

read_log         every batch of a partition, as the broker's handler reads it: records and gaps
check_recovery   on a copy of the disk: recover(recover(x)) = recover(x) (I10), and deleting
                 every index changes nothing visible (I11)
"""

from segbroker.protocol.record_batch import decode_batch, gap_reason, iter_batches, read_header
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.errors import SegmentReplaced
from segbroker.segments.partition.handler import DiskHandler

from .disk import Directory, Disk, Mount
from .history import Final, Key
from .process import ROOT
from .threads import Threads
from .world import World

READ_BYTES = 1 << 20


def read_log(handler: DiskHandler) -> Final:
    """What a partition holds, below its high watermark."""
    offset = start = handler.log_start_offset
    rows: list[tuple[int, bytes]] = []
    gaps: list[tuple[int, int, str]] = []
    while (plan := handler.plan_read(offset, READ_BYTES)) is not None:
        buffer = bytearray(plan.size_max)
        try:
            size = plan.read(memoryview(buffer))
        except SegmentReplaced:
            continue  # it was damaged, and is whole now
        finally:
            plan.release()
        before = offset
        for batch in iter_batches(memoryview(buffer)[:size]):
            header = read_header(batch)
            if header.next_offset <= offset:
                continue
            if header.is_control:
                reason = gap_reason(header)
                begin = max(offset, header.base_offset)
                name = "control" if reason is None else reason.name.lower()
                gaps.append((begin, header.next_offset, name))
            else:
                decoded = decode_batch(batch)
                rows += [
                    (at, value or b"")
                    for at, value in zip(decoded.offsets(), decoded.values(), strict=True)
                    if at >= offset
                ]
            offset = header.next_offset
        if offset == before:
            break  # nothing whole: `unaccounted-offsets` will say so
    return Final(start, handler.high_watermark, rows, gaps)


def recovered(world: World, disk: Disk) -> dict[Key, Final]:
    """What a manager that opens this disk finds in every partition; it is not closed in order."""
    threads = Threads(world, 0.0)
    manager = DiskManager(
        ROOT, storage=Mount(disk, threads), flushers=0, open_files_max=64, now_ms=world.wall_ms()
    )
    manager.open()
    found = {
        (name, partition): read_log(manager.get_handler(name, partition))
        for name, meta in sorted(manager.topics.items())
        for partition in range(meta.partitions)
    }
    disk.locks.clear()
    return found


def check_recovery(world: World, disk: Disk) -> dict[Key, Final]:
    """I10 and I11 on copies of a disk as a crash left it; what the first recovery found."""
    copy = disk.copy()
    first = recovered(world, copy)
    for what in ("again", "without indexes"):
        if what == "without indexes":
            _unindex(copy.root)
        after = recovered(world, copy)
        for key in sorted(first.keys() | after.keys()):
            if first.get(key) != after.get(key):
                world.violation(
                    f"recovered {what}, {key[0]}-{key[1]} is {_told(after.get(key))}, "
                    f"it was {_told(first.get(key))}"
                )
    return first


def _unindex(directory: Directory) -> None:
    for name, node in list(directory.names.items()):
        if isinstance(node, Directory):
            _unindex(node)
        elif name.endswith(".index"):
            del directory.names[name]
            directory.durable.pop(name, None)


def _told(final: Final | None) -> str:
    if final is None:
        return "not there"
    return f"[{final.start}, {final.end}), {len(final.rows)} records, gaps {final.gaps}"
