"""Names that count how often one of them is compared with another."""

from typing import ClassVar


class CountedName(str):
    """A name whose comparisons are counted, in all of them together."""

    __slots__ = ()
    compared: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


class CountedBytes(bytes):
    """Bytes, likewise; they count with the names."""

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return super().__eq__(other)

    __hash__ = bytes.__hash__
