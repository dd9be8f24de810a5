"""Names that are used once leave nothing in a broker and its clients, of whatever kind they are.

A minute later: an alarm stays until it rings, and which lines were written is known for a while.
"""

from collections import Counter

from segbroker.testing.embedded import EmbeddedBroker

from ..support.waiting import until
from .coming_and_going import SETTINGS, prepare, use_once
from .kept import kept

NAMES = 3
"""Used before each look."""
DISK = "segbroker.segments.disk.memory."
BOUNDED = {
    # The epochs of 10,000 deleted topics: one of the same name begins above.
    "segbroker.segments.metadata.metadata.Metadata.retired",
}


class Growth:
    """What has one more for each name between all looks."""

    def __init__(self, *looks: Counter[str]) -> None:
        self._looks = looks

    def rows(self) -> list[str]:
        """By now: what is about to be forgotten still counts."""
        first, second, last = (*self._looks, kept())
        return [
            f"{name}: {first[name]}, {second[name]}, {count}"
            for name, count in last.items()
            if min(second[name] - first[name], count - second[name]) >= NAMES
            and not name.startswith(DISK)
            and name not in BOUNDED
        ]

    def check(self) -> None:
        """As of a member that is waited for: nothing ends it."""

    def state(self) -> str:
        return "\n".join(self.rows())


def test_what_comes_and_goes_leaves_nothing() -> None:
    looks = []
    with EmbeddedBroker(**SETTINGS) as broker:
        prepare(broker.address)
        for number in range(3 * NAMES):
            if number in (NAMES, 2 * NAMES):
                looks.append(kept())
            use_once(broker.address, number)
        growth = Growth(*looks)
        until(lambda: not growth.rows(), growth, pause_s=5)


class Planted:
    """A class of segbroker that forgets nothing."""

    __module__ = "segbroker.planted"
    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[str, int] = {}


def test_what_grows_with_each_name_is_told_of() -> None:
    planted, looks = Planted(), []
    for number in range(3 * NAMES):
        if number in (NAMES, 2 * NAMES):
            looks.append(kept())
        planted._names[f"one-{number}"] = number
    assert "segbroker.planted.Planted._names: 3, 6, 9" in Growth(*looks).rows()
