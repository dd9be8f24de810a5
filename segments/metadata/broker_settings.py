"""Settings of brokers and of groups that were changed while it ran, kept as control events.

    sections "broker_settings", "group_settings": {"rows": {resource: {key: value as text}}}

| event | fields | afterwards |
|---|---|---|
| broker_settings_set | resource, values {key: value} | it has these, and no others |
| group_settings_set | resource, values {key: value} | the same of a group |

A resource is the id of a broker, or "" for what holds for every broker; the name of a group.  What
the keys mean, and whether their values can be, is decided by the broker.  Every function is pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

SECTION: Final = "broker_settings"
SET: Final = "broker_settings_set"
GROUP_SECTION: Final = "group_settings"
GROUP_SET: Final = "group_settings_set"

Content: TypeAlias = Mapping[str, Any]
Fields: TypeAlias = Mapping[str, Any]


def settings_of(content: Content | None) -> Mapping[str, Mapping[str, str]]:
    """What is set, by resource: as it is kept, for it may be of ten thousand groups."""
    rows: Mapping[str, Mapping[str, str]] = (content or {}).get("rows", {})
    return rows


def changed(content: Content | None, run: Iterable[Fields]) -> Content:
    """After a run of either event: a copy of which resources there are, not of what each has."""
    rows = dict(settings_of(content))
    for fields in run:
        if fields["values"]:
            rows[fields["resource"]] = dict(fields["values"])
        else:
            rows.pop(fields["resource"], None)
    return {"rows": rows}
