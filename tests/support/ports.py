"""A port for a daemon that dies and comes back under its address.

Between two lives of a daemon its port would be anybody's: a test beside this one whose daemon asks
for a free port could get it, and the clients of one test would write to the broker of the other.  A
socket that is bound and does not listen keeps the port: with SO_REUSEADDR, which every listener
sets, the daemon can still bind it, the system gives it to nobody else, and who connects while the
daemon is away is refused.

tests/support/daemon.py keeps the ports of its daemons, by their directories: those tests need not
think of it.  `keep_port` is for other programs, and for brokers inside the test process.
"""

import atexit
import socket
from collections.abc import Hashable
from functools import cache
from typing import Final

_KEPT: Final[list[socket.socket]] = []


@atexit.register
def _close() -> None:
    for keeper in _KEPT:
        keeper.close()


def keep_port() -> int:
    """A port of 127.0.0.1 that is this process' own until it ends; one descriptor each."""
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    _KEPT.append(keeper)
    port: int = keeper.getsockname()[1]
    return port


@cache
def port_of(owner: Hashable) -> int:
    """The port that is kept for this owner: the same one each time."""
    return keep_port()
