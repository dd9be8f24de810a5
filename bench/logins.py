"""When a fleet is logged in that comes back to a busy broker; `python -m bench.logins [COUNT ...]`.

A broker in this process, whose loop is kept busy: what its clients ask for takes PASS_MS (30) in
each pass.  COUNT clients (500) have connected and send their first request at the same time, from a
process of their own; each logs in and asks for metadata.  Printed for each mechanism: when the last
one had its answer; how many were closed before; and how much longer than PASS_MS the passes were
meanwhile, on the average and at most: so long other clients wait for strangers.
"""

import argparse
import logging
import selectors
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial

import structlog
import trio

from segbroker.broker.configuration.config import merge
from segbroker.broker.server import Broker
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.headers import decode_response, encode_request
from segbroker.protocol.messages_core import ApiVersionsRequest, MetadataRequest
from segbroker.protocol.messages_security import SaslAuthenticateRequest, SaslHandshakeRequest
from segbroker.protocol.sasl import PLAIN, encode_plain
from segbroker.protocol.schema import Message
from segbroker.protocol.scram import ScramClient, ScramMechanism

COUNT = 500
PASS_MS = 30.0
MECHANISMS = ("SCRAM-SHA-256", PLAIN)
USER, PASSWORD = "alice", "wonderland"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.logins", description=__doc__)
    parser.add_argument("count", type=int, nargs="*", default=[COUNT])
    parser.add_argument("--pass-ms", type=float, default=PASS_MS)
    parser.add_argument("--fleet", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fleet:
        host, port, mechanism, count = arguments.fleet
        _come_back((host, int(port)), mechanism, int(count))
        return
    if max(arguments.count) > (most := merge({}).handshakes_max):
        parser.error(f"more than {most} clients: others are closed to make way (handshakes_max)")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for count in arguments.count:
        for mechanism in MECHANISMS:
            with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder:
                trio.run(_measure, folder, count, mechanism, arguments.pass_ms / 1000)


async def _measure(folder: str, count: int, mechanism: str, pass_s: float) -> None:
    settings = {
        "data": f"{folder}/data",
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "initial_user": USER,
        "initial_password": PASSWORD,
    }
    broker = Broker(merge(settings))
    passes: list[float] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        host, port = broker.address
        fleet = [sys.executable, "-m", "bench.logins", "--fleet", host, f"{port}", mechanism]
        run = partial(trio.run_process, [*fleet, f"{count}"], stdin=b"", capture_stdout=True)
        said: list[str] = []

        async def wait() -> None:
            said.append((await run()).stdout.decode().strip())

        nursery.start_soon(wait)
        while broker.connections < count:  # noqa: ASYNC110 - all that there is to see of it
            await trio.sleep(0.01)
        while not said:
            began = time.perf_counter()
            time.sleep(pass_s)  # noqa: ASYNC251 - in place of what clients ask for
            await trio.lowlevel.checkpoint()
            passes.append(time.perf_counter() - began - pass_s)
        broker.drain()
        nursery.cancel_scope.cancel()
    mean, longest = sum(passes) / len(passes), max(passes)
    sys.stdout.write(
        f"{count} logins by {mechanism}, passes of {pass_s * 1000:.0f} ms: {said[0]}; "
        f"passes longer by {mean * 1000:.1f} ms on the average, {longest * 1000:.0f} ms at most\n"
    )


def _come_back(address: tuple[str, int], mechanism: str, count: int) -> None:
    """Be the fleet, and say how it went."""
    known: dict[object, object] = {}
    clients: dict[socket.socket, Iterator[bytes]] = {}
    selector = selectors.DefaultSelector()
    for _ in range(count):
        sock = socket.create_connection(address)
        selector.register(sock, selectors.EVENT_READ, sock)
        clients[sock] = _Client(sock, mechanism, known).requests()
    time.sleep(1)
    began = time.monotonic()
    for sock, requests in clients.items():
        sock.sendall(next(requests))
    served = closed = 0
    while served + closed < count:
        for key, _ in selector.select():
            one: socket.socket = key.data
            try:
                request = next(clients[one], None)
            except OSError:
                closed += 1
            else:
                if request is not None:
                    one.sendall(request)
                    continue
                served += 1
            selector.unregister(one)
    sys.stdout.write(
        f"{served} served in {time.monotonic() - began:.1f} s, {closed} closed before\n"
    )


class _Client:
    """One of the fleet."""

    def __init__(self, sock: socket.socket, mechanism: str, known: dict[object, object]) -> None:
        """known: keys that were derived from the password, for all."""
        self._sock = sock
        self._mechanism = mechanism
        self._known = known

    def requests(self) -> Iterator[bytes]:
        """What it sends; each further one when there is something to receive.

        Raises OSError: the broker has closed the connection.
        """
        yield _encode(ApiVersionsRequest(), 0)
        self._answer()
        yield _encode(SaslHandshakeRequest(mechanism=self._mechanism), 1)
        self._answer()
        if self._mechanism == PLAIN:
            yield _prove(encode_plain(USER, PASSWORD))
        else:
            kind = ScramMechanism.SHA_256
            scram = ScramClient(kind, USER, PASSWORD, b"n" * 18, self._known)  # type: ignore[arg-type]
            yield _prove(scram.first())
            _, challenge = decode_response(self._answer(), int(ApiKey.SASL_AUTHENTICATE), 1)
            yield _prove(scram.answer(challenge.auth_bytes))  # type: ignore[attr-defined]
        self._answer()
        yield _encode(MetadataRequest(topics=[]), 5)
        self._answer()

    def _answer(self) -> bytes:
        if not (data := self._sock.recv(64 << 10)):
            raise ConnectionError("closed by the broker")
        return data[4:]


def _encode(request: Message, version: int) -> bytes:
    return b"".join(encode_request(request, version, 1, "bench"))


def _prove(message: bytes) -> bytes:
    return _encode(SaslAuthenticateRequest(auth_bytes=message), 1)


if __name__ == "__main__":
    main()
