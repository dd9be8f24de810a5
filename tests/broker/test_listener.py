"""Accepting: a flood of connections leaves the loop to others."""

import socket

import trio

from segbroker.broker.peers.listener import ACCEPTS_AT_ONCE, BACKLOG, accept_all, bind


class Open:
    """Nobody has to wait."""

    def is_closed(self) -> bool:
        return False

    async def wait(self) -> None:
        raise AssertionError("nobody has to")


async def test_others_have_their_turn_while_many_connections_wait_to_be_accepted() -> None:
    listener = await bind("127.0.0.1", 0)
    count = 5 * ACCEPTS_AT_ONCE
    clients = [socket.socket() for _ in range(count)]
    accepted: list[socket.socket] = []
    seen: set[int] = set()
    with listener:
        listener.listen(BACKLOG)
        for client in clients:  # they wait in the backlog
            client.connect(listener.getsockname())
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                keep = lambda sock, _: accepted.append(sock)  # noqa: E731
                nursery.start_soon(accept_all, listener, keep, Open())
                while len(accepted) < count:
                    seen.add(len(accepted))
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
    assert len(seen) > 2, "a turn in which there are some and not all"
    for level, option in (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE),  # or a peer that is gone is never missed
    ):
        assert all(sock.getsockopt(level, option) for sock in accepted)
    for sock in (*clients, *accepted):
        sock.close()
