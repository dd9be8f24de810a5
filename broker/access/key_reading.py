"""One reading of signing keys: from an address, or a file.  Blocks; for a thread of its own.

All of it has one time: whoever answers a byte now and then renews a time-out with each, and would
hold the one thread that reads for ever.  When the time is over the connection is shut.

Redirects are not followed: they could lead to where nobody checks who answers.
"""

import os
import socket
import ssl
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import IO, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import (
    BaseHandler,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

from .signing_keys import SET_BYTES_MAX

_CHUNK_BYTES: Final = 64 << 10


class KeysUnavailable(Exception):
    """The keys cannot be read; the text says why."""


class _Watch:
    """Shuts the connections of one reading when its time is over."""

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


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,  # noqa: ANN401 - as the base has it
        newurl: str,
    ) -> Request | None:
        return None  # then it is an HTTPError


def read_keys(url: str, ca: str, timeout_s: float) -> bytes:
    """What is at `url`.  Blocks, for `timeout_s` and what connecting takes at most.

    Raises:
        KeysUnavailable: it cannot be read, or is too large.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return _read_file(unquote(parts.path))
    watch = _Watch()
    with watch.during(timeout_s):
        try:
            return _read_address(url, ca, timeout_s, watch)
        except KeysUnavailable:
            if watch.is_over:
                raise KeysUnavailable(f"not read within {timeout_s:g} s") from None
            raise


def _read_address(url: str, ca: str, timeout_s: float, watch: _Watch) -> bytes:
    try:
        if ca and stat.S_ISFIFO(os.stat(ca).st_mode):  # to wait for it may be for ever
            raise ValueError
        context = ssl.create_default_context(cafile=ca or None)
    except (OSError, ValueError) as exc:
        why = (isinstance(exc, OSError) and exc.strerror) or "not PEM, or without a certificate"
        raise KeysUnavailable(f"sasl_oauthbearer_jwks_endpoint_ca ({ca}): {why}") from exc
    handlers: list[BaseHandler] = [_NoRedirects(), _Http(watch), _Https(watch, context)]
    if urlsplit(url).scheme == "http":  # in clear: by way of nobody else
        handlers.append(ProxyHandler({}))
    request = Request(url, headers={"Accept": "application/json"})
    try:
        with build_opener(*handlers).open(request, timeout=timeout_s) as reply:
            data = b""
            while chunk := reply.read1(_CHUNK_BYTES):
                data += chunk
                if len(data) > SET_BYTES_MAX:
                    raise KeysUnavailable(f"more than {SET_BYTES_MAX} bytes")
    except HTTPError as exc:
        exc.close()
        raise KeysUnavailable(f"HTTP status {exc.code}") from exc
    except URLError as exc:
        raise KeysUnavailable(str(exc.reason)) from exc
    except (OSError, ValueError) as exc:
        raise KeysUnavailable(str(exc) or type(exc).__name__) from exc
    except HTTPException as exc:
        raise KeysUnavailable(f"no answer that can be read: {type(exc).__name__}") from exc
    if watch.is_over:  # shut in the middle: the end of it may look like the end of the answer
        raise KeysUnavailable("cut off")
    return data


def _read_file(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):  # to wait for it may be for ever
                raise KeysUnavailable("it is a pipe, which cannot be read again")
            data = os.read(descriptor, SET_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as exc:
        raise KeysUnavailable((isinstance(exc, OSError) and exc.strerror) or str(exc)) from exc
    if len(data) > SET_BYTES_MAX:
        raise KeysUnavailable(f"more than {SET_BYTES_MAX} bytes")
    return data
