"""What a class promises, undone rule by rule: what the cases of changing classes have to find.

`python -m tests.soak.failing_classes --undone` counts how many cases that takes.  As with the
planted bugs of segments/, nothing of the broker may be imported before one is undone.
"""

from typing import Final

from ..segments.planted.planting import Bug

HARNESS: Final = "failing_classes"
CASES_MAX: Final = 300

UNDONE: Final[tuple[Bug, ...]] = ()
