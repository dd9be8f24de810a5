"""What a set of access rules says about one question: pure, and made anew when a rule changes.

    question  principal, host, operation, resource
    1  any matching DENY of this operation, or of ALL                  -> denied
    2  any matching ALLOW of this operation, of ALL, or of one that implies it  -> allowed
    3  otherwise                                                       -> silent: nobody said so

A rule matches when its principal is the asking one or `User:*`, its host is the peer's address or
`*`, and its pattern covers the resource: literal and equal, literal `*`, or prefixed and a prefix.

Index: literal names and prefixes by kind of resource, so that a question looks at the rules of one
name, of `*`, and of the prefixes of the name, whatever else there is.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

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


_ALLOWING: Final[dict[int, frozenset[int]]] = {
    operation: frozenset({operation, Operation.ALL, *IMPLIED_BY.get(operation, ())})
    for operation in Operation
}
_DENYING: Final[dict[int, frozenset[int]]] = {
    operation: frozenset({operation, Operation.ALL}) for operation in Operation
}


class Rules:
    """The rules of one moment."""

    __slots__ = ("_literal", "_prefixed", "_sizes", "acls")

    def __init__(self, acls: Iterable[Acl]) -> None:
        self.acls = tuple(acls)
        self._literal: dict[tuple[int, str], list[Acl]] = {}
        self._prefixed: dict[tuple[int, str], list[Acl]] = {}
        sizes: dict[int, set[int]] = {}
        prefixed = int(PatternType.PREFIXED)  # an enum member costs a look-up for each of 10,000
        for acl in self.acls:
            kind, name, pattern_type = acl[:3]
            if pattern_type == prefixed:
                self._prefixed.setdefault((kind, name), []).append(acl)
                sizes.setdefault(kind, set()).add(len(name))
            else:
                self._literal.setdefault((kind, name), []).append(acl)
        self._sizes = {kind: tuple(sorted(some)) for kind, some in sizes.items()}

    def verdict(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> Verdict:
        """What the rules say about one question."""
        allowing, denying = _ALLOWING[operation], _DENYING[operation]
        allowed = ruled = False
        for acl in self._about(resource_type, name):
            ruled = True
            if not _concerns(acl, principal, host):
                continue
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
        for acl in self.acls:
            if (
                acl.resource_type != resource_type
                or acl.permission != Permission.ALLOW
                or acl.operation not in _ALLOWING[operation]
                or not _concerns(acl, principal, host)
            ):
                continue
            if acl.pattern_type == PatternType.LITERAL and acl.resource_name != WILDCARD:
                asked = self.verdict(principal, host, operation, resource_type, acl.resource_name)
                if asked is Verdict.ALLOWED:
                    return True
            elif not self._denies_all(principal, host, operation, acl):
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
            for acl in table.get((kind, name), ())
        ]

    def _denies_all(self, principal: str, host: str, operation: int, allow: Acl) -> bool:
        """Whether a denial covers everything that a `*` or prefixed rule allows."""
        prefix = "" if allow.pattern_type == PatternType.LITERAL else allow.resource_name
        return any(
            acl.permission == Permission.DENY
            and acl.operation in _DENYING[operation]
            and _concerns(acl, principal, host)
            and (
                acl.resource_name == WILDCARD
                if acl.pattern_type == PatternType.LITERAL
                else prefix.startswith(acl.resource_name)
            )
            for acl in self.acls
            if acl.resource_type == allow.resource_type
        )

    def _about(self, resource_type: int, name: str) -> Iterator[Acl]:
        literal = self._literal
        yield from literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from literal.get((resource_type, WILDCARD), ())
        for size in self._sizes.get(resource_type, ()):
            if size > len(name):
                break
            yield from self._prefixed.get((resource_type, name[:size]), ())


def _concerns(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERYONE) and acl.host in (host, WILDCARD)
