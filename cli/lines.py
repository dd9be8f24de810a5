"""Standard input as lines: binary safe, handed on as they arrive, in constant memory.

A line ends with \\n and is handed on without it; bytes after the last \\n are a line too, if the
input ends there.  If the reading is stopped there, they may be the first half of one, and are none.

What one read brought is one list, so that a fast producer pays per read and not per line, and a
line typed at a terminal is there at once.

A line longer than LINE_SIZE_MAX is refused as soon as that many bytes are held: no broker would
take it, and a file without newlines must not fill the memory.
"""

from collections.abc import Callable, Iterator

from segbroker.protocol.limits import FRAME_SIZE_MAX

READ_SIZE = 1 << 18
# A request carries the record with its key's and headers' sizes, and its own.
LINE_SIZE_MAX = FRAME_SIZE_MAX - (64 << 10)


class LineTooLong(ValueError):
    """A line that no broker would take; it comes behind those that were handed on."""


class LineUnfinished(ValueError):
    """The reading was stopped within a line; it comes behind those that were handed on."""


def read_lines(read: Callable[[int], bytes | None]) -> Iterator[list[bytes]]:
    """Lists of whole lines, none of them empty.

    Args:
        read: reads at most so many bytes, returns what there is, b"" at the end (`os.read`); None
            when it was stopped.

    Raises:
        LineTooLong, LineUnfinished: after the lines before it were handed on.
    """
    held: list[bytes] = []
    held_size = 0
    while data := read(READ_SIZE):
        first, newline, rest = data.partition(b"\n")
        held.append(first)
        held_size += len(first)
        if held_size > LINE_SIZE_MAX:
            raise LineTooLong(f"longer than {LINE_SIZE_MAX} bytes, which no request carries")
        if not newline:
            continue
        lines = rest.split(b"\n")
        last = lines.pop()
        lines.insert(0, b"".join(held))
        held, held_size = [last], len(last)
        yield lines
    if held_size and data is None:
        raise LineUnfinished(f"the first {held_size:,} bytes of a line were read and not sent")
    if held_size:
        yield [b"".join(held)]
