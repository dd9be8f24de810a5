"""Who may log in: the users of the data directory, checked without giving them away.

    user there       its credential
    user not there   a made-up one: salt from a durable secret and the name, so that it is the same
                     every time; iterations and size of salt as most users have them

So a stranger who asks for salts learns no names, and a password costs the same computing whether
its user exists or not.  Computing is done in two threads of its own: however many try passwords,
reads of the disk find a lane, and the loop goes on; and however busy the loop is, the next one is
checked.  Addresses take turns: behind a thousand logins of one address the next one of another
would be the oldest, and crowded out (handshakes.py).

Bearer tokens (OAUTHBEARER) name users of somebody else, who are not stored here: bearer_tokens.py
checks them, by the keys of key_source.py.

The first user comes from `initial_user`, or from `segbroker user add --data-dir` while nobody
serves; what is not stored when it is asked for is a `StorageError` and ends the start.
"""

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, TypeVar

import structlog
import trio

from segbroker.protocol.sasl import check_password, check_user_name
from segbroker.protocol.scram import (
    SALT_SIZE,
    ScramCredential,
    ScramMechanism,
    is_password,
    make_credential,
)
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.credentials import (
    SECTION,
    USER_SET,
    USERS_SECRET,
    credentials_of,
    rows_of,
    secret_of,
)

from ..configuration.config import BrokerConfig, InvalidConfig
from ..configuration.config_oauth import lacking
from ..loop.address_threads import AddressThreads
from ..peers.bearer import Bearer, UnknownKey, Unverifiable
from .bearer_tokens import TokenHead, TokenRules
from .key_source import KeySource
from .signing_keys import SigningKeys

log = structlog.get_logger()

CHECKS_MAX: Final = 2
SECRET_SIZE: Final = 32


class Authentication:
    """The users, for logins."""

    def __init__(self, manager: DiskManager, config: BrokerConfig) -> None:
        self._manager = manager
        self._config = config
        self._checks = AddressThreads(CHECKS_MAX)
        # Who changes users holds it from the look at what there is to the end of the sync.
        self.changing = trio.Lock()
        # The users that were counted, and what they have.
        self._counted: Mapping[str, Any] = {}
        self._habits: dict[ScramMechanism, Counter[tuple[int, int]]] = {
            mechanism: Counter() for mechanism in ScramMechanism
        }
        self._cheapest_of: Counter[ScramMechanism] = Counter()
        self._rules = TokenRules(config)
        # None: no place to read signing keys from, or nothing to do it with; then OAUTHBEARER is
        # not offered, nor can it be while the broker runs (config_oauth.py).
        self.keys: KeySource | None = None
        if config.sasl_oauthbearer_jwks_endpoint_url and lacking() is None:
            self.keys = KeySource(config)

    @property
    def content(self) -> Mapping[str, Any]:
        """What is kept: credentials.py reads it."""
        found: Mapping[str, Any] = self._manager.section(SECTION) or {}
        return found

    def prepare(self) -> None:
        """Make the secret and the initial user where they are missing. Blocking: for a lane.

        Raises:
            StorageError: they cannot be stored.
            InvalidConfig: the initial user's name or password cannot be one.
        """
        config = self._config
        if secret_of(self.content) is None and any(
            spec.protocol.is_sasl for spec in config.listener_specs
        ):
            self._manager.record_now(USERS_SECRET, secret=secrets.token_bytes(SECRET_SIZE))
        self._count_habits()
        name = config.initial_user
        if not name or credentials_of(self.content, name):
            return
        for key, check, text in (
            ("initial_user", check_user_name, name),
            ("initial_password", check_password, config.initial_password),
        ):
            try:
                check(text)
            except ValueError as exc:
                raise InvalidConfig(f"{key}: {exc}") from exc
        made = make_credentials(config.initial_password, config.scram_iterations)
        self._manager.record_now(USER_SET, name=name, rows=rows_of(made))
        log.info("initial_user_created", user=name)

    async def is_password(self, name: str, password: str, host: str) -> bool:
        """Whether there is such a user with this password; asked from an address."""
        known = credentials_of(self.content, name)
        # The cheapest that the user has; without one as much work as most others are.
        mechanism = min(known, default=None) or self._cheapest()
        credential, exists = self.credential(name, mechanism)
        check = partial(is_password, mechanism, credential, password)
        is_right = await self._checks.run(host, check)
        # By now: it may have been changed while this waited, or was computed.
        return is_right and exists and self.credential(name, mechanism)[0] == credential

    async def bearer(self, token: str, host: str) -> Bearer:
        """Whom a token lets in; it came from an address.

        Raises:
            TokenRefused: nobody.
            Unverifiable: that cannot be known now.
        """
        assert self.keys is not None, "offered only with a place of keys"
        head = self._rules.head_of(token)
        if self.keys.keys is None:
            await self.keys.refresh_for_unknown(is_patient=False)
        if (keys := self.keys.keys) is None:
            raise Unverifiable(self.keys.error)
        begun = self.keys.begun_count
        while True:
            try:
                return await self._verified(token, head, keys, host)
            except UnknownKey:
                if (newer := await self._newer(self.keys, keys, begun)) is None:
                    raise
            keys = newer

    async def _newer(self, source: KeySource, keys: SigningKeys, begun: int) -> SigningKeys | None:
        """Others than these, as soon as they are read; None: there are none, also by a reading that
        began when `begun` others had.  Raises Unverifiable."""
        while source.keys is keys:
            if source.ended_count > begun:
                return None
            await source.refresh_for_unknown()
            if source.error:
                raise Unverifiable(source.error)
        return source.keys

    async def _verified(self, token: str, head: TokenHead, keys: SigningKeys, host: str) -> Bearer:
        return await self._checks.run(host, partial(self._rules.verify, token, head, keys))

    def credential(self, name: str, mechanism: ScramMechanism) -> tuple[ScramCredential, bool]:
        """What is kept of a user, and whether that is true: there may be no such user."""
        known = credentials_of(self.content, name).get(mechanism)
        made_up = self._made_up(name, mechanism)
        return (made_up, False) if known is None else (known, True)

    def random(self, size: int) -> bytes:
        """Fresh random bytes."""
        return secrets.token_bytes(size)

    def _made_up(self, name: str, mechanism: ScramMechanism) -> ScramCredential:
        iterations, salt_size = self._habit(mechanism)
        secret = secret_of(self.content) or b""
        seed = hmac.digest(secret, f"{mechanism.label} {name}".encode(), "sha512")
        salt = hashlib.shake_256(seed).digest(salt_size)
        nothing = secrets.token_bytes(mechanism.digest_size)
        return ScramCredential(salt, iterations, nothing, nothing)

    def _habit(self, mechanism: ScramMechanism) -> tuple[int, int]:
        """Iterations and size of salt that most users have."""
        self._count_habits()
        habit = _most(self._habits[mechanism])
        return (self._config.scram_iterations, SALT_SIZE) if habit is None else habit

    def _cheapest(self) -> ScramMechanism:
        """By which the passwords of most users are checked."""
        self._count_habits()
        return _most(self._cheapest_of) or ScramMechanism.SHA_256

    def _count_habits(self) -> None:
        """Look at the users who are others than when this was done last: there may be thousands,
        and this is asked for a login, on the loop."""
        users: Mapping[str, Any] = self.content.get("users", {})
        before = self._counted
        if users is before:
            return
        self._counted = users
        for name, row in before.items():
            if users.get(name) is not row:
                self._count(name, before, -1)
        for name, row in users.items():
            if before.get(name) is not row:
                self._count(name, users, 1)

    def _count(self, name: str, users: Mapping[str, Any], by: int) -> None:
        known = credentials_of({"users": users}, name)
        for mechanism, one in known.items():
            _add(self._habits[mechanism], (one.iterations, len(one.salt)), by)
        for mechanism in sorted(known)[:1]:
            _add(self._cheapest_of, mechanism, by)


_K = TypeVar("_K", tuple[int, int], ScramMechanism)


def _most(counter: Counter[_K]) -> _K | None:
    """What most have; of those that as many have always the same, whoever came first."""
    return max(counter, key=lambda one: (counter[one], one), default=None)


def _add(counter: Counter[_K], key: _K, by: int) -> None:
    counter[key] += by
    if not counter[key]:
        del counter[key]


def make_credentials(password: str, iterations: int) -> dict[ScramMechanism, ScramCredential]:
    """What is kept of a new password: for every mechanism, each with a salt of its own."""
    return {
        mechanism: make_credential(mechanism, password, secrets.token_bytes(SALT_SIZE), iterations)
        for mechanism in ScramMechanism
    }
