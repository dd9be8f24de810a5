"""What an idle TLS connection costs the daemon in memory: `python -m bench.idle_tls [COUNT]`.

Each of COUNT connections (1,000) has shaken hands and asked for the api versions once; the same
over plain TCP beside it, the same of those that have asked with 60 KiB and were answered with as
many, and what Python's ssl alone takes for so many sockets without a broker.  The certificate is
made by the `openssl` command.
"""

import argparse
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from segbroker.protocol.headers import encode_request
from segbroker.protocol.messages_core import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)

from .machine import resident_mib
from .servers import segbroker

COUNT = 1_000
SMALL = b"".join(encode_request(ApiVersionsRequest(), 0, 1, "idle"))
LARGE = b"".join(
    encode_request(
        MetadataRequest(
            topics=[MetadataRequestTopic(name=f"{n:0200}") for n in range(300)],
            allow_auto_topic_creation=False,
        ),
        5,
        1,
        "idle",
    )
)

# As the broker makes them: no tickets, no renegotiation.
BARE_SERVER = """
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
context.num_tickets = 0
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
held = []
while True:
    held.append(context.wrap_socket(listener.accept()[0], server_side=True))
    held[-1].sendall(held[-1].recv(1024))
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.idle_tls", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=COUNT)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder:
        file = Path(folder, "server.pem")
        make_certificate(file)
        for protocol, asked in (("PLAINTEXT", SMALL), ("SSL", SMALL), ("SSL", LARGE)):
            flags = ["--listeners", f"{protocol}://127.0.0.1:0", "--ssl-certificate", str(file)]
            with segbroker(*flags) as server:
                host, _, port = server.address.rpartition(":")
                is_tls = protocol == "SSL"
                each, whole = measure(server.pid, (host, int(port)), is_tls, count, asked)
            print(
                f"{protocol:<9} {count:,} idle connections that asked with {len(asked):,} bytes:"
                f" {each:.1f} KiB each, {whole:.0f} MiB the daemon with them",
                flush=True,
            )
        with bare_server(file) as (pid, address):
            each, _ = measure(pid, address, True, count, SMALL)
        print(f"{'bare ssl':<9} {count:,} idle sockets: {each:.1f} KiB each", flush=True)


@contextmanager
def bare_server(certificate: Path) -> Iterator[tuple[int, tuple[str, int]]]:
    """A process that shakes hands, echoes once, and keeps its sockets."""
    command = [sys.executable, "-c", BARE_SERVER, str(certificate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.pid, ("127.0.0.1", int(server.stdout.readline()))
        finally:
            server.kill()


def make_certificate(file: Path) -> None:
    """A certificate of its own authority, and its key, in one file."""
    key, certificate = file.with_name("key.pem"), file.with_name("cert.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=localhost", "-days", "30"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    file.write_bytes(key.read_bytes() + certificate.read_bytes())


def measure(
    pid: int, address: tuple[str, int], is_tls: bool, count: int, asked: bytes
) -> tuple[float, float]:
    """KiB of the daemon for each connection beyond the first, and MiB with all of them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # a certificate that this run has made
    held: list[socket.socket] = []
    before = 0.0
    for number in range(count + 1):
        sock = socket.create_connection(address, 30)
        held.append(context.wrap_socket(sock) if is_tls else sock)
        held[-1].sendall(asked)
        receive(held[-1])
        if not number:
            before = resident_mib(pid)
    after = resident_mib(pid)
    for one in held:
        one.close()
    return (after - before) * 1024 / count, after


def receive(sock: socket.socket) -> None:
    """A whole reply, or the echo of a request: both begin with their size."""
    left = int.from_bytes(sock.recv(4), "big")
    while left:
        got = len(sock.recv(left))
        assert got, "refused"
        left -= got


if __name__ == "__main__":
    main()
