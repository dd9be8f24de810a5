"""An issuer of tokens for one test: keys, tokens signed by them, and a small server for both.

| path    |                                                                              |
|---------|------------------------------------------------------------------------------|
| /jwks   | the public keys                                                              |
| /token  | the client-credentials grant (RFC 6749, 4.4) for `clients`                   |

It is a plain HTTP server in threads on 127.0.0.1, with TLS if it is given a certificate.
"""

import json
import ssl
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

ISSUER = "https://issuer.example.org"
AUDIENCE = "segbroker"
# What a broker expects of the tokens.
EXPECTED = {
    "sasl_oauthbearer_expected_issuer": ISSUER,
    "sasl_oauthbearer_expected_audience": AUDIENCE,
}


class Issuer:
    """See the module."""

    def __init__(self) -> None:
        self.keys: dict[str, RSAPrivateKey] = {}
        self.clients = {"alice": "wonderland", "brief": "hurry"}
        self.lifetime_s = 3_600
        # Of the tokens that /token answers to one of them.
        self.lifetimes_s = {"brief": 5}
        # Of the requests that came, the paths; and what /token was asked.
        self.asked: list[str] = []
        self.grants: list[dict[str, str]] = []
        self.answer: Callable[[str], tuple[int, bytes]] | None = None
        self.rotate("first")

    def rotate(self, kid: str) -> None:
        """From now on there is this key alone."""
        self.keys = {kid: generate_private_key(public_exponent=65537, key_size=2048)}

    def jwks(self) -> bytes:
        rows = []
        for kid, key in self.keys.items():
            row = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
            rows.append(row | {"kid": kid, "use": "sig", "alg": "RS256"})
        return json.dumps({"keys": rows}).encode()

    def claims(self, **changed: object) -> dict[str, Any]:
        """Those of a good token; None leaves one out."""
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "alice",
            "iat": now,
            "exp": now + self.lifetime_s,
            "scope": "read write",
            **changed,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, headers: dict[str, Any] | None = None, **changed: object) -> str:
        """A token by the key of now."""
        kid, key = next(iter(self.keys.items()))
        return jwt.encode(self.claims(**changed), key, "RS256", {"kid": kid, **(headers or {})})

    def write(self, path: Path) -> str:
        """The URL of a file with the keys of now."""
        path.write_bytes(self.jwks())
        return path.as_uri()

    @contextmanager
    def serving(self, certificate: Path | None = None) -> Iterator[str]:
        """The URL of its server, without a path."""
        server = _Server(("127.0.0.1", 0), _Handler)
        server.issuer = self
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            scheme = "https"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"{scheme}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def grant(self, asked: dict[str, str], login: str) -> tuple[int, bytes]:
        """The answer of /token."""
        kind, _, text = login.partition(" ")
        name, _, secret = (b64decode(text).decode() if kind == "Basic" else "").partition(":")
        self.grants.append({**asked, "client": name})
        if asked.get("grant_type") != "client_credentials":
            return 400, b'{"error":"unsupported_grant_type"}'
        if not name or self.clients.get(name) != secret:
            return 401, b'{"error":"invalid_client","error_description":"no such client"}'
        lifetime_s = self.lifetimes_s.get(name, self.lifetime_s)
        until = int(time.time()) + lifetime_s
        token = self.token(sub=name, scope=asked.get("scope"), exp=until)
        told = {"access_token": token, "token_type": "Bearer", "expires_in": lifetime_s}
        return 200, json.dumps(told).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    issuer: Issuer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away: of no interest."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        issuer = self.server.issuer
        issuer.asked.append(self.path)
        if issuer.answer is not None:
            self._answer(*issuer.answer(self.path))
        elif self.path == "/jwks":
            self._answer(200, issuer.jwks())
        else:
            self._answer(404, b"")

    def do_POST(self) -> None:
        issuer = self.server.issuer
        issuer.asked.append(self.path)
        size = int(self.headers.get("Content-Length", "0"))
        fields = parse_qs(self.rfile.read(size).decode())
        asked = {name: values[0] for name, values in fields.items()}
        if issuer.answer is not None:
            self._answer(*issuer.answer(self.path))
        elif self.path == "/token":
            self._answer(*issuer.grant(asked, self.headers.get("Authorization", "")))
        else:
            self._answer(404, b"")

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        if status in (301, 302, 307):
            self.send_header("Location", data.decode())
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base has it
        pass
