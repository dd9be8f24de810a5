"""How many bytes of groups are written down: they are part of every snapshot of the metadata.

Beyond a limit a group is written down without its members: it works as any other, and after a
restart its members are unknown and join again.
"""

from typing import Final

GROUP_SIZE_MAX: Final = 2 << 20
"""Bytes of one group: some 4,000 members, 500 bytes each."""
ALL_SIZES_MAX: Final = 64 << 20
"""Bytes of all of them."""


class KeptSizes:
    """The sizes of all groups of one data directory, of either protocol."""

    def __init__(self, event_size_max: int) -> None:
        """event_size_max: bytes of one control event, at most."""
        self.size_max = min(GROUP_SIZE_MAX, event_size_max)
        self._sizes: dict[str, int] = {}
        self._all = 0

    def others(self, group_id: str) -> int:
        """Bytes of all groups but this one."""
        return self._all - self._sizes.get(group_id, 0)

    def has_room(self, group_id: str, size: int) -> bool:
        """Whether a group can be written down in so many bytes."""
        return size <= self.size_max and self.others(group_id) + size <= ALL_SIZES_MAX

    def put(self, group_id: str, size: int) -> None:
        """A group is written down in so many bytes; 0: not any more."""
        self._all = self.others(group_id) + size
        if size:
            self._sizes[group_id] = size
        else:
            self._sizes.pop(group_id, None)
