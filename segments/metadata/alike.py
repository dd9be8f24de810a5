"""Which topics have names that differ in nothing but `.` and `_`: x.y and x_y.

    "x_y" -> ("x.y",)        by the name with every . as _; names without either are not here

Kafka makes no topic beside one of such a name, for the metrics of both would have one name.  Here
it is the same, so that what is made here can be made there.  Topics that exist already go on.
"""

from collections.abc import Iterable
from typing import TypeAlias

from .name_map import NameMap

AlikeNames: TypeAlias = NameMap[tuple[str, ...]]


def folded(name: str) -> str:
    """What all names that are alike have in common."""
    return name.replace(".", "_")


def first_alike(known: AlikeNames, name: str) -> str | None:
    """A topic that a topic of this name would collide with; None: there is none."""
    return next((other for other in known.get(folded(name), ()) if other != name), None)


def with_names(known: AlikeNames, names: Iterable[str]) -> AlikeNames:
    """With these, of which some may be known."""
    draft = known.draft()
    for name in filter(_may_collide, names):
        key = folded(name)
        there = draft.get(key, ())
        if name not in there:
            draft[key] = (*there, name)
    return draft.done()


def without_names(known: AlikeNames, names: Iterable[str]) -> AlikeNames:
    """Without these."""
    draft = known.draft()
    for name in filter(_may_collide, names):
        key = folded(name)
        draft[key] = tuple(other for other in draft.get(key, ()) if other != name)
        if not draft[key]:
            del draft[key]
    return draft.done()


def _may_collide(name: str) -> bool:
    return "." in name or "_" in name
