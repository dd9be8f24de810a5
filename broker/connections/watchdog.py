"""The watchdog: closes connections that are silent, stuck or never begin.

| closed as            | when                                                              |
|----------------------|-------------------------------------------------------------------|
| handshake_timed_out  | no whole request, or no login where one is asked for, within       |
|                      | handshake_timeout_ms in which the broker waited for it             |
| send_timed_out       | replies wait and the peer took none of them for send_timeout_ms    |
| request_timed_out    | half a large request has come, and nothing more for half of       |
|                      | request_wait_ms in which it was read, while others wait for the    |
|                      | room that it takes                                                 |
| idle_timed_out       | nothing came, went, is handled or waits for an answer for          |
|                      | idle_timeout_ms, unless that is -1                                 |

One task looks at all connections once per tick, instead of one timer per connection.  A look is two
comparisons, and these limits need to be exact only to a quarter.
"""

from collections.abc import Collection
from typing import Final

import trio

from ..configuration.config import BrokerConfig
from ..core import Core
from ..loop.pace import Pace
from .connection import Connection

_TICK_MAX_S: Final = 1.0


def tick_seconds(config: BrokerConfig) -> float:
    """The pause between two looks: a quarter of the shortest limit, a second at most."""
    limits = (
        config.handshake_timeout_ms,
        config.idle_timeout_ms,
        config.send_timeout_ms,
        config.request_wait_ms / 2,
    )
    return min(_TICK_MAX_S, min(ms for ms in limits if ms > 0) / 4000)


async def watch(core: Core, connections: Collection[Connection]) -> None:
    """Look at the connections for ever."""
    while True:
        await trio.sleep(tick_seconds(core.config))
        now = trio.current_time()
        pace = Pace()
        for connection in list(connections):
            if connection in connections:  # it has not ended while others had their turn
                look(core.config, connection, now)
            await pace.step()


def look(config: BrokerConfig, connection: Connection, now: float) -> None:
    """Close `connection` if it is over a limit at `now` (trio's clock)."""
    outbox = connection.outbox
    seen = (connection.reads, outbox.progress)
    is_awaited = connection.is_waiting or outbox.unsent
    if seen != connection.seen or not is_awaited or connection.peer.muted_until > now:
        connection.seen = seen  # who is not read, as who is muted, could send nothing
        connection.seen_at = now
    still_ms = (now - connection.seen_at) * 1000
    if connection.is_in_the_way and still_ms >= config.request_wait_ms / 2:
        connection.close_because("request_timed_out", limit_ms=config.request_wait_ms // 2)
    elif not connection.is_settled:
        if connection.kept_s(now) * 1000 >= config.handshake_timeout_ms:
            connection.close_because("handshake_timed_out", limit_ms=config.handshake_timeout_ms)
    elif outbox.unsent:
        if still_ms >= config.send_timeout_ms:
            connection.close_because("send_timed_out", limit_ms=config.send_timeout_ms)
    elif 0 < config.idle_timeout_ms <= still_ms and connection.is_waiting and not len(outbox):
        connection.close_because("idle_timed_out", limit_ms=config.idle_timeout_ms)
