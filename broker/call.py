"""Call: one request on its way through: who asked, which api and version, and the decoded message.

A handler in apis/ gets the core and a Call, and returns the message of the reply.  Produce and
fetch get the same parts without a Call, and fill slots (requests.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.schema import Message

from .peers.peer import Peer

Request_co = TypeVar("Request_co", bound=Message, covariant=True)


@dataclass(slots=True, frozen=True)
class Call(Generic[Request_co]):
    """What a handler of an api gets beside the core. Its answer is a message."""

    peer: Peer
    header: RequestHeader
    request: Request_co
    # Puts what was refused into the answer (authorized.py); None: nothing was.
    amend: Callable[[Any], None] | None = None

    @property
    def version(self) -> int:
        """The api version of the request."""
        return self.header.api_version
