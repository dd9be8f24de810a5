"""How often each api was asked for, and which error codes the answers had.

    requests   {api key: count}                  of requests that are served
    unserved   count                             of requests whose api or version is none of ours
    errors     {(api key, error code): count}    each row of an answer that has one

An answer about a hundred partitions may have a hundred error codes, and each counts, as in Kafka's
ErrorsPerSec.  Which fields of a message are error codes, and which lists may hold more, is looked
up once per class; so an answer without rows costs one attribute.

The keys are bounded: an api that is not served is never a key, and codes are our own.  It belongs
to the loop; an answer that is made in a lane is counted there by `codes_of` and added here by
`add`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

from segbroker.protocol.schema import Message

_CODE: Final = "error_code"


class _Places(NamedTuple):
    """Where a message of a class has error codes."""

    codes: tuple[str, ...]
    rows: tuple[str, ...]
    """Lists of messages that may have some."""
    structs: tuple[str, ...]


_NOWHERE: Final = _Places((), (), ())
_PLACES: Final[dict[type[Message], _Places]] = {}


class Tally:
    """The counts of one broker since its start."""

    __slots__ = ("errors", "requests", "unserved")

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.unserved = 0
        self.errors: Counter[tuple[int, int]] = Counter()

    @property
    def all_requests(self) -> int:
        """How many have come."""
        return self.requests.total() + self.unserved

    def failed(self, api_key: int, code: int, count: int = 1) -> None:
        """So many rows of an answer have this error code; 0 is none."""
        if code:
            self.errors[api_key, code] += count

    def answered(self, api_key: int, message: Message) -> None:
        """This is the answer to a request."""
        places = _PLACES.get(type(message)) or _places(type(message))
        if places.rows or places.structs:
            self.add(api_key, codes_of(message))
            return
        for name in places.codes:
            if code := getattr(message, name):
                self.errors[api_key, code] += 1

    def add(self, api_key: int, codes: Mapping[int, int]) -> None:
        """The error codes of an answer, and how many rows have each."""
        for code, count in codes.items():
            self.failed(api_key, code, count)


def codes_of(message: Message) -> dict[int, int]:
    """The error codes of an answer but for 0, and how many rows have each.  In any thread."""
    found: dict[int, int] = {}
    _look(message, found)
    return found


def _look(message: Message, found: dict[int, int]) -> None:
    places = _PLACES.get(type(message)) or _places(type(message))
    for name in places.codes:
        if code := getattr(message, name):
            found[code] = found.get(code, 0) + 1
    for name in places.rows:
        rows: Iterable[Message] | None = getattr(message, name)
        for row in rows or ():
            _look(row, found)
    for name in places.structs:
        if (struct := getattr(message, name)) is not None:
            _look(struct, found)


def _places(cls: type[Message]) -> _Places:
    """As `_PLACES` has them; two threads may find the same at once."""
    codes: list[str] = []
    rows: list[str] = []
    structs: list[str] = []
    for one in cast(Any, cls).fields():
        if one.struct is not None:
            if _places(one.struct) is not _NOWHERE:
                (rows if one.is_array else structs).append(one.name)
        elif one.name.endswith(_CODE):
            codes.append(one.name)
    places = _Places(tuple(codes), tuple(rows), tuple(structs))
    found = _PLACES[cls] = places if any(places) else _NOWHERE
    return found
