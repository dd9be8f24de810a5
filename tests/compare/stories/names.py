"""What producers, members and topics are called in a story, whatever numbers a broker gave them."""

from uuid import UUID


class Names:
    """Those of one broker.

    Attributes:
        topics: name of a topic by its id; those of deleted ones, too.
    """

    def __init__(self) -> None:
        self.topics: dict[UUID, str] = {}
        self._producers: dict[int, str] = {}
        self._members: dict[str, str] = {}

    def producer(self, number: int) -> str:
        """A producer id: they are counted in the order in which they are met."""
        return self._producers.setdefault(number, f"<producer {len(self._producers)}>")

    def met(self, member_id: str, whose: str) -> None:
        """Somebody was given a member id."""
        if member_id and member_id not in self._members:
            count = sum(name.startswith(f"<{whose} ") for name in self._members.values())
            self._members[member_id] = f"<{whose} {count}>"

    def member(self, member_id: str) -> str:
        """Whose id it is; one that nobody has been told yet is somebody's."""
        return self._members.get(member_id, "<somebody>")
