"""What topics have where nothing is set on them: chosen for all of them, kept as a control event.

    section "topic_defaults": {"values": {topic setting: value as text}}

| event | fields | afterwards |
|---|---|---|
| topic_defaults_set | values {topic setting: text} | these and no others are below every topic's |

They are part of the state, not of a program's start: who opens the directory without the broker
(verify, dump) sees the topics as they were served.  Whoever serves sets them at its start when they
are others than those (docs/decisions/0189).
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

SECTION: Final = "topic_defaults"
SET: Final = "topic_defaults_set"

Content: TypeAlias = Mapping[str, Any]


def defaults_of(sections: Mapping[str, Any]) -> Mapping[str, str]:
    """Topic settings that are chosen for all topics; of the sections of a snapshot."""
    values: Mapping[str, str] = (sections.get(SECTION) or {}).get("values", {})
    return values


def changed(fields: Mapping[str, Any]) -> Content:
    """After topic_defaults_set."""
    return {"values": dict(fields["values"])}
