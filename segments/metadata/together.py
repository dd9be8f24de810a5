"""Rows of one kind written down together: in as few control events as hold them."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Row = TypeVar("Row")


def together(
    rows: Iterable[Row], size_of: Callable[[Row], int], rows_max: int, bytes_max: int
) -> Iterator[list[Row]]:
    """The rows in pieces of at most rows_max and, but for a row that is larger, bytes_max."""
    piece: list[Row] = []
    left = bytes_max
    for row in rows:
        size = size_of(row)
        if piece and (size > left or len(piece) == rows_max):
            yield piece
            piece, left = [], bytes_max
        piece.append(row)
        left -= size
    if piece:
        yield piece
