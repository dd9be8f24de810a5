"""How a client protects its connections, and who it says it is.

    Security(tls=True, ca_file="ca.pem")                                          SSL
    Security(tls=True, ca_file="ca.pem", cert_file="me.pem", key_file="me.key")   SSL, both sides
    Security(mechanism="SCRAM-SHA-512", user="alice", password="…")               SASL_PLAINTEXT
    Security(tls=True, mechanism="PLAIN", user="alice", password="…")             SASL_SSL
    Security(tls=True, mechanism="OAUTHBEARER", token_provider=get_token)         SASL_SSL

A token provider is a function without arguments that answers a token, or `ClientCredentials` or
`TokenFile` (token_sources.py).

`Security.from_properties` takes the names that Kafka's clients use, Java's and librdkafka's:

| property | here |
|---|---|
| security.protocol | tls, and whether there is a mechanism |
| sasl.mechanism, sasl.mechanisms | mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER |
| sasl.username and sasl.password, or sasl.jaas.config | user, password |
| sasl.oauthbearer.token.endpoint.url | token_provider: ClientCredentials; of file:///…, TokenFile |
| sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret (also …client.credentials.…), | |
| or clientId and clientSecret of sasl.jaas.config; sasl.oauthbearer.scope | … its parts |
| sasl.oauthbearer.header.urlencode | … whether id and secret are percent-encoded |
| https.ca.location | … the authorities of that address |
| sasl.oauthbearer.extensions | sasl_extensions: name=value, with commas between |
| ssl.ca.location, ssl.truststore.location | ca_file; without: the authorities of the system |
| ssl.certificate.location, ssl.keystore.location | cert_file |
| ssl.key.location, ssl.key.password | key_file, key_password |
| ssl.endpoint.identification.algorithm | verify_host: https, or none (also written empty) |
| enable.ssl.certificate.verification | verify |

Files are PEM; Java's stores are refused by name.  Passwords are never shown: not by repr, not in
an error.
"""

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from segbroker.protocol.oauthbearer import OAUTHBEARER, check_extensions
from segbroker.protocol.sasl import PLAIN
from segbroker.protocol.scram import MECHANISMS as SCRAM_MECHANISMS

from .token_sources import ClientCredentials, TokenFile, TokenProvider

MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAAS_OPTION: Final = re.compile(r'\b(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_TOKEN_PARTS: Final = (
    *("token_url", "client_id", "client_secret", "scope", "token_ca_file", "url_encode"),
)
_STORES: Final = (".jks", ".p12", ".pfx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """See the module.  ValueError for what does not go together."""

    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    verify_host: bool = True
    mechanism: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token_provider: TokenProvider | None = None
    sasl_extensions: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.mechanism is not None and self.mechanism not in MECHANISMS:
            raise ValueError(f"mechanism={self.mechanism!r} is not one of {', '.join(MECHANISMS)}")
        self._check_token()
        by_token = self.mechanism == OAUTHBEARER
        if self.mechanism is not None and not by_token and not (self.user and self.password):
            raise ValueError(f"mechanism={self.mechanism!r} needs user and password")
        if self.mechanism is None and (self.user or self.password):
            raise ValueError(f"user={self.user!r} without a mechanism")
        if not self.tls and (self.ca_file or self.cert_file):
            raise ValueError("ca_file and cert_file have no meaning without tls")
        if self.key_file and not self.cert_file:
            raise ValueError("key_file without cert_file")
        # Never the password itself in a message.
        for what, text in (("user", self.user), ("password", self.password)):
            if text and any("\ud800" <= letter <= "\udfff" for letter in text):
                raise ValueError(f"the {what} is no text: it has lone surrogates")
        if "\0" in f"{self.user}{self.password}":
            raise ValueError("a user name or password with NUL")

    def _check_token(self) -> None:
        if self.mechanism == OAUTHBEARER:
            if self.user or self.password:
                raise ValueError("OAUTHBEARER has no user and password, but a token_provider")
            if not callable(self.token_provider):
                raise ValueError("OAUTHBEARER needs a token_provider: a function of a token")
            check_extensions(self.sasl_extensions)
        elif self.token_provider is not None or self.sasl_extensions:
            raise ValueError(f"token_provider and sasl_extensions are for {OAUTHBEARER}")

    @property
    def protocol(self) -> str:
        """As Kafka names it: `SASL_SSL`."""
        return PROTOCOLS[self.tls + 2 * (self.mechanism is not None)]

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "Security | None":
        """From Kafka's property names; None: PLAINTEXT, nothing to protect.

        Raises ValueError for a name that is not known, and for values that do not go together.
        """
        values: dict[str, Any] = {}
        for name, value in properties.items():
            if name not in _PROPERTIES:
                raise ValueError(
                    f"unknown property {name!r}; known are {', '.join(sorted(_PROPERTIES))}"
                )
            values.update(_PROPERTIES[name](name, value))
        protocol = values.pop("protocol", None)
        if protocol is None:
            protocol = PROTOCOLS[0]
            if values:
                raise ValueError(
                    f"{next(iter(properties))} without security.protocol, one of"
                    f" {', '.join(PROTOCOLS[1:])}"
                )
        if protocol == PROTOCOLS[0]:
            return None
        if protocol.startswith("SASL"):
            # Java's default is GSSAPI, which nobody means here.
            values.setdefault("mechanism", PLAIN)
            token: dict[str, Any] = {
                name: values.pop(name) for name in _TOKEN_PARTS if name in values
            }
            if values["mechanism"] == OAUTHBEARER:
                values["token_provider"] = _provider(token)
            elif token:
                raise ValueError(f"sasl.oauthbearer.* is for sasl.mechanism={OAUTHBEARER}")
            elif values["mechanism"] in MECHANISMS and not (
                values.get("user") and values.get("password")
            ):
                raise ValueError(
                    f"security.protocol={protocol!r} needs sasl.username and sasl.password,"
                    " or sasl.jaas.config"
                )
        else:
            for name in ("mechanism", "user", "password", "sasl_extensions", *_TOKEN_PARTS):
                values.pop(name, None)
        if not protocol.endswith("SSL"):
            for name in ("ca_file", "cert_file", "key_file", "key_password"):
                values.pop(name, None)
        return cls(tls=protocol.endswith("SSL"), **values)

    def context(self) -> ssl.SSLContext:
        """For connections.  Reads the files.

        Raises OSError (ssl.SSLError is one): a file is not there, or does not hold what it should.
        """
        assert self.tls, "asked by whoever wants TLS"
        context = ssl.create_default_context(cafile=self.ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.verify and self.verify_host
        context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        if self.cert_file:
            # Always a function: without one OpenSSL would ask at the terminal.
            password = self.key_password or ""
            context.load_cert_chain(self.cert_file, self.key_file, password=lambda: password)
        return context


def _protocol(name: str, value: str) -> dict[str, Any]:
    if value.upper() not in PROTOCOLS:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(PROTOCOLS)}")
    return {"protocol": value.upper()}


def _text(key: str) -> Callable[[str, str], dict[str, Any]]:
    return lambda _, value: {key: value}


def _file(key: str) -> Callable[[str, str], dict[str, Any]]:
    def parse(name: str, value: str) -> dict[str, Any]:
        if value.lower().endswith(_STORES):
            raise ValueError(f"{name}={value!r}: only PEM files are read, no Java stores")
        return {key: value}

    return parse


def _store_type(name: str, value: str) -> dict[str, Any]:
    if value.upper() != "PEM":
        raise ValueError(f"{name}={value!r}: only PEM files are read")
    return {}


def _provider(parts: Mapping[str, Any]) -> TokenProvider:
    """Raises ValueError: something is missing."""
    url = parts.get("token_url", "")
    if not url:
        raise ValueError("OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url")
    if url.startswith("file:"):
        found = urlsplit(url)
        if found.netloc not in ("", "localhost") or not found.path.startswith("/"):
            raise ValueError(f"sasl.oauthbearer.token.endpoint.url={url!r} is not file:///path")
        return TokenFile(unquote(found.path))
    if not parts.get("client_id") or not parts.get("client_secret"):
        raise ValueError("OAUTHBEARER needs sasl.oauthbearer.client.id and .client.secret")
    return ClientCredentials(
        url,
        parts["client_id"],
        parts["client_secret"],
        scope=parts.get("scope", ""),
        ca_file=parts.get("token_ca_file"),
        url_encode=parts.get("url_encode", False),
    )


def _extensions(name: str, value: str) -> dict[str, Any]:
    pairs = [item.strip().partition("=") for item in value.split(",") if item.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError(f"{name} is not NAME=VALUE,NAME=VALUE")
    return {"sasl_extensions": {key: text for key, _, text in pairs}}


def _only(*allowed: str) -> Callable[[str, str], dict[str, Any]]:
    def parse(name: str, value: str) -> dict[str, Any]:
        if value.rpartition(".")[2] not in allowed:
            raise ValueError(f"{name}={value!r} is not {', '.join(allowed)}")
        return {}

    return parse


def _jaas_token(name: str, found: Mapping[str, str]) -> dict[str, Any]:
    options = {"clientId": "client_id", "clientSecret": "client_secret", "scope": "scope"}
    values: dict[str, Any] = {}
    extensions: dict[str, str] = {}
    for key, text in found.items():
        if key in options:
            values[options[key]] = text
        elif key.startswith("extension_"):
            extensions[key.removeprefix("extension_")] = text
        else:
            raise ValueError(f"{name}: {key} is none of {', '.join(options)}, extension_NAME")
    if extensions:
        values["sasl_extensions"] = extensions
    return values


def _jaas(name: str, value: str) -> dict[str, Any]:
    found = {key: re.sub(r"\\(.)", r"\1", text) for key, text in _JAAS_OPTION.findall(value)}
    if "OAuthBearerLoginModule" in value:
        return _jaas_token(name, found)
    if not found.keys() >= {"username", "password"}:
        raise ValueError(f'{name} is not `… required username="…" password="…";`')
    return {"user": found["username"], "password": found["password"]}


def _flag(key: str) -> Callable[[str, str], dict[str, Any]]:
    def parse(name: str, value: str) -> dict[str, Any]:
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{name}={value!r} is neither true nor false")
        return {key: value.lower() == "true"}

    return parse


def _verify_host(name: str, value: str) -> dict[str, Any]:
    if value.lower() not in ("https", "none", ""):
        raise ValueError(f"{name}={value!r} is neither https nor none")
    return {"verify_host": value.lower() == "https"}


_PROPERTIES: Final[dict[str, Callable[[str, str], dict[str, Any]]]] = {
    "security.protocol": _protocol,
    "sasl.mechanism": _text("mechanism"),
    "sasl.mechanisms": _text("mechanism"),
    "sasl.username": _text("user"),
    "sasl.password": _text("password"),
    "sasl.jaas.config": _jaas,
    "sasl.oauthbearer.token.endpoint.url": _text("token_url"),
    "sasl.oauthbearer.client.id": _text("client_id"),
    "sasl.oauthbearer.client.secret": _text("client_secret"),
    "sasl.oauthbearer.client.credentials.client.id": _text("client_id"),
    "sasl.oauthbearer.client.credentials.client.secret": _text("client_secret"),
    "sasl.oauthbearer.scope": _text("scope"),
    "sasl.oauthbearer.extensions": _extensions,
    "sasl.oauthbearer.header.urlencode": _flag("url_encode"),
    # As Java and librdkafka want them; here they say nothing new.
    "sasl.oauthbearer.method": _only("oidc"),
    "sasl.oauthbearer.grant.type": _only("client_credentials"),
    "sasl.oauthbearer.jwt.retriever.class": _only(
        "ClientCredentialsJwtRetriever", "DefaultJwtRetriever", "FileJwtRetriever"
    ),
    "sasl.login.callback.handler.class": _only("OAuthBearerLoginCallbackHandler"),
    "https.ca.location": _file("token_ca_file"),
    "ssl.ca.location": _file("ca_file"),
    "ssl.truststore.location": _file("ca_file"),
    "ssl.truststore.type": _store_type,
    "ssl.certificate.location": _file("cert_file"),
    "ssl.keystore.location": _file("cert_file"),
    "ssl.keystore.type": _store_type,
    "ssl.key.location": _file("key_file"),
    "ssl.key.password": _text("key_password"),
    "ssl.endpoint.identification.algorithm": _verify_host,
    "enable.ssl.certificate.verification": _flag("verify"),
}
FILE_PROPERTIES: Final = frozenset(
    {
        "https.ca.location",
        "ssl.ca.location",
        "ssl.truststore.location",
        "ssl.certificate.location",
        "ssl.keystore.location",
        "ssl.key.location",
    }
)
"""Those whose values are paths of files."""
CLIENT_ID_PROPERTIES: Final = (
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.id",
)
"""Who asks for tokens, by its names."""
SECRET_PROPERTIES: Final = frozenset(
    {
        "sasl.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "ssl.key.password",
    }
)
"""Those whose values are told to nobody."""
