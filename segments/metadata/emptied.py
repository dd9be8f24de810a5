"""When groups with committed offsets lost their last member: control events.

    section "emptied" of the snapshot: {group: at_ms}

| event | fields | afterwards |
|---|---|---|
| group_emptied | group, at (ms since 1970) | nobody was in the group from then on |
| ... with `at` null | | nothing is known of it |

The offsets of a group are kept for so long after its last commit or its last member.  A group that
had nothing to commit for a week would lose them at a restart, if the second time were forgotten.
Every function here is pure: what it was given stays as it is.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from .name_map import NameMap

SECTION: Final = "emptied"
EMPTIED: Final = "group_emptied"

Content: TypeAlias = Mapping[str, int]


def changed(content: Content | None, fields: Mapping[str, Any]) -> Content:
    """After group_emptied."""
    groups = NameMap.of(content).draft()
    if fields["at"] is None:
        groups.pop(fields["group"], None)
    else:
        groups[fields["group"]] = fields["at"]
    return groups.done()


def emptied_ms(content: Content | None, group: str) -> int:
    """When the group lost its last member; -1: that is not known."""
    return (content or {}).get(group, -1)
