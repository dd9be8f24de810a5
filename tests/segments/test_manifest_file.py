"""The manifest of an open log, where a sync of it fails."""

import pytest

from segbroker.segments.disk.storage import make_dirs, read_file, write_temporary
from segbroker.segments.files.manifest import decode_manifest, encode_manifest, start_row
from segbroker.segments.files.manifest_file import ManifestFile
from segbroker.segments.names import partition_paths

from .crash.recording import Fault, RecordingStorage


def test_rows_whose_sync_failed_are_found_by_nobody() -> None:
    """The next process could go by what no disk has, a checkpoint perhaps."""
    disk, paths = RecordingStorage(), partition_paths("/data", "t", 0)
    make_dirs(disk, paths.folder)
    before = encode_manifest(0, [start_row(0, 0, 0)])
    write_temporary(disk, paths.manifest, before)
    manifest = ManifestFile(disk, paths, len(before), lambda path, content: None)
    disk.faults = [Fault("fdatasync", ".manifest", 0)]
    with pytest.raises(OSError, match="planned"):
        manifest.append([start_row(1, 0, 0)], sync=True)
    found = decode_manifest(read_file(disk, paths.manifest))
    assert found is not None
    assert found.rows == [start_row(0, 0, 0)]
    assert manifest.is_doubtful, "its next rows are of a new file"
