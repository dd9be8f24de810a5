"""Where the values of a byte stream begin and end.

    Lines       one|\n|two|\n|thr| + |ee|        -> one, two, three     the last needs no separator
    FixedSize   |abcd|efgh|ij| + |kl|            -> abcd, efgh, ijkl    a short last one is an error
    WholeStream |abc| + |def|                    -> abcdef              also when it is empty

Bytes in, values out: a splitter is fed the pieces of the stream, however the network cut them, and
yields each value when it is whole.  Values are yielded one by one, so whoever takes them may stop
a large piece in the middle, append, and go on.

Invariant: a splitter holds no more than one unfinished value, and refuses it (BatchTooLarge) as
soon as it is larger than any record the log would take; so memory is bounded by the log's
max.message.bytes plus one piece.  Values are measured as they are: compression does not help.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from ..errors import BatchTooLarge, StreamCutShort


class Splitter(Protocol):
    """The state of one stream."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The values that `piece` completes.  To be exhausted before the next.  BatchTooLarge."""
        ...

    def finish(self) -> Iterator[bytes]:
        """What the end of the stream completes.  Raises StreamCutShort."""
        ...


class Framing(Protocol):
    """How a stream is cut; a value that starts many streams."""

    def splitter(self, value_size_max: int) -> Splitter: ...


@dataclass(frozen=True, slots=True)
class Lines:
    """Values end with `separator`, which is not part of them."""

    separator: bytes = b"\n"

    def __post_init__(self) -> None:
        if not self.separator:
            raise ValueError("separator=b'': a line ends with at least one byte")

    def splitter(self, value_size_max: int) -> Splitter:
        return _LineSplitter(self.separator, value_size_max)


@dataclass(frozen=True, slots=True)
class FixedSize:
    """Values have `size` bytes each."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size={self.size}: a value has at least one byte")

    def splitter(self, value_size_max: int) -> Splitter:
        return _FixedSplitter(self.size, value_size_max)


@dataclass(frozen=True, slots=True)
class WholeStream:
    """The stream is one value."""

    def splitter(self, value_size_max: int) -> Splitter:
        return _WholeSplitter(value_size_max)


class _Unfinished:
    """The value under way, with its limit."""

    def __init__(self, value_size_max: int) -> None:
        self.rest = bytearray()
        self._value_size_max = value_size_max

    def check(self, size: int) -> None:
        if size > self._value_size_max:
            raise BatchTooLarge(size, self._value_size_max, "max.message.bytes")

    def take(self) -> bytes:
        value = bytes(self.rest)
        self.rest.clear()
        return value


class _LineSplitter(_Unfinished):
    def __init__(self, separator: bytes, value_size_max: int) -> None:
        super().__init__(value_size_max)
        self._separator = separator

    def feed(self, piece: bytes) -> Iterator[bytes]:
        rest, separator = self.rest, self._separator
        start = 0
        # A separator may begin in what is held and end in the piece.
        if rest:
            searched = max(0, len(rest) - len(separator) + 1)
            joint = bytes(rest[searched:]) + piece[: len(separator) - 1]
            found = joint.find(separator)
            if found >= 0:
                start = found + len(separator) - (len(rest) - searched)
                del rest[searched + found :]
            else:
                found = piece.find(separator)
                if found < 0:
                    self.check(len(rest) + len(piece))
                    rest += piece
                    return
                self.check(len(rest) + found)
                rest += piece[:found]
                start = found + len(separator)
            yield self.take()
        while (end := piece.find(separator, start)) >= 0:
            self.check(end - start)
            yield piece[start:end]
            start = end + len(separator)
        self.check(len(piece) - start)
        rest += piece[start:]

    def finish(self) -> Iterator[bytes]:
        if self.rest:
            yield self.take()


class _FixedSplitter(_Unfinished):
    def __init__(self, size: int, value_size_max: int) -> None:
        super().__init__(value_size_max)
        self.check(size)
        self._size = size

    def feed(self, piece: bytes) -> Iterator[bytes]:
        size, start = self._size, 0
        if self.rest:
            start = size - len(self.rest)
            self.rest += piece[:start]
            if len(self.rest) < size:
                return
            yield self.take()
        while len(piece) - start >= size:
            yield piece[start : start + size]
            start += size
        self.rest += piece[start:]

    def finish(self) -> Iterator[bytes]:
        if self.rest:
            raise StreamCutShort(len(self.rest), self._size)
        return iter(())


class _WholeSplitter(_Unfinished):
    def feed(self, piece: bytes) -> Iterator[bytes]:
        self.check(len(self.rest) + len(piece))
        self.rest += piece
        return iter(())

    def finish(self) -> Iterator[bytes]:
        yield self.take()
