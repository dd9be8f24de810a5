"""Standard output, whose errors name it.

An OSError that has no file's name may be of anything: of a disk, of a socket.  A full disk behind
`> file` is neither the broker's nor that of a data directory, and a sentence has to say so.
"""

import io
import os
import sys
from typing import Any, Final, TextIO

NAME: Final = "standard output"


class _Named(io.FileIO):
    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer; typing has no name
        try:
            return super().write(data)
        except OSError as exc:
            exc.filename = NAME
            raise


def named(stream: TextIO) -> TextIO:
    """The same stream; what it raises has NAME as its `filename`."""
    raw = _Named(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=bool(stream.line_buffering),
    )


def is_of_stdout(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.filename == NAME


def abandon_stdout() -> None:
    """Let what is still buffered for standard output go nowhere.

    Otherwise the interpreter tries to flush it on exit, and complains.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
