"""What a set of access rules says about one question: pure, and made anew when a rule changes.

    question  principal, host, operation, resource
    1  any matching DENY of this operation, or of ALL                  -> denied
    2  any matching ALLOW of this operation, of ALL, or of one that implies it  -> allowed
    3  otherwise                                                       -> silent: nobody said so

A rule matches when its principal is the asking one or `User:*`, its host is the peer's address or
`*`, and its pattern covers the resource: literal and equal, literal `*`, or prefixed and a prefix.

Index: literal names and prefixes by kind of resource, and of each what a principal has, so that a
question looks at what one and everybody has of one name, of `*`, and of the prefixes of the name,
whatever else there is: thousands may have a rule each about `*`, or about the cluster.  And what a
principal has of a kind, for who asks about some resource.

A set of rules never changes: `changed` makes another one, which shares with the first what is the
same.  So any thread may ask, and one rule more among thousands costs the loop no indexing of all.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar

from segbroker.protocol.acls import (
    EVERYONE,
    IMPLIED_BY,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from segbroker.segments.metadata.acls import Acl


class Verdict(Enum):
    """What the rules say."""

    ALLOWED = "allowed"
    DENIED = "denied"
    SILENT = "silent"
    """No rule names the asking one."""
    UNRULED = "unruled"
    """No rule at all is about the resource."""


K = TypeVar("K")

_Key: TypeAlias = tuple[int, str]
_Owned: TypeAlias = Mapping[str, Mapping[Acl, None]]
"""By principal; replaced when it changes."""
_Table: TypeAlias = dict[_Key, _Owned]

_PREFIXED: Final = int(PatternType.PREFIXED)  # an enum member costs a look-up for each of 10,000
_PLACE: Final = attrgetter("pattern_type", "resource_type", "resource_name")
_KIND: Final = attrgetter("resource_type")
_PRINCIPAL: Final = attrgetter("principal")
_ALLOWING: Final[dict[int, frozenset[int]]] = {
    operation: frozenset({operation, Operation.ALL, *IMPLIED_BY.get(operation, ())})
    for operation in Operation
}
_DENYING: Final[dict[int, frozenset[int]]] = {
    operation: frozenset({operation, Operation.ALL}) for operation in Operation
}


class Rules:
    """The rules of one moment."""

    __slots__ = ("_all", "_literal", "_of_kind", "_prefixed", "_sizes")

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._all: dict[Acl, None] = {}
        # By kind of resource and name.
        self._literal: _Table = {}
        self._prefixed: _Table = {}
        self._of_kind: dict[int, _Owned] = {}
        # How many prefixes there are of each size, by kind of resource.
        self._sizes: dict[int, Counter[int]] = {}
        self._add(acls)

    @property
    def acls(self) -> Collection[Acl]:
        """All of them, in the order of their creation."""
        return self._all.keys()

    def changed(self, *, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> "Rules":
        """The rules without some and with others; these here stay as they are."""
        rules = Rules(())
        rules._all = self._all.copy()
        rules._literal, rules._prefixed = self._literal.copy(), self._prefixed.copy()
        rules._of_kind = self._of_kind.copy()
        rules._sizes = {kind: sizes.copy() for kind, sizes in self._sizes.items()}
        rules._remove(removed)
        rules._add(added)
        return rules

    def _add(self, acls: Iterable[Acl]) -> None:
        new = [acl for acl in dict.fromkeys(acls) if acl not in self._all]
        self._all.update(dict.fromkeys(new))
        for table, key, some in self._by_place(new):
            if table is self._prefixed and key not in table:
                self._sizes.setdefault(key[0], Counter())[len(key[1])] += 1
            table[key] = _with(table.get(key, {}), some)
        for kind, some in _grouped(new, _KIND).items():
            self._of_kind[kind] = _with(self._of_kind.get(kind, {}), some)

    def _remove(self, acls: Iterable[Acl]) -> None:
        old = [acl for acl in dict.fromkeys(acls) if acl in self._all]
        for acl in old:
            del self._all[acl]
        for table, key, some in self._by_place(old):
            table[key] = _without(table[key], some)
            if table[key]:
                continue
            del table[key]
            if table is self._prefixed:
                kind, size = key[0], len(key[1])
                self._sizes[kind][size] -= 1
                if not self._sizes[kind][size]:
                    del self._sizes[kind][size]
        for kind, some in _grouped(old, _KIND).items():
            self._of_kind[kind] = _without(self._of_kind[kind], some)

    def _by_place(self, acls: Iterable[Acl]) -> Iterator[tuple[_Table, _Key, list[Acl]]]:
        """Where they stand: many rules may be about one name."""
        for (pattern_type, kind, name), some in _grouped(acls, _PLACE).items():
            yield self._prefixed if pattern_type == _PREFIXED else self._literal, (kind, name), some

    def verdict(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> Verdict:
        """What the rules say about one question."""
        allowing, denying = _ALLOWING[operation], _DENYING[operation]
        allowed = ruled = False
        for owned in self._about(resource_type, name):
            ruled = True
            for acl in _concerning(owned, principal, host):
                if acl.permission == Permission.DENY:
                    if acl.operation in denying:
                        return Verdict.DENIED
                elif acl.operation in allowing:
                    allowed = True
        if allowed:
            return Verdict.ALLOWED
        return Verdict.SILENT if ruled else Verdict.UNRULED

    def allows_some(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there may be a resource of this kind on which the operation is allowed."""
        allows: list[Acl] = []
        denied: set[str] = set()  # prefixes
        for acl in _concerning(self._of_kind.get(resource_type, {}), principal, host):
            if acl.permission == Permission.ALLOW:
                if acl.operation in _ALLOWING[operation]:
                    allows.append(acl)
            elif acl.operation in _DENYING[operation]:
                if acl.pattern_type == _PREFIXED:
                    denied.add(acl.resource_name)
                elif acl.resource_name == WILDCARD:
                    return False
        sizes = {len(prefix) for prefix in denied}
        for acl in allows:
            if acl.pattern_type == _PREFIXED:
                if not any(acl.resource_name[:size] in denied for size in sizes):
                    return True
            elif acl.resource_name == WILDCARD or Verdict.ALLOWED is self.verdict(
                principal, host, operation, resource_type, acl.resource_name
            ):
                return True
        return False

    def is_about_all(self, resource_type: int) -> bool:
        """Whether some rule is about every resource of this kind: none is without."""
        return (resource_type, WILDCARD) in self._literal

    def named(self, name: str) -> list[Acl]:
        """The rules, of every kind of resource, whose pattern is this name."""
        return [
            acl
            for table in (self._literal, self._prefixed)
            for kind in ResourceType
            for acls in table.get((kind, name), {}).values()
            for acl in acls
        ]

    def _about(self, resource_type: int, name: str) -> Iterator[_Owned]:
        """Wherever there are rules about it."""
        if owned := self._literal.get((resource_type, name)):
            yield owned
        if name != WILDCARD and (owned := self._literal.get((resource_type, WILDCARD))):
            yield owned
        for size in self._sizes.get(resource_type, ()):
            owned = self._prefixed.get((resource_type, name[:size]))
            if owned and size <= len(name):
                yield owned


def _concerning(owned: _Owned, principal: str, host: str) -> Iterator[Acl]:
    for one in (principal, EVERYONE):
        for acl in owned.get(one, ()):
            if acl.host in (host, WILDCARD):
                yield acl


def _with(owned: _Owned, acls: Iterable[Acl]) -> _Owned:
    more = dict(owned)
    for principal, some in _grouped(acls, _PRINCIPAL).items():
        more[principal] = {**more.get(principal, {}), **dict.fromkeys(some)}
    return more


def _without(owned: _Owned, acls: Iterable[Acl]) -> _Owned:
    less = dict(owned)
    for principal, some in _grouped(acls, _PRINCIPAL).items():
        left = dict(less.pop(principal))
        for acl in some:
            del left[acl]
        if left:
            less[principal] = left
    return less


def _grouped(acls: Iterable[Acl], key: Callable[[Acl], K]) -> dict[K, list[Acl]]:
    groups: dict[K, list[Acl]] = {}
    for acl in acls:
        groups.setdefault(key(acl), []).append(acl)
    return groups
