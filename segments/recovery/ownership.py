"""Whether a manifest, or a whole directory, is another log's: swapped, or copied in by hand.

    by its owner     the data directory and partition that a manifest names (names.owner_of)
    by what it says  a manifest of an earlier version has no owner in it, and a directory may have
                     come with all its files: then its last segment is compared with the file of
                     that number, and where that is a whole segment of other offsets, a few more

Only when most of them are is the manifest the wrong one: a single such file was copied in itself,
and a damaged one says nothing about the manifest.
"""

from typing import Final

from ..decisions import Tail, base_header, scan
from ..disk.relieving import NoDescriptor
from ..disk.storage import Storage, read_file
from ..files.manifest import Manifest, decode_manifest
from ..log.columns import SealedSegments
from ..log.producers import decode_producers
from ..names import LogPaths
from .unfinished import head_of

SAMPLES: Final = 4
"""Segment files of which most have to be others before a manifest is not believed."""


def is_of(paths: LogPaths, manifest: Manifest) -> bool:
    """Whether it is this log's, as far as anybody says."""
    return not paths.owner or manifest.owner in (0, paths.owner)


def is_of_another(storage: Storage, paths: LogPaths, first_epoch: int) -> bool:
    """Whether the whole directory is another's, put here by hand.  Raises OSError.

    The manifest has another owner, and no snapshot of the producers says that the rest is ours: it
    is of another data directory.  Or the segments are of a leader epoch before `first_epoch`, the
    first one of this topic: it is that of an earlier topic of the same name, with a manifest or
    without.
    """
    try:
        manifest = decode_manifest(read_file(storage, paths.manifest))
    except FileNotFoundError:
        manifest = None
    if manifest is not None:
        if is_of(paths, manifest):
            return False
        try:
            producers = read_file(storage, paths.producers)
        except FileNotFoundError:
            return True
        if decode_producers(producers, paths.owner) is None:
            return True
    for number in sorted(segment_files(storage, paths)):
        header = base_header(memoryview(read_file(storage, paths.log(number))))
        if header is not None:
            return header.leader_epoch < first_epoch
    return False


def disagrees(
    storage: Storage, paths: LogPaths, sealed: SealedSegments, pending: int | None
) -> bool:
    """Whether the manifest speaks of another log: its last segments are whole, and others.

    pending: the segment whose new file has not its name yet; it says nothing.
    Costs one open of a file while they agree.  Raises OSError.
    """
    numbers = _sample(storage, paths, sealed, pending)
    others = sum(
        number != pending and _is_another(storage, paths, sealed, number) for number in numbers
    )
    return 2 * others > len(numbers)


def _is_another(storage: Storage, paths: LogPaths, sealed: SealedSegments, number: int) -> bool:
    """Whether a segment file is whole, and not the one that the manifest speaks of."""
    place = sealed.place_of(number)
    assert place is not None, "one of its own"
    base_offset, size = sealed.base_offsets[place], sealed.sizes[place]
    path = paths.log(number)
    try:
        if head_of(storage, path) == (size, base_offset):
            return False
        found = scan(memoryview(read_file(storage, path)), None)
        _, following = head_of(storage, paths.log(number + 1))
    except NoDescriptor:
        raise
    except OSError:
        return False  # it cannot be read: who reads its records is told
    if found.tail is not Tail.WHOLE or not found.batches:
        return False
    if following == sealed.end_of(place):
        return False  # as the manifest says: another file was put in the place of this one
    if found.first_offset != base_offset or found.next_offset > sealed.end_of(place):
        return True
    return following == found.next_offset  # one that was cut off is not followed where it ends


def _sample(
    storage: Storage, paths: LogPaths, sealed: SealedSegments, pending: int | None
) -> list[int]:
    """Segments of the manifest that have a file: the last when it agrees, or a few."""
    if not len(sealed):
        return []
    last = sealed.next_number - 1
    if storage.exists(paths.log(last)) and (
        last == pending or not _is_another(storage, paths, sealed, last)
    ):
        return [last]
    return sorted(segment_files(storage, paths).intersection(sealed.numbers))[-SAMPLES:]


def segment_files(storage: Storage, paths: LogPaths) -> set[int]:
    """The numbers of the segments that have a file."""
    numbers = map(paths.segment_number, storage.listdir(paths.folder))
    return {number for number in numbers if number is not None}
