"""A line in which addresses take turns, however many connections each has waiting.

    put("A", 1) put("A", 2) put("A", 3) put("B", 4)     take: 1, 4, 2, 3

Within an address, whatever came first is first, unless another one is put before it.  So an address
with a thousand connections in the line has one turn in a round, like every other.

Limit: an address is remembered as long as it has something in the line.  What nobody wants any more
stays in the line until its turn has come, unless it leaves, so the line may be longer than there
are connections.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class AddressLine(Generic[Item]):
    """See the module."""

    __slots__ = ("_by_host",)

    def __init__(self) -> None:
        # The address whose turn is next comes first.
        self._by_host: OrderedDict[str, deque[Item]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._by_host)

    def __len__(self) -> int:
        return sum(map(len, self._by_host.values()))

    def put(self, host: str, item: Item) -> None:
        """Wait in the line."""
        self._by_host.setdefault(host, deque()).append(item)

    def put_first(self, host: str, item: Item) -> None:
        """Wait before the others of its address, whose turn is when it was."""
        self._by_host.setdefault(host, deque()).appendleft(item)

    def put_back(self, host: str, item: Item) -> None:
        """It was taken too early: it is the next one, and its address has the next turn."""
        self._by_host.setdefault(host, deque()).appendleft(item)
        self._by_host.move_to_end(host, last=False)

    def first(self) -> Item:
        """Whose turn is next; the line is not empty."""
        return next(iter(self._by_host.values()))[0]

    def next_host(self, may_go_on: Callable[[str, Item], bool]) -> str | None:
        """The address whose turn is next of those whose first may go on; None: nobody's."""
        for host, waiting in self._by_host.items():
            if may_go_on(host, waiting[0]):
                return host
        return None

    def first_of(self, host: str) -> Item:
        """The first of an address that is in the line."""
        return self._by_host[host][0]

    def take(self, host: str | None = None) -> Item:
        """Whose turn is next, or the first of an address, out of the line; its address goes to the
        end."""
        host = next(iter(self._by_host)) if host is None else host
        waiting = self._by_host.pop(host)
        item = waiting.popleft()
        if waiting:
            self._by_host[host] = waiting
        return item

    def leave(self, host: str, item: Item) -> None:
        """It is not waited for any more; it is in the line."""
        waiting = self._by_host[host]
        waiting.remove(item)
        if not waiting:
            del self._by_host[host]
