"""How long many strangers at once hold the event loop; `python -m bench.strangers [COUNT]`.

A broker in this process.  COUNT connections (300) are open when all of them send at the same time:
the beginning of a TLS handshake; twenty requests before a login; requests of the metrics listener,
which has 16 connections at most.  Printed for each: the longest pass of the loop, which is what
every other client waits for meanwhile, and all passes until the last stranger has an answer, in
processor time of the loop's thread.
"""

import argparse
import logging
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import structlog
import trio

from segbroker.broker.configuration.config import merge
from segbroker.broker.server import Broker
from segbroker.protocol.headers import encode_request
from segbroker.protocol.messages_core import ApiVersionsRequest

from .idle_tls import make_certificate

COUNT: Final = 300
PAGES_COUNT: Final = 16
ASKED: Final = b"".join(encode_request(ApiVersionsRequest(), 0, 1, "bench")) * 20
PAGE: Final = b"GET /health/live HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 2_000 + b"\r\n"


class Passes(trio.abc.Instrument):
    """The passes of a loop, in processor time of its thread."""

    def __init__(self) -> None:
        self.longest_s = self.all_s = 0.0
        self._began = time.thread_time()

    def after_io_wait(self, timeout: float) -> None:
        self._began = time.thread_time()

    def before_io_wait(self, timeout: float) -> None:
        took_s = time.thread_time() - self._began
        self.longest_s = max(self.longest_s, took_s)
        self.all_s += took_s


def _hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("nobody was there to shake hands with")


def _send(strangers: Sequence[socket.socket], what: bytes) -> None:
    for one in strangers:
        one.sendall(what)


def _hear(strangers: Sequence[socket.socket]) -> None:
    """The first bytes of what each is answered."""
    for one in strangers:
        one.recv(1)


async def _measure(address: tuple[str, int], count: int, what: bytes, name: str) -> None:
    with ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection(address)) for _ in range(count)]
        await trio.sleep(1)  # each is accepted, and waited for
        sending = threading.Thread(target=_send, args=(strangers, what))
        sending.start()
        sending.join()  # the loop stands still meanwhile
        passes = Passes()
        trio.lowlevel.add_instrument(passes)
        await trio.to_thread.run_sync(_hear, strangers)
        trio.lowlevel.remove_instrument(passes)
    sys.stdout.write(
        f"{name}, {count} at once: longest pass {passes.longest_s * 1000:.0f} ms, "
        f"all {passes.all_s * 1000:.0f} ms\n"
    )
    await trio.sleep(0.5)


async def _run(folder: str, count: int) -> None:
    file = Path(folder, "server.pem")
    make_certificate(file)
    settings = {
        "data": f"{folder}/data",
        "listeners": "SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "metrics_listen": "127.0.0.1:0",
        "ssl_certificate": str(file),
    }
    broker = Broker(merge(settings))
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        tls, sasl = (one.bound for one in broker.listeners)
        pages = broker.metrics_address
        assert pages is not None
        for _ in range(2):
            await _measure(tls, count, _hello(), "TLS handshakes")
            await _measure(sasl, count, ASKED, "twenty requests before a login")
            await _measure(pages, PAGES_COUNT, PAGE, "pages by a head of 2,000 lines")
        broker.drain()
        nursery.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.strangers", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=COUNT)
    count = parser.parse_args().count
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder:
        trio.run(_run, folder, count)


if __name__ == "__main__":
    main()
