"""The expressions of one group, and the topics that each of them matches.

A look at all topics is work of the loop, and whoever may join may send an expression that makes
every step a new one.  So a heartbeat pays for LOOK_COST_MAX of it (some tens of ms), and the rest
is done at the following ones: what is matched so far is read meanwhile.  Ten thousand topics and
an ordinary expression are done at once.  What was matched once stays so: a new topic costs its own
name, not a look at all others.

Whose expression it is counts: it matches what that one may describe.  Each member may be another
one, of another address, so ASKS_MAX names are asked about at a heartbeat, and those who see the
same share one set of names.  A new topic is asked about by itself; all are asked about again when
the access rules have changed, and until that is done the answer is the one before.

Limit: PATTERNS_MAX expressions of one group; one more is refused with INVALID_REGULAR_EXPRESSION.
"""

from collections.abc import Collection, KeysView, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from segbroker.protocol.errors import ErrorCode

from ..refused import Refused
from .consumer_members import MaySee, Sight
from .topic_regex import InvalidRegex, TopicRegex

PATTERNS_MAX: Final = 32
LOOK_COST_MAX: Final = 300_000
ASKS_MAX: Final = 10_000
"""Names that somebody is asked about at one look: some tens of ms."""


class _Change(NamedTuple):
    """What an expression matches now and did not before, and the other way round."""

    new: list[str]
    gone: frozenset[str]


class _Compiled(NamedTuple):
    regex: TopicRegex
    matched: set[str]
    """Of the names that were looked at."""
    looked: set[str]

    def look(self, topics: KeysView[str], room: int) -> _Change:
        """Match names that are new, for about `room`."""
        began = self.regex.cost
        gone = frozenset(self.matched - topics)
        self.matched.difference_update(gone)
        self.looked.intersection_update(topics)
        new = []
        for name in topics:
            if name in self.looked:
                continue
            if self.regex.cost - began >= room:
                break
            self.looked.add(name)
            if self.regex.matches(name):
                new.append(name)
        self.matched.update(new)
        return _Change(new, gone)


@dataclass(slots=True, eq=False)
class _Seen:
    """What somebody sees of what an expression matches."""

    may_see: MaySee
    rules: object
    """Those that were asked."""
    to_ask: list[str]
    names: frozenset[str] = frozenset()
    again: set[str] | None = None
    """While all is asked about again: what was seen so far."""


_Sets: TypeAlias = dict[frozenset[str], frozenset[str]]
_Changed: TypeAlias = dict[tuple[frozenset[str], tuple[str, ...], frozenset[str]], frozenset[str]]


@dataclass(slots=True)
class Expressions:
    """See the module."""

    is_done: bool = True
    """Whether every name was looked at, and asked about."""
    _compiled: dict[str, _Compiled] = field(default_factory=dict)
    _seen: dict[Sight, _Seen] = field(default_factory=dict)

    @property
    def is_current(self) -> bool:
        """Whether a look would find nothing else, as long as the topics are the same."""
        # The rules are those of all who go by any.  Of who goes by none there are PATTERNS_MAX.
        ruled = (seen for seen in self._seen.values() if hasattr(seen.may_see, "rules"))
        one = next(ruled, None)
        return self.is_done and (one is None or one.rules is _rules_of(one.may_see))

    def compiled(self, pattern: str) -> TopicRegex:
        """The expression, if it can be subscribed by; nothing changes yet.  Raises Refused."""
        if pattern in self._compiled:
            return self._compiled[pattern].regex
        if len({sight.pattern for sight in self._seen}) >= PATTERNS_MAX:
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
        if (seen := self._seen.get(sight)) is not None:
            seen.may_see = may_see
            return
        self.is_done = False
        to_ask = list(self._compiled[regex.pattern].matched)
        self._seen[sight] = _Seen(may_see, _rules_of(may_see), to_ask)

    def look(self, topics: Mapping[str, object]) -> None:
        """Go on matching and asking; `names` are as far as it came."""
        room, asks = LOOK_COST_MAX, ASKS_MAX
        changes: dict[str, _Change] = {}
        is_done = True
        for pattern, compiled in self._compiled.items():
            if room > 0:
                began = compiled.regex.cost
                changes[pattern] = compiled.look(topics.keys(), room)
                room -= compiled.regex.cost - began
            # One that had no room may know as many topics as there are, and not those that are.
            is_done &= pattern in changes and len(compiled.looked) == len(topics)
        same: _Sets = {seen.names: seen.names for seen in self._seen.values()}
        changed: _Changed = {}
        for sight, seen in self._seen.items():
            change = changes.get(sight.pattern, _NO_CHANGE)
            asks -= _ask(seen, self._compiled[sight.pattern].matched, change, asks, same, changed)
        self.is_done = is_done and not any(seen.to_ask for seen in self._seen.values())

    def names(self, sight: Sight) -> frozenset[str]:
        """What an expression matches of what its viewer may see, as far as was looked; one object
        for all who see the same."""
        seen = self._seen.get(sight)
        return frozenset() if seen is None else seen.names

    @property
    def seen(self) -> dict[Sight, frozenset[str]]:
        """All `names`."""
        return {sight: seen.names for sight, seen in self._seen.items()}

    def matches(self, sight: Sight, name: str) -> bool:
        """Whether an expression matches a topic that its viewer may see, looked at now if it has
        to be."""
        found = self._compiled[sight.pattern]
        if name not in found.looked:
            found.looked.add(name)
            if found.regex.matches(name):
                found.matched.add(name)
                for other, seen in self._seen.items():
                    if other.pattern == sight.pattern:
                        seen.to_ask.append(name)
        return name in found.matched and self._seen[sight].may_see(name)

    def keep(self, used: Collection[Sight]) -> None:
        """Forget those that nobody is subscribed by any more."""
        self._seen = {one: seen for one, seen in self._seen.items() if one in used}
        patterns = {sight.pattern for sight in self._seen}
        self._compiled = {text: one for text, one in self._compiled.items() if text in patterns}


_NO_CHANGE: Final = _Change([], frozenset())


def _rules_of(may_see: MaySee) -> object:
    """By what it says what it says: other rules are another object."""
    return getattr(may_see, "rules", may_see)


def _ask(
    seen: _Seen, matched: set[str], change: _Change, room: int, same: _Sets, changed: _Changed
) -> int:
    """Ask about up to `room` names; how many it were.

    same: sets of names that there are.  changed: what has become of one by a change.
    """
    rules = _rules_of(seen.may_see)
    if rules is seen.rules:
        seen.to_ask += change.new
    else:
        seen.rules, seen.again, seen.to_ask = rules, set(), list(matched)
    asked, seen.to_ask = seen.to_ask[:room], seen.to_ask[room:]
    more = tuple([name for name in asked if name in matched and seen.may_see(name)])
    if seen.again is not None:
        seen.again.update(more)
        if not seen.to_ask:
            names = frozenset(seen.again & matched)
            seen.names, seen.again = same.setdefault(names, names), None
            return len(asked)
        more = ()
    if more or change.gone:
        key = seen.names, more, change.gone
        if key not in changed:
            names = seen.names.union(more) - change.gone
            changed[key] = same.setdefault(names, names)
        seen.names = changed[key]
    return len(asked)
