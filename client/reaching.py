"""Reaching the first broker: what entering a `with` block waits for.

    nobody accepts a connection      accept_timeout_ms: a broker that is not there
    somebody did, and says nothing   connect_timeout_ms: one that is busy, or starts, or hangs

Each from the beginning; without the first there is only the second.  A kernel accepts for a
broker that has not come to it yet, so an accepted connection says that somebody is there, and no
more: whoever waits little for nobody waits longer for somebody.
"""

from .backoff import Backoff
from .engine import Call, Engine, Pause, Refresh
from .errors import BrokerUnreachable, TokenUnavailable


class Reaching:
    """One try to reach a broker, within the two times of its settings."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        settings = engine.settings
        self.timeout_ms = settings.connect_timeout_ms
        self._rest_ms = 0
        if settings.accept_timeout_ms is not None:
            self.timeout_ms = min(settings.accept_timeout_ms, settings.connect_timeout_ms)
            self._rest_ms = settings.connect_timeout_ms - self.timeout_ms

    def connect(self) -> Call[None]:
        """Reach one broker and learn the cluster.

        Raises AuthenticationFailed, TlsFailed, NoBroker when every address refuses.
        """
        engine = self._engine
        backoff = Backoff(engine.random, 20, 500)
        while not engine.cluster.replies_count:
            yield Refresh()
            if not engine.cluster.replies_count:
                if (refusal := engine.network.refusal()) is not None:
                    raise refusal
                yield Pause(backoff.next_delay_ms())

    def give_up(self) -> BrokerUnreachable | TokenUnavailable | int:
        """The time is over: the error, or the milliseconds that are left for who accepted."""
        rest_ms, self._rest_ms = self._rest_ms, 0
        if rest_ms and self._engine.network.is_accepted:
            return rest_ms
        return self._engine.network.unreachable()
