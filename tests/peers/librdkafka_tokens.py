"""The server of tokens that librdkafka's test of OIDC (0126) asks: its own, out of its package.

It is part of trivup, with which librdkafka starts what its tests need.  It grants tokens by client
credentials, by a signed assertion and as the metadata service of Azure does, and has addresses
that grant an expired and a broken token.  Its tokens are those of the user `subject`.
"""

import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from jwt.algorithms import RSAAlgorithm

from ..support.ports import keep_port
from ..support.program import Program, eventually
from .places import cache, run, unfinished

ARCHIVE: Final = "trivup-0.15.0.tar.gz"
PASSWORD: Final = "wonderland"


@dataclass(frozen=True)
class Tokens:
    """A running server of tokens.

    Attributes:
        flags: of a daemon that takes its tokens.
        settings: of a client, one a line.
        environment: what the test looks up.
    """

    flags: tuple[str, ...]
    settings: str
    environment: dict[str, str]


@contextmanager
def serving(source: Path, place: Path) -> Iterator[Tokens]:
    """The server, for the length of a `with` block.

    Args:
        source: librdkafka's tree.
        place: gets the keys of the client and the log.

    Raises:
        Missing: what it needs cannot be installed.
    """
    key = generate_private_key(public_exponent=65537, key_size=2048)
    public = place / "client.jwk"
    public.write_text(RSAAlgorithm.to_jwk(key.public_key()))
    port = keep_port()
    url = f"http://localhost:{port}"
    command = [sys.executable, "-m", "trivup.apps.OauthbearerOIDCApp", "--port", str(port)]
    command += ["--client-public-key", str(public)]
    path = {"PYTHONPATH": str(_installed(source))}
    log = place / "tokens"
    with Program(command, log, what="the server of tokens", environment=path):
        eventually(lambda: _answers(f"{url}/keys"))
        yield Tokens(
            (
                *("--listeners", "SASL_PLAINTEXT://127.0.0.1:0"),
                *("--sasl-mechanisms", "OAUTHBEARER"),
                *("--sasl-oauthbearer-jwks-endpoint-url", f"{url}/keys"),
                *("--sasl-oauthbearer-expected-issuer", "issuer"),
                *("--sasl-oauthbearer-expected-audience", "api://default"),
            ),
            "security.protocol=SASL_PLAINTEXT\n"
            "sasl.mechanisms=OAUTHBEARER\n"
            "sasl.oauthbearer.method=OIDC\n"
            "sasl.oauthbearer.client.id=123\n"
            "sasl.oauthbearer.client.secret=abc\n"
            "sasl.oauthbearer.scope=test\n"
            "sasl.oauthbearer.extensions=ExtensionworkloadIdentity=develC348S,Extensioncluster=lkc123\n"
            f"sasl.oauthbearer.token.endpoint.url={url}/retrieve\n",
            {
                "VALID_OIDC_URL": f"{url}/retrieve",
                "INVALID_OIDC_URL": f"{url}/retrieve/badformat",
                "EXPIRED_TOKEN_OIDC_URL": f"{url}/retrieve/expire",
                "OAUTHBEARER_CLIENT_PRIVATE_KEY": _written(key, place / "key", NoEncryption()),
                "OAUTHBEARER_CLIENT_PRIVATE_KEY_ENCRYPTED": _written(
                    key, place / "locked", BestAvailableEncryption(PASSWORD.encode())
                ),
                "OAUTHBEARER_CLIENT_PRIVATE_KEY_PASSWORD": PASSWORD,
            },
        )


def _written(key: RSAPrivateKey, path: Path, lock: KeySerializationEncryption) -> str:
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
    return str(path)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _installed(source: Path) -> Path:
    place = cache() / ARCHIVE.removesuffix(".tar.gz")
    if not place.exists():
        with unfinished(place) as work:
            pip = [sys.executable, "-m", "pip", "install", "-q", "--target", os.fspath(work)]
            run([*pip, str(source / "tests" / "trivup" / ARCHIVE)], work)
    return place
