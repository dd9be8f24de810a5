"""Principals: how they are written and read."""

import pytest

from segbroker.broker.configuration.config import InvalidConfig, merge
from segbroker.broker.principal import ANONYMOUS, Principal, parse_principal, parse_principals


def test_a_principal_is_written_and_read_with_its_type_in_front() -> None:
    assert str(Principal("User", "alice")) == "User:alice"
    assert parse_principal("User:alice") == Principal("User", "alice")


def test_the_name_of_a_principal_may_hold_colons() -> None:
    assert parse_principal("User:CN=a:b,O=c") == Principal("User", "CN=a:b,O=c")


def test_nobody_is_anonymous_as_in_kafka() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_what_has_no_type_or_no_name_is_no_principal(text: str) -> None:
    with pytest.raises(ValueError, match="is not a principal"):
        parse_principal(text)


def test_several_principals_are_separated_by_semicolons() -> None:
    alice, team = Principal("User", "alice"), Principal("User", "CN=a,OU=User:b")
    assert parse_principals("User:alice; User:CN=a,OU=User:b;") == {alice, team}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("user:alice", "the only type there is is User"),
        ("User:alice;Group:ops", "the only type there is is User"),
        ("User:alice,User:bob", "separated by semicolons"),
        ("User:alice, User:bob", "separated by semicolons"),
    ],
)
def test_super_users_that_nobody_can_be_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        merge({"super_users": text})
