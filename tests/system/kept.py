"""What the interpreter keeps of segbroker: its objects, and the rows of what they hold.

    segbroker.broker.groups.groups.Groups            1     objects of this class
    segbroker.broker.groups.groups.Groups._groups   12     rows of this attribute, of all of them
    segbroker.protocol.names:CACHE                   7     rows of a variable of a module

A name that is used once and leaves something behind is seen in one of these, wherever that is, also
where the collector does not look: a dict of strings and numbers.
"""

import gc
import sys
from collections import Counter, deque
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

ROWS: Final = (dict, set, frozenset, list, deque, bytearray)


def kept() -> Counter[str]:
    """How many there are of each now."""
    gc.collect()
    counts: Counter[str] = Counter()
    for one in gc.get_objects():
        kind = type(one)
        if not str(kind.__module__).startswith("segbroker."):
            continue
        name = f"{kind.__module__}.{kind.__qualname__}"
        counts[name] += 1
        for attribute, value in _attributes(one):
            if isinstance(value, ROWS):
                counts[f"{name}.{attribute}"] += len(value)
    for module in [m for m in list(sys.modules.values()) if isinstance(m, ModuleType)]:
        if module.__name__.startswith("segbroker."):
            for variable, value in list(vars(module).items()):
                if isinstance(value, ROWS):
                    counts[f"{module.__name__}:{variable}"] += len(value)
    return counts


def _attributes(one: object) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(one, "__dict__", {}).items())
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            is_private = slot.startswith("__") and not slot.endswith("__")
            attribute = f"_{kind.__name__.lstrip('_')}{slot}" if is_private else slot
            try:
                yield attribute, object.__getattribute__(one, attribute)
            except AttributeError:
                continue  # not set
