"""Columns by spaces: a table that a person reads and `awk` splits."""

from collections.abc import Iterable, Iterator, Sequence, Set


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
    table = [list(head), *map(list, rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        cells = (
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
