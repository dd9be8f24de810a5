"""Groups in a section, a row of each by its name: what is the same for every protocol.

An event is about one group.  One that says that nothing is known of it any more has null in a field
that else says something; `null_if_forgotten` names it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from .name_map import NameMap

Row: TypeAlias = Mapping[str, Any]
Content: TypeAlias = Mapping[str, Row]
Fields: TypeAlias = Mapping[str, Any]


def groups_after(
    content: Content | None,
    events: Iterable[Fields],
    row_after: Callable[[Row | None, Fields], Row],
    null_if_forgotten: str,
) -> Content:
    """After these events, in this order: what they change is copied once.

    row_after: the row of a group after an event, and before it; None: nothing was known.
    """
    groups = NameMap.of(content).draft()
    for fields in events:
        name = fields["group"]
        if fields[null_if_forgotten] is None:
            groups.pop(name, None)
        else:
            groups[name] = row_after(groups.get(name), fields)
    return groups.done()


def epoch_of(content: Content | None, group: str) -> int:
    """The last epoch that is known of a group, of those that have one; 0: nothing is."""
    row = (content or {}).get(group)
    return 0 if row is None else int(row["epoch"])
