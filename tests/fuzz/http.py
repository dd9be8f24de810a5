"""The fuzz target `http`: any bytes to a connection of the metrics page.

    byte 0    where the bytes are cut in two
    then      what the peer sends before it ends

What must hold:

- the connection ends, without a mistake of ours in the log
- what is answered is whole answers of HTTP/1.1, each with a status of the table in
  http_connection.py, and nothing behind one that closes
- a page is only given to who asked for its path
"""

from functools import partial
from typing import Final

import h11
import structlog
import trio
import trio.testing

from segbroker.broker.loop.address_turns import AddressTurns
from segbroker.broker.metrics.exposition import PLAIN, preferred
from segbroker.broker.metrics.http_connection import HttpConnection
from segbroker.broker.metrics.pages import LIVE, Page, sentence

STATUSES: Final = frozenset({200, 400, 404, 405, 413, 431, 501})
TIMEOUT_S: Final = 60
_HOST: Final = b" HTTP/1.1\r\nHost: x\r\n"


def seeds() -> list[bytes]:
    """Good inputs, and some that are refused."""
    live = LIVE.encode()
    return [
        b"\0" + request
        for request in (
            b"GET " + live + _HOST + b"\r\n",
            (b"GET " + live + _HOST + b"\r\n") * 3,
            b"HEAD " + live + _HOST + b"Connection: close\r\n\r\n",
            b"GET /metrics?x=1" + _HOST + b"Accept: application/openmetrics-text;q=0.5\r\n\r\n",
            b"GET http://x" + live + b" HTTP/1.0\r\n\r\n",
            b"POST " + live + _HOST + b"Content-Length: 3\r\n\r\nabc",
            b"POST " + live + _HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"DELETE " + live + _HOST + b"Upgrade: x\r\nConnection: upgrade\r\n\r\n",
            b"CONNECT x:1" + _HOST + b"\r\nGET " + live + _HOST + b"\r\n",
            b"GET /" + b"x" * 9_500,
        )
    ]


def http(data: bytes) -> None:
    """See the module."""
    cut, sent = data[:1], data[1:]
    with structlog.testing.capture_logs() as events:
        answer = trio.run(_exchange, sent, cut[0] if cut else 0)
    assert not [event for event in events if event["log_level"] == "error"], events
    _look_at(answer)


async def _get(path: str, accept: str) -> Page:
    assert preferred(accept)
    return sentence(200, "lives") if path == LIVE else sentence(404, "no such page")


async def _exchange(sent: bytes, cut: int) -> bytes:
    ours, theirs = trio.testing.memory_stream_pair()
    turn = partial(AddressTurns(1).turn, "")
    connection = HttpConnection(ours, _get, turn)  # type: ignore[arg-type]  # all it needs of one
    answer = b""
    with trio.fail_after(TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run)
            for piece in (sent[:cut], sent[cut:]):
                if piece:
                    await theirs.send_all(piece)
            await theirs.send_eof()
            async for received in theirs:
                answer += received
    return answer


def _look_at(answer: bytes) -> None:
    """By h11's other side; whether an answer to HEAD has a body only who asked knows."""
    while answer:
        head, found, rest = answer.partition(b"\r\n\r\n")
        assert found, answer
        peer = h11.Connection(h11.CLIENT)
        peer.send(h11.Request(method="HEAD", target="/", headers=[("Host", "x")]))
        peer.receive_data(head + b"\r\n\r\n")
        event = peer.next_event()
        assert isinstance(event, h11.Response)
        assert event.status_code in STATUSES, event.status_code
        headers = dict(event.headers)
        assert headers[b"content-type"] in (PLAIN.encode(), b"text/plain; charset=utf-8")
        size = int(headers[b"content-length"])
        body = b"" if rest.startswith(b"HTTP/1.1 ") or not rest else rest[:size]
        assert len(body) in (0, size)
        assert body in (b"", b"lives\n") if event.status_code == 200 else body != b"lives\n"
        answer = rest[len(body) :]
        assert not answer or headers.get(b"connection") != b"close"
