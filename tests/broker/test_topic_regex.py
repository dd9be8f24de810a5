"""Expressions for topic names: the same language as Python's for what both take, and never slow."""

import re
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segbroker.broker.groups.topic_regex import InvalidRegex, TopicRegex

from ..support.steps import lines_of

names = st.text(alphabet="abAB01._-", max_size=12)
atoms = st.sampled_from(
    ["a", "b", "0", r"\.", ".", "[a-b]", "[^a]", r"\d", r"\w", "[-_]", r"\D", "[0-9a]", "^", "$"]
)
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda some: f"({'|'.join(some)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{1,}", "*?"])).map(
            lambda both: f"(?:{both[0]}){both[1]}"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, database=None)
@given(patterns, st.lists(names, min_size=1, max_size=8))
def test_it_matches_what_pythons_own_matches(pattern: str, some: list[str]) -> None:
    regex, theirs = TopicRegex(pattern), re.compile(pattern, re.ASCII)
    for name in some:
        assert regex.matches(name) == (theirs.fullmatch(name) is not None), (pattern, name)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders.*", "orders-eu", True),
        ("(?i)Orders", "oRDERS", True),
        (r"log\.[0-9]{4}", "log.2024", True),
        (r"log\.[0-9]{4}", "log-2024", False),
        ("a|b|", "", True),
        ("[]a]", "a", True),
        # As Pattern.quote of Java writes what stands for itself.
        (r"\Qlog.a+b{2}\E[0-9]+", "log.a+b{2}7", True),
        (r"\Qlog.\E.*", "log-1", False),
        (r"a\Qbc\E*", "abcc", True),
        (r"a\Qbc\E*", "abcbc", False),
        (r"\Qa", "a", True),
        ("a{", "a{", True),
        ("a{,2}", "a{,2}", True),
        ("[[:alpha:]]+[[:^alpha:]]", "ab1", True),
        ("[[:digit:]_]+", "1_2", True),
        ("[[:digit:]_]+", "1-2", False),
        ("[[:a]+", ":[a", True),
        (r"\x61\x{62}\143", "abc", True),
        (r"[\x61-\x63]+", "abc", True),
        ("a(?i)b(c|d)", "aBD", True),
        ("a(?i)b(c|d)", "ABD", False),
        ("(?i:a)b", "Ab", True),
        ("(?i:a)b", "AB", False),
        ("((?i)a)b", "AB", False),
        ("(?i)a(?-i)b", "Ab", True),
        ("(?i)a(?-i)b", "AB", False),
        # What a class does not have is taken of it as (?i) widens it.
        ("(?i)[[:^lower:]]", "a", False),
        ("(?i)[[:^lower:]]", "A", False),
        ("(?i)[[:^upper:]]", "1", True),
        ("(?i)[^[:^lower:]]", "A", True),
        # Two characters that are not ASCII have cases that are, and no others do.
        (r"(?i)\x{17f}", "s", True),
        (r"(?i)[\x{2120}-\x{2130}]", "K", True),
        (r"(?i)\x{131}", "I", False),
        ("(?)a", "a", True),
        (r"\x{00000041}", "A", True),
        ("(?P<first>a)(?<second>b)", "ab", True),
        ("(?U)a+", "aa", True),
        ("(?m)^a$", "a", True),
        (r"v\.1", "v.1", True),
        ("[a-]b", "-b", True),
        ("$^", "", True),
        ("a$^", "a", False),
        (r"\x{10ffff}|a", "a", True),
    ],
)
def test_the_whole_name_has_to_match(pattern: str, name: str, matches: bool) -> None:
    assert TopicRegex(pattern).matches(name) is matches


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[a",
        "*a",
        "a{2,1}",
        "{2}",
        "{+",
        "a**",
        "a*+",
        "a{2}{3}",
        r"a\Z",
        r"\bab",
        r"\pL",
        "[[:letters:]]",
        "[[:]",
        "[[:]]",
        "(?)*",
        "(?-)a",
        "(?i)*",
        "(?x)a",
        "(?P<n>a)(?P<n>b)",
        r"\x4",
        r"\x{110000}",
        "a{5000}",
        "(?=a)",
        r"(a)\1",
        r"\q",
        "\\\N{EURO SIGN}",
        "a\\",
        "[b-a]",
        "(" * 60 + "a" + ")" * 60,
        "a" * 1001,
        "((a{1000}){1000}){1000}",
        "a" + "*" * 999,
        "()" + "{2}" * 300,
        "(^|){2}{2}{2}",
        "()" + "+" * 998,
    ],
)
def test_what_is_no_expression_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegex):
        TopicRegex(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(" * 49 + "()" + "{1000})" * 49, "(" * 49 + "a" + "*)" * 49, "(()()(){1000}){1000}"],
)
def test_repetitions_of_what_takes_little_are_not_written_out(pattern: str) -> None:
    assert not TopicRegex(pattern).matches("b")


def test_an_expression_that_makes_backtracking_explode_is_quick() -> None:
    def match() -> None:
        regex = TopicRegex("(a+)+(a+)+(a|a)*$")
        assert not regex.matches("a" * 200 + ".")
        assert regex.matches("a" * 200)

    assert lines_of(match) < 50_000


def test_an_expression_of_many_states_costs_little_memory_however_many_names_there_are() -> None:
    random = Random(1)
    some = [
        "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=24)) for _ in range(60)
    ]
    tracemalloc.start()
    try:
        regex = TopicRegex("([a-m]?[n-z0-9]?[^a]?[^k]?){120}")
        assert all(map(regex.matches, some))
        assert tracemalloc.get_traced_memory()[0] < 20 << 20
    finally:
        tracemalloc.stop()


@settings(max_examples=150, deadline=None, database=None)
@given(st.text(alphabet="ab().*+?{}[]^$|\\,-0123dwDsz:iQEPx<>lph", max_size=40))
def test_any_text_is_an_expression_or_is_refused(text: str) -> None:
    try:
        regex = TopicRegex(text)
    except InvalidRegex:
        return
    regex.matches("ab-01")
