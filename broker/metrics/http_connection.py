"""One connection of the metrics page: requests in, pages out, by h11.

    wait for a request (IDLE_S) -> its head is whole (HEAD_S) -> page (PAGE_S) -> sent (SEND_S) -+
          ^                                                                                      |
          +---------------------------- kept alive, as HTTP/1.1 has it --------------------------+

| what comes | what happens |
|---|---|
| GET or HEAD of a page | the page |
| another path | 404 |
| another method | 405, with Allow |
| a head of more than HEAD_BYTES_MAX | 431, closed |
| what is not HTTP | 400, closed |
| a transfer encoding that h11 does not know | 501, closed |
| a body, of any size | 413, closed; it is not read |
| a head that is not whole in time | 408, closed |
| nothing at all | closed |
| a reader that does not take the page in time | closed, with a reset |
| a page that is not made in time | 503 |

Nothing that comes over this connection changes anything in the broker.
"""

import socket
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from http import HTTPStatus
from typing import Final

import h11
import structlog
import trio

from .pages import Page, sentence

log = structlog.get_logger()

HEAD_BYTES_MAX: Final = 8 << 10
"""Looked at after each receive."""
IDLE_S: Final = 75.0
"""Longer than a scrape interval of a minute, so that Prometheus keeps its connection."""
HEAD_S: Final = 5.0
PAGE_S: Final = 30.0
SEND_S: Final = 10.0
RECEIVE_BYTES: Final = 1 << 10
_METHODS: Final = (b"GET", b"HEAD")
# For SO_LINGER: closing sends a reset instead of what is left.
_AT_ONCE: Final = (1).to_bytes(4, sys.byteorder) + bytes(4)

GetPage = Callable[[str, str], Awaitable[Page]]
Turn = Callable[[], AbstractAsyncContextManager[None]]


class HttpConnection:
    """The task of one connection."""

    __slots__ = ("_get", "_http", "_is_first", "_stream", "_turn", "idle_since", "is_idle", "scope")

    def __init__(self, stream: trio.SocketStream, get: GetPage, turn: Turn) -> None:
        """get: the page of a path, for who accepts these content types.  turn: who looks at what
        has come waits for it."""
        self._stream = stream
        self._get = get
        self._turn = turn
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._is_first = True
        self.is_idle = False
        """Between two requests: closing it now costs nobody an answer."""
        self.idle_since = 0.0
        """On trio's clock."""
        self.scope = trio.CancelScope()

    async def run(self) -> None:
        """Serve until either side ends it.  Never raises but for cancellation."""
        with self.scope:
            try:
                while await self._serve_one():
                    pass
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the peer is gone
            except Exception:
                log.exception("metrics_request_failed")
            finally:
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(self._stream)

    async def _serve_one(self) -> bool:
        """One request and its answer; whether another may follow."""
        try:
            request = await self._next_request()
        except h11.RemoteProtocolError as exc:
            await self._send(sentence(exc.error_status_hint, str(exc)), closes=True)
            return False
        if request is None:
            return False
        is_head = request.method == b"HEAD"
        if _has_body(request):
            page = sentence(413, "a page is asked for without a body")
            await self._send(page, closes=True, is_head=is_head)
            return False
        if request.method not in _METHODS:
            page, more = sentence(405, "only GET and HEAD"), [("Allow", "GET, HEAD")]
        else:
            page, more = await self._page(request), []
        return await self._send(page, more, is_head=is_head) and self._may_go_on()

    async def _next_request(self) -> h11.Request | None:
        """The head of the next request; None: the peer has ended, or is too slow.

        Raises h11.RemoteProtocolError.
        """
        if (event := await self._next_event()) is h11.NEED_DATA:
            if not self._is_first:
                self.is_idle, self.idle_since = True, trio.current_time()
                with trio.move_on_after(IDLE_S) as patience:
                    data = await self._stream.receive_some(RECEIVE_BYTES)
                self.is_idle = False
                if patience.cancelled_caught:
                    return None
                self._http.receive_data(data)
            self._is_first = False
            with trio.move_on_after(HEAD_S) as patience:
                while (event := await self._next_event()) is h11.NEED_DATA:
                    self._http.receive_data(await self._stream.receive_some(RECEIVE_BYTES))
            if patience.cancelled_caught:
                if self._http.trailing_data[0]:
                    slow = sentence(408, f"the request was not whole within {HEAD_S:g} s")
                    await self._send(slow, closes=True)
                return None
        return event if isinstance(event, h11.Request) else None

    async def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """What has come, when it is its turn.  Raises h11.RemoteProtocolError."""
        async with self._turn():
            pass
        return self._http.next_event()

    async def _page(self, request: h11.Request) -> Page:
        accept = b",".join(value for name, value in request.headers if name == b"accept")
        with trio.move_on_after(PAGE_S):
            try:
                return await self._get(_path(request.target), accept.decode("latin-1"))
            except Exception:
                log.exception("metrics_page_failed", path=_path(request.target))
                return sentence(500, "a mistake of the broker; its log has the rest")
        return sentence(503, f"the page was not made within {PAGE_S:g} s")

    async def _send(
        self,
        page: Page,
        more: Iterable[tuple[str, str]] = (),
        *,
        closes: bool = False,
        is_head: bool = False,
    ) -> bool:
        """Whether the peer took it in time."""
        http = self._http
        if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return False
        headers = [
            ("Content-Type", page.content_type),
            ("Content-Length", str(len(page.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *more,
        ]
        if closes:
            headers.append(("Connection", "close"))
        answer = http.send(_response(page.status, headers)) or b""
        if not is_head:
            answer += http.send(h11.Data(data=page.body)) or b""
        answer += http.send(h11.EndOfMessage()) or b""
        with trio.move_on_after(SEND_S) as patience:
            await self._stream.send_all(answer)
            if closes:  # what the peer has sent and nobody reads would reset what it is to read
                await self._stream.send_eof()
                while await self._stream.receive_some(RECEIVE_BYTES):
                    pass
        if patience.cancelled_caught and not closes:
            with suppress(OSError):
                self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            log.info("metrics_reader_too_slow", limit_s=SEND_S)
            return False
        return not closes

    def _may_go_on(self) -> bool:
        """Whether the request is over and the connection is kept: then it waits for the next."""
        http = self._http
        if http.their_state is h11.SEND_BODY:
            http.next_event()  # its end: it has no body
        if http.our_state is h11.DONE and http.their_state is h11.DONE:
            http.start_next_cycle()
            return True
        return False


def _response(status: int, headers: list[tuple[str, str]]) -> h11.Response:
    return h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)


def _has_body(request: h11.Request) -> bool:
    """Whether a body follows, by what the head says."""
    headers = dict(request.headers)
    return (
        b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0") != b""
    )


def _path(target: bytes) -> str:
    """The path of a target: without a query, or scheme and host in front of it."""
    path = target.partition(b"?")[0].decode("latin-1")
    scheme, found, rest = path.partition("://")
    if found and scheme.lower() in ("http", "https"):
        return "/" + rest.partition("/")[2]
    return path
