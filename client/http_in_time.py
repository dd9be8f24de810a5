"""One HTTP request that has one time for all of it.  Blocks; for a thread.

The time-outs of sockets are for each wait: whoever answers a byte now and then renews them for
ever.  When the time is over the connection is shut.

No redirect is followed: where it leads may be anybody, who would get the secret.  What is on this
machine is asked without a proxy.
"""

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import (
    BaseHandler,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)


class Answer(NamedTuple):
    """What came."""

    status: int
    # No more than was asked for.
    data: bytes


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    context: ssl.SSLContext,
    timeout_s: float,
    size_max: int,
) -> Answer:
    """The answer to a POST, whatever its status; `size_max` bytes of it.

    Raises:
        TimeoutError: there is none in time.
        OSError, ValueError, HTTPException: there is none.
    """
    watch = _Watch()
    handlers: list[BaseHandler] = [_NoRedirects(), _Http(watch), _Https(watch, context)]
    if _is_here(urlsplit(url).hostname or ""):
        handlers.append(ProxyHandler({}))
    request = Request(url, body, dict(headers))
    with watch.during(timeout_s):
        try:
            answer = _answer(build_opener(*handlers), request, timeout_s, size_max)
        except (OSError, ValueError, HTTPException):
            if watch.is_over:
                raise TimeoutError(f"no answer within {timeout_s:g} s") from None
            raise
    if watch.is_over and answer.status < 300:
        # Shut in the middle: the end of it may look like the end of the answer.
        raise TimeoutError(f"no answer within {timeout_s:g} s")
    return answer


def _answer(opener: Any, request: Request, timeout_s: float, size_max: int) -> Answer:  # noqa: ANN401 - of urllib
    try:
        with opener.open(request, timeout=timeout_s) as reply:
            return Answer(reply.status, reply.read(size_max))
    except HTTPError as exc:
        with exc:
            try:
                data = exc.read(size_max)
            except (OSError, HTTPException):  # its status says enough
                data = b""
        return Answer(exc.code, data)


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - as the base
        return None


class _Watch:
    """Shuts the connections of one request when its time is over."""

    def __init__(self) -> None:
        self.is_over = False
        self._sockets: list[socket.socket] = []

    def made(self, kind: type[HTTPConnection], *args: Any, **kwargs: Any) -> HTTPConnection:  # noqa: ANN401 - as the class has them
        """A connection that ends in time; connecting has time-outs of its own."""
        connection = kind(*args, **kwargs)
        connect = connection.connect

        def connect_and_tell() -> None:
            connect()
            self._sockets.append(connection.sock)
            if self.is_over:
                self._shut()

        connection.connect = connect_and_tell  # type: ignore[method-assign]
        return connection

    @contextmanager
    def during(self, timeout_s: float) -> Iterator[None]:
        """For so long."""
        timer = threading.Timer(timeout_s, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end(self) -> None:
        self.is_over = True
        self._shut()

    def _shut(self) -> None:
        for one in self._sockets:
            with suppress(OSError):  # it is closed
                # Not as TLS does it, which would have the thread that reads go on in clear.
                socket.socket.shutdown(one, socket.SHUT_RDWR)


class _Http(HTTPHandler):
    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._made = watch.made

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(self._made, HTTPConnection), req)


class _Https(HTTPSHandler):
    def __init__(self, watch: _Watch, context: ssl.SSLContext) -> None:
        super().__init__()
        self._made = partial(watch.made, HTTPSConnection, context=context)

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._made, req)
