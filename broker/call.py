"""One request on its way through: who asked, which api and version, and the decoded message."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.schema import Message

from .peer import Peer

Request_co = TypeVar("Request_co", bound=Message, covariant=True)


@dataclass(slots=True, frozen=True)
class Call(Generic[Request_co]):
    """What a handler of an api gets beside the core. Its answer is a message."""

    peer: Peer
    header: RequestHeader
    request: Request_co

    @property
    def version(self) -> int:
        """The api version of the request."""
        return self.header.api_version
