"""A disk in front of another: each call goes on as it came; a subclass changes some of them."""

from .storage import Space, Storage, StorageFile, StorageLock


class ForwardingStorage:
    """Another disk, unchanged."""

    __slots__ = ("beneath",)

    def __init__(self, beneath: Storage) -> None:
        self.beneath = beneath
        """The disk that does it."""

    @property
    def unmarked(self) -> dict[str, int]:
        return self.beneath.unmarked

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> StorageFile:
        return self.beneath.open(path, create=create, read_only=read_only)

    def listdir(self, path: str) -> list[str]:
        return self.beneath.listdir(path)

    def fsync_dir(self, path: str) -> None:
        self.beneath.fsync_dir(path)

    def lock(self, path: str, *, only_looks: bool = False) -> StorageLock:
        return self.beneath.lock(path, only_looks=only_looks)

    def space(self, path: str) -> Space | None:
        return self.beneath.space(path)

    def exists(self, path: str) -> bool:
        return self.beneath.exists(path)

    def mkdir(self, path: str) -> None:
        self.beneath.mkdir(path)

    def rmdir(self, path: str) -> None:
        self.beneath.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        self.beneath.rename(source, target)

    def unlink(self, path: str) -> None:
        self.beneath.unlink(path)

    def random_bytes(self, count: int) -> bytes:
        return self.beneath.random_bytes(count)

    def boot_id(self, path: str) -> str:
        return self.beneath.boot_id(path)
