"""The manifest of an open log as a file: rows appended, or all of it replaced.

Kept apart from the format (manifest.py): this is who writes it and when it is durable.  One thread
at a time, under the log's seal lock.
"""

from collections.abc import Iterable, Sequence

from .manifest import Row, encode_manifest
from .storage import Storage, replace_file, write_all


class ManifestFile:
    """Where the next row goes.  `size` is the bytes that are valid."""

    __slots__ = ("_path", "_storage", "size")

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        self.size = size
        self._storage = storage
        self._path = path

    def append(self, rows: Sequence[Row], *, sync: bool = False) -> None:
        """Add rows in one write; durable when this returns with `sync`.  Raises OSError."""
        file = self._storage.open(self._path)
        try:
            encoded = b"".join([row.encode() for row in rows])
            write_all(file, encoded, self.size)
            if sync:
                file.fdatasync()
        finally:
            file.close()
        self.size += len(encoded)

    def replace(self, created_ms: int, rows: Iterable[Row]) -> None:
        """Put these rows in the place of all; durable when this returns.  Raises OSError."""
        encoded = encode_manifest(created_ms, rows)
        replace_file(self._storage, self._path, encoded)
        self.size = len(encoded)
