"""Standard output, whose errors name it.

An OSError that has no file's name may be of anything: of a disk, of a socket.  A full disk behind
`> file` is neither the broker's nor that of a data directory, and a sentence has to say so.

They are named where the buffer is written to and flushed, and not in the raw file below it: with a
signal whose handler raises there, behind what was written, the buffer would believe that nothing
was, and write all of it again at the end.
"""

import io
import os
import sys
from typing import Any, Final, TextIO

NAME: Final = "standard output"


class _Named(io.BufferedWriter):
    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer; typing has no name
        try:
            return super().write(data)
        except OSError as exc:
            exc.filename = NAME
            raise

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as exc:
            exc.filename = NAME
            raise


def named(stream: TextIO) -> TextIO:
    """The same stream; what it raises has NAME as its `filename`.

    What the encoding of the terminal does not have (a group may have any name) is escaped, as
    Python does it on standard error.
    """
    errors = stream.errors
    return io.TextIOWrapper(
        _Named(io.FileIO(stream.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors="backslashreplace" if errors in ("strict", "surrogateescape") else errors,
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
