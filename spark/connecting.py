"""How to reach the brokers: the options `kafka.*` (or `segbroker.*`) that source and sink share.

Invariant: ClientOptions can be pickled: it travels to the executors inside a reader or writer.
"""

from collections.abc import Collection
from dataclasses import dataclass

from segbroker.client.security import Security
from segbroker.client.settings import Address, parse_bootstrap
from segbroker.protocol.oauthbearer import OAUTHBEARER

from .errors import OptionError
from .given import INT32_MAX, PREFIXES, Given, number, without_effect

CLIENT_ID = "segbroker-spark"
REQUEST_TIMEOUT_MS = 30_000
API_TIMEOUT_MS = 60_000

COMMON = (
    "bootstrap.servers",
    "client.id",
    "request.timeout.ms",
    "default.api.timeout.ms",
)
# Of TLS and SASL; which there are, segbroker.client.Security knows.
SECURITY = ("security.", "ssl.", "sasl.", "enable.ssl.", "https.")
# As Kafka's source and sink refuse them, and what to say instead.
REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "the source commits nothing; offsets live in the checkpoint",
    "key.deserializer": "keys are binary; cast them in the query",
    "value.deserializer": "values are binary; cast them in the query",
    "key.serializer": "keys are binary; cast them in the query",
    "value.serializer": "values are binary; cast them in the query",
    "interceptor.classes": "interceptors would break what a checkpoint promises",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """See the module.  Times in milliseconds."""

    bootstrap: tuple[Address, ...]
    client_id: str = CLIENT_ID
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    api_timeout_ms: int = API_TIMEOUT_MS
    # TLS and login; None: PLAINTEXT.
    security: Security | None = None
    # How often the driver asks in all, and its first pause; None: until the time-out.
    tries_count_max: int | None = None
    retry_backoff_ms: int | None = None

    @property
    def bootstrap_text(self) -> str:
        """The addresses as one string, as every client takes them."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.bootstrap
        )


def parse_client(given: Given, label: str | None = None) -> ClientOptions:
    """The options of a connection, checked; `label` is the client id where none is given."""
    retries = number(given.own("fetchOffset.numRetries"), least=0)
    return ClientOptions(
        bootstrap=_bootstrap(given),
        client_id=given.client("client.id")[1] or label or CLIENT_ID,
        security=_security(given),
        request_timeout_ms=number(given.client("request.timeout.ms"), least=1, most=INT32_MAX)
        or REQUEST_TIMEOUT_MS,
        api_timeout_ms=number(given.client("default.api.timeout.ms"), least=1, most=INT32_MAX)
        or API_TIMEOUT_MS,
        tries_count_max=None if retries is None else retries + 1,
        retry_backoff_ms=number(given.own("fetchOffset.retryIntervalMs"), least=1),
    )


def check_client_option(name: str, known: Collection[str]) -> None:
    """Refuse what cannot be set, say of what has no effect; `known` beside COMMON."""
    assert name.startswith(PREFIXES)
    bare = name.partition(".")[2]
    if bare in REFUSED:
        raise OptionError(f"{name} cannot be set: {REFUSED[bare]}")
    if bare not in COMMON and bare not in known and not bare.startswith(SECURITY):
        without_effect(name)


def _bootstrap(given: Given) -> tuple[Address, ...]:
    name, value = given.client("bootstrap.servers")
    if value is None:
        raise OptionError(f"{name} is missing: HOST:PORT of a broker, or several with commas")
    try:
        return parse_bootstrap(value)
    except ValueError as exc:
        raise OptionError(f"{name}={value!r}: {exc}") from exc


def _security(given: Given) -> Security | None:
    names = {name.partition(".")[2] for name in given.values if name.startswith(PREFIXES)}
    found = {name: given.client(name)[1] for name in names if name.startswith(SECURITY)}
    try:
        security = Security.from_properties({k: v for k, v in found.items() if v is not None})
    except ValueError as exc:
        raise OptionError(f"kafka.security.protocol and what belongs to it: {exc}") from exc
    if security is not None and security.mechanism == OAUTHBEARER:
        raise OptionError(
            f"kafka.sasl.mechanism={OAUTHBEARER} is not offered here: use a SCRAM mechanism, or"
            " Spark's own format kafka"
        )
    return security
