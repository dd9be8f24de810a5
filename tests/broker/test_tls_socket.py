"""A TLS connection of the broker against a client of the ssl library, over a pair of sockets that
hold little, in random pieces.

What calls it is as patient as a connection is: it receives when the socket is readable, or when the
last receive has filled its space, and sends when the socket is writable.  So whatever waits in the
TLS layer while the socket is silent is never had, and ends the run.
"""

import random
import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Final

import pytest
import trio

from segbroker.broker.loop.strangers import Strangers
from segbroker.broker.peers import tls
from segbroker.broker.peers.tls import RAW_LEAST, TlsSocket

from ..support.certificates import Authority

SIZES: Final = (1, 2, 100, 2_000, 2_048, 5_000, 16_384, 17_408, 40_000)
AT_ITS_END: Final = (RAW_LEAST - 22, RAW_LEAST - 33)
"""Of data whose record ends where the least that is taken from the socket ends, or just before."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.server()
    return made


class Run:
    """Both sides, and what each has sent and had."""

    def __init__(self, authority: Authority, seed: int, version: ssl.TLSVersion) -> None:
        self.random = random.Random(seed)
        ours, self.wire = socket.socketpair()
        for one in (ours, self.wire):
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.random.choice((1, 20_000)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.server())
        context.num_tickets = 0
        self.broker = TlsSocket(ours, context)
        self.ours = ours
        trusting = ssl.create_default_context(cafile=str(authority.file))
        trusting.maximum_version = version
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = trusting.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        # What the client has encrypted, and what was sent and had, of whom.
        self.encrypted = bytearray()
        self.up_sent, self.up_had = bytearray(), bytearray()
        self.down_sent, self.down_had = bytearray(), bytearray()
        self.unsent: list[bytes] = []
        self.is_full = False
        self.is_over = False

    def some(self) -> bytes:
        return self.random.randbytes(self.random.choice(SIZES))

    # The client

    def wire_push(self, size: int = 0) -> None:
        """Some of what the client has encrypted arrives, cut anywhere; size: or so much of it."""
        self.encrypted += self.outgoing.read()
        size = size or self.random.choice((*SIZES, 1 << 20))
        if not self.encrypted:
            return
        with suppress(BlockingIOError):
            del self.encrypted[: self.wire.send(self.encrypted[:size])]

    def wire_pull(self) -> None:
        """The client takes some of what has arrived at it."""
        try:
            self.incoming.write(self.wire.recv(self.random.choice((*SIZES, 1 << 20))))
            while True:
                self.down_had += self.client.read(1 << 20)
        except (BlockingIOError, ssl.SSLWantReadError):
            pass

    def client_writes(self, size: int = 0) -> None:
        sent = self.random.randbytes(size) if size else self.some()
        self.up_sent += sent
        self.client.write(sent)

    # The broker

    def is_ready(self, event: int) -> bool:
        poll = select.poll()
        poll.register(self.ours, event)
        return bool(poll.poll(0))

    def receive(self) -> None:
        if self.is_over or not (self.is_full or self.is_ready(select.POLLIN)):
            return
        space = memoryview(bytearray(self.random.choice((*SIZES, 1 << 20))))
        self.is_full = False
        try:
            count = self.broker.recv_into(space)
        except BlockingIOError:
            return
        self.up_had += space[:count]
        self.is_full = count == len(space)
        self.is_over = not count

    def send(self) -> None:
        if not self.unsent or not self.is_ready(select.POLLOUT):
            return
        try:
            count = self.broker.sendmsg(self.unsent)
        except BlockingIOError:
            return
        assert 0 < count <= sum(map(len, self.unsent))
        while count >= len(self.unsent[0]):
            count -= len(self.unsent.pop(0))
            if not self.unsent:
                assert not count
                return
        self.unsent[0] = self.unsent[0][count:]

    def reply(self) -> None:
        for _ in range(self.random.choice((1, 1, 5))):
            piece = self.some()
            self.down_sent += piece
            self.unsent.append(piece)

    async def shake_hands(self) -> None:
        """The client's first bytes come with the end of its handshake: the broker receives once
        without waiting."""
        is_shaken = trio.Event()

        async def shaken() -> None:
            await self.broker.handshake(partial(Strangers().shake_hands, ""))
            is_shaken.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(shaken)
            is_done = False
            while not is_done:
                try:
                    self.client.do_handshake()
                    is_done = True
                    self.client_writes()
                except ssl.SSLWantReadError:
                    pass
                while (self.encrypted or self.outgoing.pending) and not is_shaken.is_set():
                    self.wire_push()
                    await trio.lowlevel.checkpoint()
                if not is_done:
                    await trio.lowlevel.wait_readable(self.wire)
                    self.incoming.write(self.wire.recv(self.random.choice(SIZES)))
        self.is_full = True

    def until(self, is_so: Callable[[], bool]) -> None:
        """Everybody does what it can, until it is so; some thousand rounds without is never."""
        for _ in range(20_000):
            if is_so():
                return
            for step in self.random.sample((self.wire_push, self.wire_pull, self.receive), 3):
                step()
            self.send()
        pytest.fail("something waits that is never had")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("seed", range(100))
async def test_every_byte_arrives_once_and_in_order_and_so_does_the_end(
    authority: Authority, seed: int, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(authority, seed, version)
    # A receive ends by time, seldom or mostly.
    likely = run.random.choice((0.02, 0.5))
    clock = SimpleNamespace(perf_counter=lambda: float(run.random.random() < likely))
    monkeypatch.setattr(tls, "time", clock)
    with run.ours, run.wire:
        await run.shake_hands()
        steps = (run.client_writes, run.reply, run.wire_push, run.wire_pull, run.receive, run.send)
        weights = (1, 1, *(run.random.choice((1, 5, 20)) for _ in range(4)))
        for step in run.random.choices(steps, weights, k=300):
            step()
        if run.random.random() < 0.5:  # else the goodbye comes right behind the last bytes
            run.until(lambda: run.up_had == run.up_sent and run.down_had == run.down_sent)
        goodbye = run.random.choice(("close_notify", "close_notify", "end", "both"))
        run.client_writes(run.random.choice(AT_ITS_END))
        if goodbye != "end":
            with pytest.raises(ssl.SSLWantReadError):
                run.client.unwrap()
        if run.random.random() < 0.7:
            run.wire_push(1 << 20)
        run.until(lambda: not (run.encrypted or run.outgoing.pending))
        if goodbye != "close_notify":
            run.wire.shutdown(socket.SHUT_WR)
        run.until(lambda: run.is_over)
        assert run.up_had == run.up_sent
        if goodbye == "end":
            run.until(lambda: run.down_had == run.down_sent)
        else:
            run.until(lambda: not run.unsent)
        assert run.down_sent.startswith(run.down_had)
