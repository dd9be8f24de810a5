"""The rows of a section, and a table of them: one more among ten thousand looks at none of these.

    {"rows": [row, ...]}    as the snapshot has them
    by_key                  key -> row, in the same order

A copy of a table takes the hashes of its keys along.  To make a table of the rows takes ten times
as long, and more: it is done once, of what a snapshot has.

Invariant: neither is ever changed; whoever holds one may read it without a lock.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

K = TypeVar("K")


class KeyedRows(dict[str, Any]):
    """The content of such a section."""

    __slots__ = ("by_key",)

    def __init__(self, by_key: Mapping[Any, Any]) -> None:
        super().__init__(rows=list(by_key.values()))
        self.by_key = by_key


def table_of(content: Mapping[str, Any] | None, key_of: Callable[[Any], K]) -> dict[K, Any]:
    """A table of the rows, to be changed.  key_of: the key of a row, as long as it has none."""
    if isinstance(content, KeyedRows):
        return dict(content.by_key)
    return {key_of(row): row for row in (content or {}).get("rows", ())}
