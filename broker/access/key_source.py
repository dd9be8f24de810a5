"""Where signing keys come from, and when they are read again.

    at the start                a file must be usable; an address may be away, and is tried again
    every `..._refresh_ms`      an address; a file every FILE_LOOK_S, if that is sooner
    a token by no known key     at once, or when the last reading is UNKNOWN_PAUSE_S ago
    a reading that failed       after 1 s, 2 s ... 60 s; what was read last stays in force

Reading waits for a network, so it is done in a thread of its own, one at a time, and never on the
loop or in a lane: an issuer that does not answer holds up nobody but those who need its new keys.
They wait for the next reading, `..._timeout_ms` at most when it has begun: a refusal would be final
for them, and anybody can have the keys read just before they change.  One that had begun before may
be of then, too; who still is not known behind it waits for another.

Nothing that was read is used unless it is a usable set.  One reading is key_reading.py's.
"""

from functools import partial
from typing import Final
from urllib.parse import urlsplit

import structlog
import trio

from ..address import InvalidConfig
from ..configuration.config_oauth import OAuthKeys
from .key_reading import KeysUnavailable, read_keys
from .signing_keys import SigningKeys, UnusableKeys

log = structlog.get_logger()

UNKNOWN_PAUSE_S: Final = 5.0
FILE_LOOK_S: Final = 10.0
RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
# Of keys that are not used, so many are told.
LEFT_OUT_TOLD_MAX: Final = 10


class KeySource:
    """The signing keys in force; belongs to the loop."""

    def __init__(self, config: OAuthKeys) -> None:
        self._url = config.sasl_oauthbearer_jwks_endpoint_url
        self._is_file = urlsplit(self._url).scheme == "file"
        self._refresh_s = config.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
        self._timeout_s = config.sasl_oauthbearer_jwks_endpoint_timeout_ms / 1000
        self._read = partial(
            read_keys, self._url, config.sasl_oauthbearer_jwks_endpoint_ca, self._timeout_s
        )
        self.keys: SigningKeys | None = None
        """What was read last and can be used; None: nothing yet."""
        self.error = ""
        """Why the last reading failed; "" if it did not."""
        self.begun_count = 0
        self.ended_count = 0
        """Readings, one after the other: what has changed is in one that begins from now on."""
        # Replaced as a whole: a thread that was given up may be late.
        self._last: tuple[bytes, SigningKeys] | None = None
        self._tried_at = -UNKNOWN_PAUSE_S
        self._failures = 0
        self._thread = trio.CapacityLimiter(1)
        # Set when the reading that is under way, or asked for, has ended.
        self._under_way: trio.Event | None = None
        self._asked = trio.Event()

    async def start(self) -> None:
        """The first reading of a file; that of an address is `run`'s, for it may take its time.

        Raises:
            InvalidConfig: a file that is not there, or has no keys.
        """
        if not self._is_file:
            return
        await self.refresh()
        if self.error:
            raise InvalidConfig(f"sasl_oauthbearer_jwks_endpoint_url: {self._url}: {self.error}")

    async def run(self) -> None:
        """Read when it is due, for ever."""
        if not self._is_file:
            await self.refresh()
        while True:
            with trio.move_on_after(self._pause_s()):
                await self._asked.wait()
            self._asked = trio.Event()
            await self.refresh()

    async def refresh_for_unknown(self, *, is_patient: bool = True) -> None:
        """Somebody came with a token by no known key: have `run` read, unless it just did.

        Returns when a reading has ended that was under way, or came since.  It goes on when who
        waits for it is gone: others wait, too.

        is_patient: False: returns at once where `run` just did.
        """
        tried_at = self._tried_at
        while self._under_way is None and self._tried_at == tried_at:
            pause_s = tried_at + UNKNOWN_PAUSE_S - trio.current_time()
            if pause_s <= 0:
                self._under_way = trio.Event()
                self._asked.set()
            elif is_patient:
                await trio.sleep(pause_s)
            else:
                return
        if self._under_way is not None:
            await self._under_way.wait()

    async def refresh(self) -> None:
        """Read, for `start` and `run`.  Never raises but for cancellation."""
        done = trio.Event() if self._under_way is None else self._under_way
        self._under_way = done
        self.begun_count += 1
        try:
            await self._refresh()
        finally:
            self.ended_count = self.begun_count
            self._tried_at = trio.current_time()
            self._under_way = None
            done.set()

    async def _refresh(self) -> None:
        try:
            with trio.fail_after(self._timeout_s):
                # What is given up ends by itself, about now: then the next one has the thread.
                keys = await trio.to_thread.run_sync(
                    self._read_and_parse, limiter=self._thread, abandon_on_cancel=True
                )
        except trio.TooSlowError:
            self._failed(f"no answer within {self._timeout_s:g} s")
        except (KeysUnavailable, UnusableKeys) as exc:
            self._failed(str(exc))
        except Exception:  # of the machine, or a mistake of ours: the keys in force stay
            log.exception("signing_keys_not_read", url=self._url)
            self._failed("see the log of the broker")
        else:
            if self.keys is None or self.keys.names != keys.names or self.error:
                log.info(
                    "signing_keys_read",
                    url=self._url,
                    keys=len(keys),
                    left_out=keys.left_out[:LEFT_OUT_TOLD_MAX],
                )
            self.keys = keys
            self.error, self._failures = "", 0

    def _read_and_parse(self) -> SigningKeys:
        """In the thread: what was read last is not taken apart again."""
        data, last = self._read(), self._last
        if last is not None and last[0] == data:
            return last[1]
        keys = SigningKeys(data)
        self._last = data, keys
        return keys

    def _failed(self, why: str) -> None:
        self.error = why
        self._failures += 1
        log.error(
            "signing_keys_not_read",
            url=self._url,
            error=why,
            effect="those read before stay in force" if self.keys else "nobody can log in by token",
        )

    def _pause_s(self) -> float:
        if self._failures:
            return float(min(RETRY_MAX_S, RETRY_S * 2 ** min(self._failures - 1, 10)))
        return min(self._refresh_s, FILE_LOOK_S) if self._is_file else self._refresh_s
