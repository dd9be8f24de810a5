"""Peer: the other end of a connection, as requests see it.

Who is logged in and how, which listener it came in by, what client it says that it is, its fetch
session, its buckets of quotas, and the outbox for its replies.  Handlers get it with every request
(call.py); the socket itself belongs to connections/, and nothing here reads or writes one.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from ..address import origin
from ..configuration.logs import told
from ..principal import ANONYMOUS, Principal
from .fetch_session import FetchSession
from .listener import Listener
from .replies import Outbox
from .sasl import SaslSession

# Software names that start with this are ours: they are told of the vendor apis.
OUR_SOFTWARE: Final = "segbroker"


class Closable(Protocol):
    """What a connection keeps open."""

    def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class Peer:
    """One connected client."""

    outbox: Outbox
    address: tuple[str, int]
    # Where that comes from (address.py): what strangers are counted by.
    origin: str = field(init=False)
    # The address of ours that it reached: what Metadata answers when we listen on all of them.
    local_address: tuple[str, int]
    # Where it came in.
    listener: Listener
    client_id: str | None = None
    software_name: str = ""
    software_version: str = ""
    # It has sent a Produce: backpressure on ingest concerns it.
    produces: bool = False
    # Who it is; settled before its first request on a listener that authenticates.
    principal: Principal = ANONYMOUS
    # Whether it has proven to be `principal`: never so on a PLAINTEXT listener.
    authenticated: bool = False
    # Its login; None: the listener asks for none.
    sasl: SaslSession | None = None
    # Until when its connection is not read, on trio's clock (quotas.py); 0: it is.
    muted_until: float = 0.0
    # Charges it for what the loop has done for its request so far, while the loop is at it; None:
    # there is no quota.
    charge: Callable[[], None] | None = None
    # What it has sent behind the request that is being handled, for who may do for several at
    # once what that one waits for; set where a handler returns something to await.
    waiting: Callable[[], Iterable[memoryview]] = tuple
    # The partitions that its fetches are about, where it has them kept.
    fetch_session: FetchSession | None = None
    # What ends with its connection; None: nothing, as for most.
    ends_with_it: dict[Closable, None] | None = None
    # Its buckets, as quotas.py looked them up last.
    meter: object = None
    # No other connection has this one.
    number: int = field(init=False, default_factory=itertools.count(1).__next__)
    # outbox.flush, made once: what a slot gives to the turn.
    flush: Callable[[], None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.origin = origin(self.address[0])
        self.flush = self.outbox.flush

    @property
    def is_admitted(self) -> bool:
        """Whether its requests are handled: nothing is asked, or it has logged in."""
        return self.sasl is None or self.authenticated

    @property
    def asker(self) -> dict[str, str]:
        """Who it is, for a line about what is changed because it asked for it."""
        return {"asked_by": told(str(self.principal)), "asked_from": self.address[0]}

    def mute(self, seconds: float) -> None:
        """Have it wait so long from now, unless it waits for longer already."""
        self.muted_until = max(self.muted_until, trio.current_time() + seconds)

    def throttle_ms(self) -> int:
        """What a reply says about how long its connection is not read, rounded up."""
        if not self.muted_until:
            return 0
        return max(0, math.ceil((self.muted_until - trio.current_time()) * 1000))

    def keep(self, session: Closable) -> None:
        """Have this closed with the connection."""
        if self.ends_with_it is None:
            self.ends_with_it = {}
        self.ends_with_it[session] = None

    def drop(self, session: Closable) -> None:
        """It is over."""
        if self.ends_with_it is not None:
            self.ends_with_it.pop(session, None)

    def gone(self) -> None:
        """The connection is closed."""
        self.end_fetch_session()
        for session in tuple(self.ends_with_it or ()):
            session.close()

    def end_fetch_session(self) -> None:
        session, self.fetch_session = self.fetch_session, None
        if session is not None:
            session.close()

    @property
    def is_ours(self) -> bool:
        """Whether it named itself segbroker in ApiVersions."""
        return self.software_name.startswith(OUR_SOFTWARE)
