"""Principals: how they are written and read."""

import pytest

from segbroker.broker.principal import ANONYMOUS, Principal, parse_principal


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
