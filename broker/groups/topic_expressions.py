"""The expressions of one group, and the topics that each of them matches.

A look at all topics is work of the loop, and whoever may join may send an expression that makes
every step a new one.  So a heartbeat pays for LOOK_COST_MAX of it (some tens of ms), and the rest
is done at the following ones: what is matched so far is read meanwhile.  Ten thousand topics and
an ordinary expression are done at once.  What was matched once stays so: a new topic costs its own
name, not a look at all others.

Whose expression it is counts: it matches what that one may describe, looked at anew whenever
topics have changed.

Limit: PATTERNS_MAX expressions of one group; one more is refused with INVALID_REGULAR_EXPRESSION.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from segbroker.protocol.errors import ErrorCode

from ..refused import Refused
from .consumer_members import MaySee, Sight
from .topic_regex import InvalidRegex, TopicRegex

PATTERNS_MAX: Final = 32
LOOK_COST_MAX: Final = 300_000


class _Compiled(NamedTuple):
    regex: TopicRegex
    matched: set[str]
    """Of the names that were looked at."""
    looked: set[str]

    def look(self, topics: Collection[str], room: int) -> int:
        """Match names that are new, for about `room`; what it cost."""
        began = self.regex.cost
        self.matched.intersection_update(topics)
        self.looked.intersection_update(topics)
        for name in topics:
            if name in self.looked:
                continue
            if self.regex.cost - began >= room:
                break
            self.looked.add(name)
            if self.regex.matches(name):
                self.matched.add(name)
        return self.regex.cost - began


@dataclass(slots=True)
class Expressions:
    """See the module."""

    is_done: bool = True
    """Whether every name was looked at."""
    _compiled: dict[str, _Compiled] = field(default_factory=dict)
    _viewers: dict[Sight, MaySee] = field(default_factory=dict)
    _names: dict[Sight, frozenset[str]] = field(default_factory=dict)

    def compiled(self, pattern: str) -> TopicRegex:
        """The expression, if it can be subscribed by; nothing changes yet.  Raises Refused."""
        if pattern in self._compiled:
            return self._compiled[pattern].regex
        if len({sight.pattern for sight in self._viewers}) >= PATTERNS_MAX:
            raise Refused(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"the group has {PATTERNS_MAX} different expressions; its members share a few",
            )
        try:
            return TopicRegex(pattern)
        except InvalidRegex as exc:
            raise Refused(
                ErrorCode.INVALID_REGULAR_EXPRESSION, f"expression {pattern!r}: {exc}"
            ) from exc

    def take(self, regex: TopicRegex, viewer: str, may_see: MaySee) -> None:
        """A member subscribes by it."""
        self._compiled.setdefault(regex.pattern, _Compiled(regex, set(), set()))
        sight = Sight(regex.pattern, viewer)
        if sight not in self._viewers:
            self.is_done = False
        self._viewers[sight] = may_see

    def look(self, topics: Mapping[str, object]) -> None:
        """Go on matching; `names` are as far as it came."""
        room = LOOK_COST_MAX
        for compiled in self._compiled.values():
            if room > 0:
                room -= compiled.look(topics.keys(), room)
        self.is_done = all(
            len(compiled.looked) == len(topics) for compiled in self._compiled.values()
        )
        self._names = {
            sight: frozenset(filter(may_see, self._compiled[sight.pattern].matched))
            for sight, may_see in self._viewers.items()
        }

    def names(self, sight: Sight) -> frozenset[str]:
        """What an expression matches of what its viewer may see, as far as was looked."""
        return self._names.get(sight, frozenset())

    def matches(self, sight: Sight, name: str) -> bool:
        """Whether an expression matches a topic that its viewer may see, looked at now if it has
        to be."""
        found = self._compiled[sight.pattern]
        if name not in found.looked:
            found.looked.add(name)
            if found.regex.matches(name):
                found.matched.add(name)
        return name in found.matched and self._viewers[sight](name)

    def keep(self, used: Collection[Sight]) -> None:
        """Forget those that nobody is subscribed by any more."""
        self._viewers = {one: see for one, see in self._viewers.items() if one in used}
        patterns = {sight.pattern for sight in self._viewers}
        self._compiled = {text: one for text, one in self._compiled.items() if text in patterns}
