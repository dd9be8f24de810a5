"""Connections to a guarded broker: somebody logs in by PLAIN, each user once."""

from typing import Final

import trio

from segbroker.protocol.messages_security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from ..support.wire_client import WireClient

Address = tuple[str, int]

ADMIN: Final = "admin"
PASSWORD: Final = "wonderland"


async def log_in(address: Address, user: str) -> WireClient:
    """A connection of a user, by PLAIN."""
    client = WireClient(await trio.open_tcp_stream(*address), "compare")
    chosen = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
    assert chosen.error_code == 0, chosen
    proof = f"\0{user}\0{PASSWORD}".encode()
    answer = await client.ask(
        SaslAuthenticateRequest(auth_bytes=proof), SaslAuthenticateResponse, 1
    )
    assert answer.error_code == 0, answer
    return client


class Crowd:
    """The connections of all users to one broker, each made once."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._clients: dict[str, WireClient] = {}

    async def dial(self, user: str) -> WireClient:
        """Another connection of a user, instead of the one before."""
        self._clients[user] = await log_in(self._address, user)
        return self._clients[user]

    async def client(self, user: str) -> WireClient:
        """The connection of a user."""
        known = self._clients.get(user)
        return known if known is not None else await self.dial(user)

    async def aclose(self) -> None:
        """Hang up."""
        for client in self._clients.values():
            await client.stream.aclose()
