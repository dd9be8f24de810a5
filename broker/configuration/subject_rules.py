r"""`ssl_principal_mapping_rules`: which user the subject of a certificate is, as Kafka has it.

    RULE:^CN=(.*?),OU=team.*$/$1/L, RULE:^CN=([^,]+).*$/$1@example.org/, DEFAULT

| part           |                                                                          |
|----------------|--------------------------------------------------------------------------|
| pattern        | a regular expression that the whole subject has to match; / is written \/ |
| replacement    | $1 is the first group; \ makes the next letter one of no meaning         |
| L, U, nothing  | the name in small letters, in capitals, as it is                         |
| DEFAULT        | the subject itself                                                       |

The first rule that matches counts.  A subject without one is no user: the connection is closed.

Expressions are Python's here.  They differ from Java's in what is rare in such rules: named groups
and character classes with operations.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ..address import InvalidConfig

RULES: Final = "ssl_principal_mapping_rules"
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<name>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)"
)
_PART: Final = re.compile(r"\\(?P<letter>.)|\$(?P<group>\d+)|(?P<wrong>[\\$])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SubjectRule:
    """One rule; without a pattern DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def name_of(self, subject: str) -> str | None:
        """None: it is about others."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name = self.pattern.sub(self._filled, subject)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)

    def _filled(self, found: re.Match[str]) -> str:
        def part(one: re.Match[str]) -> str:
            if one["letter"]:
                return one["letter"]
            digits = one["group"]
            is_there = len(digits) <= 3 and int(digits) <= found.re.groups
            # A group that is not there is what is written, as in Kafka.
            return (found[int(digits)] or "") if is_there else f"${digits}"

        return _PART.sub(part, self.replacement)


@lru_cache(maxsize=64)
def parse_rules(text: str, key: str = RULES) -> tuple[SubjectRule, ...]:
    """The rules in their order; of "" DEFAULT.  key: what it is called in errors.

    Raises:
        InvalidConfig: it is no list of them.
    """
    rules, at = [], 0
    while text[at:].strip():
        found = _RULE.match(text, at)
        if found is None:
            raise InvalidConfig(
                f"{key}: {text[at:].strip()[:80]!r} is neither DEFAULT nor "
                "RULE:pattern/replacement/ with L, U or nothing behind it"
            )
        at = found.end()
        rules.append(SubjectRule(None) if found["default"] else _rule(found, key))
    return tuple(rules) or (SubjectRule(None),)


def user_of(subject: str, rules: str) -> str | None:
    """Whose certificate it is; None: no rule is about it."""
    names = (rule.name_of(subject) for rule in parse_rules(rules))
    return next((name for name in names if name is not None), None)


def _rule(found: re.Match[str], key: str) -> SubjectRule:
    try:
        pattern = re.compile(found["pattern"])
    except (re.error, RecursionError, OverflowError) as exc:
        raise InvalidConfig(f"{key}: the pattern {found['pattern']!r}: {exc}") from exc
    if any(part["wrong"] for part in _PART.finditer(found["name"])):
        raise InvalidConfig(
            f"{key}: the replacement {found['name']!r} has a $ that is not $1, $2 ...; "
            "write \\$ for the letter"
        )
    return SubjectRule(pattern, found["name"], found["case"])
