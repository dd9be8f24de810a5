"""How many bytes of groups are written down: they are part of every snapshot of the metadata.

Beyond a limit a group is written down without its members: it works as any other, and after a
restart its members are unknown and join again.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

GROUP_SIZE_MAX: Final = 2 << 20
"""Bytes of one group: some 4,000 members, 500 bytes each."""
ALL_SIZES_MAX: Final = 64 << 20
"""Bytes of all of them."""
WITHOUT_MEMBERS: Final = "it goes on; after a restart its members join again"
"""What becomes of a group that is written down so, for the log."""
_NOTHING: Final = ("", 0)
_NO_SIZES: Final[Mapping[str, int]] = MappingProxyType({})


class KeptSizes:
    """The sizes of all groups of one data directory, of either protocol.

    A group is written down as one of a protocol: the section of the snapshot that it is put into
    last has it alone.
    """

    def __init__(self, event_size_max: int) -> None:
        """event_size_max: bytes of one control event, at most."""
        self.size_max = min(GROUP_SIZE_MAX, event_size_max)
        self._sizes: dict[str, tuple[str, int]] = {}
        self._all = 0

    def others(self, group_id: str) -> int:
        """Bytes of all groups but this one."""
        return self._all - self._sizes.get(group_id, _NOTHING)[1]

    def has_room(self, group_id: str, size: int) -> bool:
        """Whether a group can be written down in so many bytes."""
        return size <= self.size_max and self.others(group_id) + size <= ALL_SIZES_MAX

    def put(self, section: str, group_id: str, size: int) -> None:
        """A group is written down in so many bytes."""
        self._all = self.others(group_id) + size
        self._sizes[group_id] = section, size

    def drop(self, section: str, group_id: str) -> None:
        """A group is not written down in this section any more; it may be in the other."""
        if self._sizes.get(group_id, _NOTHING)[0] == section:
            self._all = self.others(group_id)
            del self._sizes[group_id]


class RowSizes:
    """The bytes of a group by member, and their sum: each event asks for that, of thousands."""

    __slots__ = ("_sizes", "total")

    def __init__(self, sizes: Mapping[str, int] = _NO_SIZES) -> None:
        self._sizes = dict(sizes)
        self.total = sum(sizes.values())

    def __getitem__(self, member_id: str) -> int:
        return self._sizes[member_id]

    def put(self, member_id: str, size: int) -> None:
        """The rows of a member have so many bytes."""
        self.total += size - self._sizes.get(member_id, 0)
        self._sizes[member_id] = size

    def drop(self, member_id: str) -> None:
        """It has none any more."""
        self.total -= self._sizes.pop(member_id, 0)
