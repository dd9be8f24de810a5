"""The bearer tokens of one client: got when they are needed, kept, and renewed before they expire.

    opening a connection    not fresh: a new one first, before the socket; a refusal by the broker
                            makes the one that it refused not fresh
    renewing a session      not fresh: `wanted`, while the connection goes on with what it has; the
                            shell gets a new one beside it, and the connection looks again

Fresh is what has had no more than FRESH_PERCENT of its life since it first was got; of unknown
life, FRESH_S.  Its age is what the clock or the monotonic one says, whichever is more: one may be
set back, the other one stands still while the machine sleeps.  When no new one can be got, one that
has not expired is still used.  Connections that open at the same time wait for the same token.

Thread-safe: `current` is one reference, and getting is done by one thread or task at a time, beside
those that were given up.
"""

import inspect
import threading
import time
from collections.abc import Callable
from typing import Final

from segbroker.protocol.oauthbearer import check_token

from .errors import SegbrokerError, TokenUnavailable
from .token_sources import BearerToken, TokenProvider, expiry_of

FRESH_PERCENT: Final = 70
FRESH_S: Final = 5.0
# What is left of a token that is still worth a login.
USABLE_S: Final = 1.0
RETRY_S: Final = 1.0
# For somebody else who gets one, and may never come back.
WAIT_S: Final = 15.0
# A call of the provider that takes so long is given up, and another one made beside it: a request
# without a time-out in a network that lost it would be the end of all logins.
HUNG_S: Final = 300.0
HUNG_MAX: Final = 10
NO_RETURN: Final = "the token provider does not return"
RETRY_MAX_S: Final = 30.0
ASYNC: Final = "an async token_provider is for the async clients; this one blocks"


class Tokens:
    """See the module."""

    def __init__(
        self,
        provider: TokenProvider,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock: seconds since 1970, which may jump; steady: seconds, from anywhere."""
        self.provider = provider
        self._clock = clock
        self._steady = steady
        # Another one when whoever holds it is given up.
        self._lock = threading.Lock()
        self._began_at = 0.0
        self._hung_count = 0
        self.current: BearerToken | None = None
        # By both clocks.
        self._got_at = (0.0, 0.0)
        # By the clock as it was then; None: unknown.
        self._life_s: float | None = None
        # Somebody needs a new one soon, and no shell has heard of it.
        self._wanted = False
        self.is_getting = False
        self._failures = 0
        self._retry_at = 0.0
        self.is_async = inspect.iscoroutinefunction(provider) or inspect.iscoroutinefunction(
            type(provider).__call__
        )
        """Whether the provider has to be awaited, in the event loop of its client; of some
        functions (`lambda: get_token("orders")`) that is not known before they were called."""

    @property
    def is_fresh(self) -> bool:
        """Whether there is one that needs no successor yet."""
        if self.current is None:
            return False
        fresh_s = FRESH_S if self._life_s is None else self._life_s * FRESH_PERCENT / 100
        return self._age_s() < fresh_s

    def _age_s(self) -> float:
        got_at, got_steady_at = self._got_at
        return max(self._clock() - got_at, self._steady() - got_steady_at)

    def may_renew(self) -> bool:
        """Whether a session may be renewed now; if not, a new token is wanted."""
        if self.is_fresh:
            return True
        self._wanted = not self.is_getting and self._steady() >= self._retry_at
        return False

    def take_wanted(self) -> bool:
        """Whether the shell has to `get` one, beside what it does."""
        wanted, self._wanted = self._wanted, False
        self.is_getting = self.is_getting or wanted
        return wanted

    def reject(self, value: str) -> None:
        """A broker has refused it."""
        token = self.current
        if token is not None and token.value == value:
            self.current = None

    def get(self) -> None:
        """Have a fresh one, or at least one that has not expired.  Blocks.

        Raises TokenUnavailable, AuthenticationFailed: there is none.
        """
        lock = self._lock
        if not lock.acquire(timeout=WAIT_S):
            self._maybe_give_up(lock)
            raise TokenUnavailable(NO_RETURN)
        if lock is not self._lock:  # it was of one who was given up, and has come back
            lock.release()
            self.get()
            return
        self._began_at = self._steady()
        try:
            if not self.is_fresh:
                found = self.provider()
                if inspect.isawaitable(found):
                    self.is_async = True
                    if inspect.iscoroutine(found):
                        found.close()
                    raise TokenUnavailable(ASYNC)
                if lock is not self._lock:
                    raise TokenUnavailable(NO_RETURN)  # somebody else has got one meanwhile
                self.take(found)
        except Exception as exc:
            if lock is not self._lock:
                raise TokenUnavailable(NO_RETURN) from exc
            self.failed(exc)
        finally:
            if lock is self._lock:
                self.is_getting = False
            else:
                self._hung_count -= 1
            lock.release()

    def _maybe_give_up(self, lock: threading.Lock) -> None:
        """Of whoever holds it: the next one gets a token without waiting for that."""
        is_hung = self._steady() - self._began_at >= HUNG_S
        if lock is self._lock and is_hung and self._hung_count < HUNG_MAX:
            self._hung_count += 1
            self.is_getting = False
            self._lock = threading.Lock()

    def take(self, found: object) -> None:
        """What the provider gave.  Raises TokenUnavailable: it is none."""
        token = found if isinstance(found, BearerToken) else BearerToken(found)  # type: ignore[arg-type]
        try:
            check_token(token.value)
        except ValueError as exc:
            raise TokenUnavailable(f"the token provider gave none: {exc}") from None
        # What its issuer said of the time from now on is true also where our clock is not.
        expires_at = expiry_of(token.value) if token.expires_at is None else token.expires_at
        now, steady_now = self._clock(), self._steady()
        life_s = None if expires_at is None else expires_at - now
        if life_s is not None and life_s <= 0:
            raise TokenUnavailable("the token provider gave one that has expired")
        self._failures = 0
        if self.current is not None and self.current.value == token.value and life_s is not None:
            # From a provider that keeps its tokens: as old as it was, and asked for again later.
            self._retry_at = steady_now + max(RETRY_S, min(RETRY_MAX_S, life_s / 10))
            return
        self._got_at, self._life_s = (now, steady_now), life_s
        self.current = BearerToken(token.value, expires_at)

    def failed(self, exc: Exception) -> None:
        """What the provider raised.  Raises TokenUnavailable, AuthenticationFailed: without one
        from before that may still do."""
        self._failures += 1
        wait_s = min(RETRY_MAX_S, RETRY_S * 2 ** min(self._failures - 1, 10))
        self._retry_at = self._steady() + wait_s
        if self.current is not None and (
            self._life_s is None or self._age_s() < self._life_s - USABLE_S
        ):
            return
        self.current = None
        if isinstance(exc, SegbrokerError):
            raise exc
        raise TokenUnavailable(f"the token provider raised {type(exc).__name__}") from exc
