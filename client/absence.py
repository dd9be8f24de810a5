"""What is said of a broker that cannot be reached: once that it is away, once that it is back.

    reached --a try fails--> missed, since that try began --a try fails AWAY_MS later--> away: told
       ^                        |                                                          |
       +--a connection stands---+-----------a connection stands: told that it is back------+

Only tries count: a connection that was lost while nothing wanted it is no absence, and a broker
that is back within AWAY_MS was a blip.  Of brokers that Metadata has named; of reaching the first
one, entering the block says what there is to say.

Told is a line on the logger `segbroker.client`.  The shell takes the lines and writes them with no
lock held: what a program does with its log may well be to send it to Kafka by this very client.

Limits: an entry for each broker of the cluster; two lines for each absence, which is AWAY_MS long
at least.
"""

import logging
import traceback
from dataclasses import dataclass
from typing import NamedTuple

log = logging.getLogger("segbroker.client")

# A restart of a broker that is quick, or a switch that lost its way: not worth a word.
AWAY_MS = 3_000


class Notice(NamedTuple):
    """One line of the log."""

    level: int
    text: str

    def write(self) -> None:
        """What the program's handlers and filters raise is shown, as those of the standard library
        show it, and is not the client's end."""
        try:
            log.log(self.level, "%s", self.text)
        except Exception:
            if logging.raiseExceptions:
                traceback.print_exc()


@dataclass(slots=True)
class _Missed:
    since_ms: int
    is_told: bool = False


class Absences:
    """See the module.  Times are those of the core."""

    def __init__(self) -> None:
        self._missed: dict[int, _Missed] = {}
        self._notices: list[Notice] = []

    def failed(self, broker_id: int, reason: object, began_ms: int, now_ms: int) -> None:
        """A try to connect, which began then, came to nothing."""
        if broker_id < 0:
            return
        missed = self._missed.setdefault(broker_id, _Missed(began_ms))
        if missed.is_told or now_ms - missed.since_ms < AWAY_MS:
            return
        missed.is_told = True
        text = f"broker {broker_id} cannot be reached, still trying: {reason}"
        self._notices.append(Notice(logging.WARNING, text))

    def reached(self, broker_id: int, where: str, now_ms: int) -> None:
        """A connection to it stands."""
        missed = self._missed.pop(broker_id, None)
        if missed is None or not missed.is_told:
            return
        away_s = (now_ms - missed.since_ms) / 1000
        text = f"broker {broker_id} can be reached again after {away_s:,.0f} s: {where}"
        self._notices.append(Notice(logging.WARNING, text))

    def forget(self, broker_id: int) -> None:
        """It is no broker of the cluster any more."""
        self._missed.pop(broker_id, None)

    def say(self, notice: Notice) -> None:
        """A line of somebody else's, that the shell writes with these."""
        self._notices.append(notice)

    def take(self) -> list[Notice]:
        """What the shell has to write to the log."""
        notices, self._notices = self._notices, []
        return notices
