"""Who somebody is: what authentication found out, and what authorization asks about.

    User:ANONYMOUS     nobody has said who they are: a PLAINTEXT or SSL listener
    User:alice         a user of the credentials store, by SASL
    User:CN=alice,…    the subject of a client certificate, by mutual TLS

Written `type:name` as Kafka writes it.  `User` is the only type there is; a name may hold colons.
"""

from dataclasses import dataclass
from typing import Final

USER: Final = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody, as rules and logs name them."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


# Kafka's spelling: rules that were written for it name it so.
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")


def parse_principal(text: str) -> Principal:
    """`User:alice` as a principal. Raises ValueError."""
    type_, colon, name = text.partition(":")
    if not colon or not type_ or not name:
        raise ValueError(f"{text!r} is not a principal: expected {USER}:NAME")
    return Principal(type_, name)


def parse_principals(text: str) -> frozenset[Principal]:
    """`User:alice;User:bob`, as Kafka writes several.

    Raises:
        ValueError: one is none, or nobody could ever be it: of another type than `User`, or
            several with commas between, which make one long name.
    """
    found = frozenset(parse_principal(one.strip()) for one in text.split(";") if one.strip())
    for one in found:
        if one.type != USER:
            raise ValueError(f"'{one}' can be nobody: the only type there is is {USER}")
        if f",{USER}:" in one.name.replace(" ", ""):
            raise ValueError(f"'{one}': several principals are separated by semicolons")
    return found
