"""Columns by spaces: a table that a person reads and `awk` splits.

Names of groups, users and clients are whatever somebody chose: control characters in them are
printed as escapes, so that none writes to a terminal or makes a row of its own.
"""

from collections.abc import Iterable, Iterator, Sequence, Set


def shown(text: str) -> str:
    """A name as it is printed: what cannot be, as an escape."""
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
    table = [list(head), *([shown(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        cells = (
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
