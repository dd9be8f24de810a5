"""Regular expressions for topic names that no expression can make slow.

A member may subscribe by expression (KIP-848), and whoever may join may send any.  Python's `re`
backtracks: one `(a+)+$` would stop the whole broker, in a thread too.  Here an expression becomes
a set of states that moves over a name once, so matching is linear in the name, whatever the
expression: RE2's way, and RE2's language as far as names need it.

    literals  \\. and so on   \\t \\n \\x41 \\x{41} \\101   \\Qas it stands\\E
    .   [a-z] [^a-z] [[:alpha:]] [[:^alpha:]]   \\d \\w \\s \\D \\W \\S   ^ $ \\A \\z
    ( ) (?: ) (?P<name> ) (?<name> )   |   * + ? {n} {n,} {n,m}, also lazy
    (?i) (?s) (?m) (?U), to the end of the group; (?i: ) (?-i)

Names of topics have the characters of ALPHABET; who matches other names says which they have.

Anything else (back references, look-around) is refused, as RE2 does.  So are a few things that RE2
takes: \\b and \\B, classes of Unicode (\\pL), and (?m) where names may have several lines.  The
whole name has to match.

Limits: PATTERN_SIZE_MAX characters, STATES_MAX states after counted repetitions are written out,
DEPTH_MAX nested groups; beyond them the expression is refused.  Sets of states that were met are
kept, each once, with where their characters lead, until CACHE_MAX states are in them (some MiB);
then the table begins anew.
"""

import re
from collections.abc import Iterable
from typing import Final, TypeAlias, cast

PATTERN_SIZE_MAX: Final = 1_000
STATES_MAX: Final = 1_000
REPEAT_MAX: Final = 1_000
DEPTH_MAX: Final = 50
CACHE_MAX: Final = 200_000
_SET_COST: Final = 50  # as many states as a set of none costs, with where its characters lead

_DIGITS: Final = frozenset("0123456789")
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_WORD: Final = _DIGITS | _LETTERS | {"_"}
ALPHABET: Final = _WORD | {".", "-"}
"""What a topic name is made of."""
_NOTHING: Final[frozenset[str]] = frozenset()
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": frozenset(" \t\n\f\r")}
"""And in capitals: whatever else is in the alphabet."""
_POSIX: Final = {
    "alnum": _DIGITS | _LETTERS,
    "alpha": _LETTERS,
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, (*range(32), 127))),
    "digit": _DIGITS,
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(filter(str.islower, _LETTERS)),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(map(chr, range(33, 127))) - _DIGITS - _LETTERS,
    "space": frozenset("\t\n\v\f\r "),
    "upper": frozenset(filter(str.isupper, _LETTERS)),
    "word": _WORD,
    "xdigit": frozenset("0123456789abcdefABCDEF"),
}
_LIKE_ASCII: Final = {"s": "\u017f", "k": "\u212a"}
_CASES: Final = {
    one: cases
    for letter in _POSIX["lower"]
    for cases in [frozenset({letter, letter.upper(), _LIKE_ASCII.get(letter, letter)})]
    for one in cases
}
"""What (?i) takes for each other, of all of Unicode: the others are never a character of ASCII."""
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_REPEATS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_BOUNDS: Final = re.compile(r"\{(0|[1-9][0-9]*)(,(0|[1-9][0-9]*)?)?\}", re.ASCII)
_NAMED_GROUP: Final = re.compile(r"\?P?<([A-Za-z0-9_]+)>", re.ASCII)
_FLAGS: Final = re.compile(r"\?([imsU]*)(-[imsU]+)?([:)])", re.ASCII)
_CHARACTERS, _SPLIT, _START, _END, _FOUND = range(5)

_FOUND_AT: Final = frozenset({0})
"""Where a match ends."""

_State: TypeAlias = tuple[int, frozenset[str], int, int]
"""What kind; which characters it takes; where to go, and where else (a split)."""
_Node: TypeAlias = tuple[str, object]
_States: TypeAlias = frozenset[int]


class InvalidRegex(Exception):
    """Not an expression, or none that is taken here."""


class _Parser:
    """From text to a tree of (kind, content)."""

    def __init__(self, text: str, alphabet: frozenset[str]) -> None:
        self.text = text
        self.alphabet = alphabet
        self.at = 0
        self.depth = 0
        self.folds = False
        self.dot_takes_lines = False
        self.names: set[str] = set()

    def parse(self) -> _Node:
        node = self.alternatives()
        if self.at < len(self.text):
            raise InvalidRegex(f"unexpected {self.text[self.at]!r} at {self.at}")
        return node

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        if self.at >= len(self.text):
            raise InvalidRegex("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def alternatives(self) -> _Node:
        branches = [self.sequence()]
        while self.peek() == "|":
            self.take()
            branches.append(self.sequence())
        return ("any", branches) if len(branches) > 1 else branches[0]

    def sequence(self) -> _Node:
        items: list[_Node] = []
        while self.peek() not in ("", "|", ")"):
            if not self.text.startswith("\\Q", self.at):
                items.append(self.repeated(self.atom()))
            elif literals := self.quoted():
                items += literals[:-1]
                items.append(self.repeated(literals[-1]))
        return ("all", items)

    def quoted(self) -> list[_Node]:
        """What stands between \\Q and \\E, or the end, as it stands."""
        literal, end, _ = self.text[self.at + 2 :].partition("\\E")
        self.at += 2 + len(literal) + len(end)
        return [("set", self.fold({character})) for character in literal]

    def repeated(self, node: _Node) -> _Node:
        found = self.repetition()
        if found is None:
            return node
        if self.peek() == "?":
            self.take()  # lazy: which match is found first does not matter here
        begin = self.at
        if self.repetition() is not None:
            raise InvalidRegex(f"a repetition of a repetition at {begin}")
        return ("repeat", (node, *found))

    def repetition(self) -> tuple[int, int | None] | None:
        """How often, if that is what comes next; a { that is none stands for itself."""
        if (found := _REPEATS.get(self.peek())) is not None:
            self.take()
            return found
        match = _BOUNDS.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        first, comma, last = match.groups()
        least = int(first)
        most = int(last) if last else None if comma else least
        if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
            raise InvalidRegex(f"bounds {match[0]}, at most {REPEAT_MAX}")
        return least, most

    def atom(self) -> _Node:
        match self.take():
            case "(":
                return self.group()
            case "[":
                return ("set", self.bracket())
            case ".":
                return ("set", self.alphabet - ({"\n"} if not self.dot_takes_lines else set()))
            case "^":
                return ("start", None)
            case "$":
                return ("end", None)
            case "\\":
                return self.escape()
            case sign if sign in _REPEATS or _BOUNDS.match(self.text, self.at - 1):
                raise InvalidRegex(f"nothing to repeat at {self.at - 1}")
            case "{" if self.repetition() is not None:
                raise InvalidRegex(f"a brace that is repeated at {self.at}")  # so does RE2/J
            case character:
                return ("set", self.fold({character}))

    def group(self) -> _Node:
        if self.depth == DEPTH_MAX:
            raise InvalidRegex(f"more than {DEPTH_MAX} nested groups")
        before = self.folds, self.dot_takes_lines
        if self.peek() == "?" and not self.opened():
            if self.repetition() is not None:
                raise InvalidRegex(f"nothing to repeat at {self.at}")
            return ("all", [])
        self.depth += 1
        node = self.alternatives()
        self.depth -= 1
        if self.take() != ")":
            raise InvalidRegex("a group without its end")
        self.folds, self.dot_takes_lines = before
        return node

    def opened(self) -> bool:
        """Read what stands behind `(`: whether a group begins; else it was flags for this one."""
        if (named := _NAMED_GROUP.match(self.text, self.at)) is not None:
            if named[1] in self.names:
                raise InvalidRegex(f"two groups of the name {named[1]!r}")
            self.names.add(named[1])
            self.at = named.end()
            return True
        match = _FLAGS.match(self.text, self.at)
        if match is None:
            raise InvalidRegex(f"a group that is not taken at {self.at}")
        self.at = match.end()
        on, off = match[1], (match[2] or "")[1:]
        if "m" in on and "\n" in self.alphabet:
            raise InvalidRegex("(?m) is not taken where a name may have several lines")
        self.folds = "i" not in off and (self.folds or "i" in on)
        self.dot_takes_lines = "s" not in off and (self.dot_takes_lines or "s" in on)
        return match[3] == ":"

    def escape(self) -> _Node:
        character = self.take()
        if character in "Az":
            return ("start" if character == "A" else "end", None)
        if (named := self.of_class(character)) is not None:
            return ("set", self.fold(named))
        return ("set", self.fold({self.escaped(character)}))

    def of_class(self, character: str) -> frozenset[str] | None:
        """What \\d and its like stand for."""
        named = _CLASSES.get(character.lower())
        if named is None:
            return None
        return self.alphabet & named if character.islower() else self.alphabet - named

    def escaped(self, character: str) -> str:
        """The one character that is written so."""
        if (control := _CONTROLS.get(character)) is not None:
            return control
        if character == "x":
            return self.code(r"\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2})", 16)
        if character == "0" or (character in "1234567" and self.peek() in tuple("01234567")):
            self.at -= 1
            return self.code("([0-7]{1,3})", 8)
        if character.isalnum() or not character.isascii():
            raise InvalidRegex(f"\\{character} is not taken")
        return character

    def code(self, digits: str, base: int) -> str:
        match = re.compile(digits).match(self.text, self.at)
        if match is None:
            raise InvalidRegex(f"no number of a character at {self.at}")
        self.at = match.end()
        number = int(next(filter(None, match.groups())), base)
        if number > 0x10FFFF:
            raise InvalidRegex(f"there is no character {number}")
        return chr(number)

    def bracket(self) -> frozenset[str]:
        negated = self.peek() == "^"
        if negated:
            self.take()
        known = self.alphabet.union(_LIKE_ASCII.values())
        found: set[str] = set()
        first = True
        while first or self.peek() != "]":
            first = False
            low = self.take()
            chosen: frozenset[str] | None = None
            if low == "[" and self.peek() == ":" and ":]" in self.text[self.at :]:
                chosen = self.posix()
            elif low == "\\":
                escape = self.take()
                chosen = self.of_class(escape)
                low = self.escaped(escape) if chosen is None else low
            if chosen is not None:
                found |= chosen
                continue
            high = low
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.take()
                high = self.take()
                if high == "\\":
                    high = self.escaped(self.take())
                if high < low:
                    raise InvalidRegex(f"{low}-{high} is no range")
            found |= {low} | {c for c in known if low <= c <= high}
        self.take()
        folded = self.fold(found)
        return self.alphabet - folded if negated else folded

    def posix(self) -> frozenset[str]:
        """A class such as [:alpha:], behind its first bracket."""
        name, end, _ = self.text[self.at + 1 :].partition(":]")
        named = _POSIX.get(name.removeprefix("^"))
        if named is None:
            raise InvalidRegex(f"no class of characters at {self.at - 1}")
        self.at += 1 + len(name) + len(end)
        named = self.fold(named)  # before what it is not is taken
        return self.alphabet - named if name.startswith("^") else self.alphabet & named

    def fold(self, characters: Iterable[str]) -> frozenset[str]:
        if not self.folds:
            return frozenset(characters)
        return frozenset(case for c in characters for case in _CASES.get(c, c))


class TopicRegex:
    """A compiled expression."""

    def __init__(self, pattern: str, alphabet: frozenset[str] = ALPHABET) -> None:
        """`alphabet`: what names are made of.  Raises InvalidRegex."""
        if len(pattern) > PATTERN_SIZE_MAX:
            raise InvalidRegex(f"{len(pattern)} characters, at most {PATTERN_SIZE_MAX}")
        self.pattern = pattern
        self.cost = 0
        """What matching has cost so far: characters looked at, states visited for new sets."""
        self._states: list[_State] = [(_FOUND, _NOTHING, 0, 0)]
        entry = self._compile(_Parser(pattern, alphabet).parse(), 0)
        self._begin = self._closure({entry}, at_start=True)
        self._table: dict[_States, tuple[_States, dict[str, _States]]] = {}
        self._cached_count = 0

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        self.cost += len(name)
        states, row = self._kept(self._begin)
        for character in name:
            following = row.get(character)
            if following is None:
                following = row[character] = self._kept(self._step(states, character))[0]
            states, row = self._kept(following)
            if not states:
                return False
        if not name:
            return 0 in self._closure(states, at_start=True, at_end=True)
        at_end = row.get("")
        if at_end is None:
            at_end = row[""] = self._closure(states, at_end=True) & _FOUND_AT
        return bool(at_end)

    def _kept(self, states: _States) -> tuple[_States, dict[str, _States]]:
        """The one set of these states that is kept, and where its characters lead ("": the end)."""
        found = self._table.get(states)
        if found is None:
            if self._cached_count >= CACHE_MAX:
                self._table.clear()
                self._cached_count = 0
            self._cached_count += len(states) + _SET_COST
            found = self._table[states] = (states, {})
        return found

    def _step(self, states: _States, character: str) -> _States:
        self.cost += len(states)
        return self._closure(
            {
                self._states[one][2]
                for one in states
                if self._states[one][0] == _CHARACTERS and character in self._states[one][1]
            }
        )

    def _closure(
        self, entries: Iterable[int], *, at_start: bool = False, at_end: bool = False
    ) -> _States:
        """Where one can be without a further character."""
        found: set[int] = set()
        left = list(entries)
        while left:
            one = left.pop()
            if one in found:
                continue
            found.add(one)
            kind, _, following, other = self._states[one]
            if kind == _SPLIT:
                left += (following, other)
            elif (kind == _START and at_start) or (kind == _END and at_end):
                left.append(following)
        self.cost += len(found)
        return frozenset(found)

    def _add(self, kind: int, characters: frozenset[str], following: int, other: int = 0) -> int:
        if len(self._states) >= STATES_MAX:
            raise InvalidRegex(f"it needs more than {STATES_MAX} states")
        self._states.append((kind, characters, following, other))
        return len(self._states) - 1

    def _compile(self, node: _Node, following: int) -> int:
        """States for a node, from the end; where it begins."""
        match node:
            case ("set", frozenset() as characters):
                return self._add(_CHARACTERS, characters, following)
            case ("start", _):
                return self._add(_START, _NOTHING, following)
            case ("end", _):
                return self._add(_END, _NOTHING, following)
            case ("all", list() as items):
                for item in reversed(items):
                    following = self._compile(item, following)
                return following
            case ("any", list() as branches):
                entry = self._compile(branches[-1], following)
                for branch in reversed(branches[:-1]):
                    entry = self._add(_SPLIT, _NOTHING, self._compile(branch, following), entry)
                return entry
            case _:
                inner, least, most = cast(tuple[_Node, int, int | None], node[1])
                return self._repeat(inner, least, most, following)

    def _repeat(self, node: _Node, least: int, most: int | None, following: int) -> int:
        entry = following
        if most is None:
            entry = self._add(_SPLIT, _NOTHING, 0, following)
            self._states[entry] = (_SPLIT, _NOTHING, self._compile(node, entry), following)
        else:
            for _ in range(most - least):
                entry = self._add(_SPLIT, _NOTHING, self._compile(node, entry), following)
        for _ in range(least):
            following, entry = entry, self._compile(node, entry)
            if entry == following:
                break  # it takes nothing: however often, it is the same
        return entry
