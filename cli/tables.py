"""Columns by spaces: a table that a person reads and `awk` splits.

Clients choose names of groups, members and users.  What of them is no text for a line (a line feed,
an escape of a terminal) is written as an escape of Python.  So a name is on one line, whoever made
it up, and writes to nobody's terminal; --json has it as it is.
"""

from collections.abc import Iterable, Iterator, Sequence, Set


def on_a_line(text: str) -> str:
    """A text without what is not for a line."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def number(value: int | None) -> str:
    """A number in a column; ? for one that nobody knows."""
    return "?" if value is None else f"{value:,}"


def table_lines(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Set[int] = frozenset()
) -> Iterator[str]:
    """Lines of a table, head first.

    Args:
        numbers: columns that are aligned to the right.
    """
    table = [list(head), *(list(map(on_a_line, row)) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        cells = (
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
