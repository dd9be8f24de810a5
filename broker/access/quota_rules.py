"""Which quota holds for whom: Kafka's order, the most particular first.

    1  this user, this client id          5  any user, any client id
    2  this user, any client id           6  any user
    3  this user                          7  this client id
    4  any user, this client id           8  any client id

"Any" is the default: it holds for each one that has nothing more particular, and for each by
itself.  Quotas with a client id in them are an allowance of each pair of user and client id (7 and
8: of each client id), those of users alone one that all their clients share.  Each key is looked up
by itself.  Addresses (`ip`) have a table of their own: this one, any.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from segbroker.segments.metadata.quotas import Entity, entity_of

USER: Final = "user"
CLIENT: Final = "client-id"
ADDRESS: Final = "ip"

PRODUCE: Final = "producer_byte_rate"
CONSUME: Final = "consumer_byte_rate"
TIME: Final = "request_percentage"
REQUESTS: Final = "request_rate"
MUTATIONS: Final = "controller_mutation_rate"
CONNECTIONS: Final = "connection_creation_rate"

KEYS_OF_CLIENTS: Final = frozenset({PRODUCE, CONSUME, TIME, REQUESTS, MUTATIONS})
KEYS_OF_ADDRESSES: Final = frozenset({CONNECTIONS})


Owner: TypeAlias = tuple[str | None, ...]
"""The name of an allowance."""


class Found(NamedTuple):
    """A quota that holds, and the allowances that it is of."""

    rate: float
    owner: Owner
    sharers: Owner
    """The allowance of all for whom the same quota holds, where not each can have its own."""


def find(
    quotas: Mapping[Entity, Mapping[str, float]], key: str, user: str, client_id: str
) -> Found | None:
    """The quota of a client, if there is one."""
    for entity, owner in _levels(user, client_id):
        rate = quotas.get(entity, {}).get(key)
        if rate is not None:
            return Found(rate, (key, *owner), (key, "any of", *chain.from_iterable(entity)))
    return None


def find_for_address(
    quotas: Mapping[Entity, Mapping[str, float]], key: str, host: str
) -> Found | None:
    """The quota of an address, if there is one."""
    for name in (host, None):
        rate = quotas.get(entity_of({ADDRESS: name}), {}).get(key)
        if rate is not None:
            return Found(rate, (key, ADDRESS, host), (key, ADDRESS, name))
    return None


def _levels(user: str, client_id: str) -> Iterator[tuple[Entity, tuple[str, ...]]]:
    both, of_user, of_client = (
        (USER, user, CLIENT, client_id),
        (USER, user),
        (CLIENT, client_id),
    )
    for name in (user, None):
        yield entity_of({USER: name, CLIENT: client_id}), both
        yield entity_of({USER: name, CLIENT: None}), both
        yield entity_of({USER: name}), of_user
    yield entity_of({CLIENT: client_id}), of_client
    yield entity_of({CLIENT: None}), of_client
