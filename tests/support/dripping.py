"""A server that answers a byte now and then, and never ends: each byte renews a time-out.

Once somebody says so it answers as it should; what has begun to drip goes on dripping.
"""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Where it begins to drip.
IN_A_HEADER = b"HTTP/1.1 200 OK\r\nX-Slow: "
IN_A_CHUNK_SIZE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
IN_THE_BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
IN_AN_ERROR = b"HTTP/1.1 503 Away\r\nContent-Length: 100000\r\n\r\n"
PAUSE_S = 0.02


class Dripping:
    """See the module."""

    def __init__(self, begin: bytes, scheme: str) -> None:
        self.begin = begin
        self.scheme = scheme
        self.address = ""
        # Instead of dripping, a whole answer.
        self.body: bytes | None = None
        self.is_over = threading.Event()

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.address}/it"

    def serve(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        """Each connection in a thread of its own."""
        with suppress(OSError):
            while True:
                taken, _ = listener.accept()
                threading.Thread(target=self._answer, args=(taken, context), daemon=True).start()

    def _answer(self, taken: socket.socket, context: ssl.SSLContext | None) -> None:
        with suppress(OSError), taken:
            peer = taken if context is None else context.wrap_socket(taken, server_side=True)
            with peer:
                peer.recv(65_536)
                if self.body is not None:
                    size = f"Content-Length: {len(self.body)}\r\n\r\n".encode()
                    peer.sendall(b"HTTP/1.1 200 OK\r\n" + size + self.body)
                    return
                peer.sendall(self.begin)
                while not self.is_over.wait(PAUSE_S):
                    peer.sendall(b"0")


@contextmanager
def dripping(begin: bytes, certificate: Path | None = None) -> Iterator[Dripping]:
    """One that is there until the end of the block; with a certificate it speaks TLS."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    made = Dripping(begin, "http" if context is None else "https")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made.address = f"127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=made.serve, args=(listener, context), daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.is_over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
