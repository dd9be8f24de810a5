"""A counter on standard error while records flow; nothing where no person looks.

rich is imported only when there is a terminal to draw on.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TypeAlias

# (records so far, bytes so far)
Update: TypeAlias = Callable[[int, int], object]


@contextmanager
def counter(
    what: str, records: IO[str] | None, *, unit: str = "records", quiet: bool = False
) -> Iterator[Update]:
    """A line such as `sent 1,234,567 records  120.4 MB  0:00:03  36.1 MB/s`, while it grows.

    Args:
        records: the stream with the records. On a terminal they are seen, and no counter is drawn
            between them.  None: there is none.
        unit: what is counted.
        quiet: nobody wants one.
    """
    if quiet or not sys.stderr.isatty() or (records is not None and records.isatty()):
        yield lambda count, size: None
        return
    from rich.console import Console
    from rich.progress import (
        FileSizeColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn(what + " {task.fields[records]:,} " + unit),
        FileSizeColumn(),
        TimeElapsedColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=None, records=0)
        yield lambda count, size: progress.update(task, completed=size, records=count)
