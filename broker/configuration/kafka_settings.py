"""Kafka's broker settings that change nothing here, and are taken all the same.

Scripts and tools that tune a Kafka cluster while it runs set them by habit.  Each is about
something that there is not: threads that Kafka has, a second replica, Kerberos, a pause between two
assignments of a group.  What was set is checked, kept, and shown by DescribeConfigs; it has no
other effect.

Not here, and refused: settings by which somebody would rely on what does not exist.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from ..address import InvalidConfig
from .config_key import whole_number

Check = Callable[[str, str], None]

INT, LONG, DOUBLE = 3, 5, 6


class KafkaSetting(NamedTuple):
    """One of them. `kind` is the number of its type on the wire."""

    kind: int
    default: str
    check: Check


def _whole(low: int, high: int) -> Check:
    def check(name: str, text: str) -> None:
        whole_number(name, text, low, high)

    return check


def _share(name: str, text: str) -> None:
    try:
        value = float(text)
    except ValueError:
        raise InvalidConfig(f"{name} = {text!r} is not a number") from None
    if not 0 <= value <= 1:
        raise InvalidConfig(f"{name} = {value} is outside [0, 1]")


_THREADS: Final = _whole(1, 2**31 - 1)
_BYTES: Final = _whole(0, 2**63 - 1)
# Between two assignments of a group; the bounds are Kafka's, group.*.max.assignment.interval.ms.
_PAUSE: Final = KafkaSetting(INT, "1000", _whole(0, 15_000))

KAFKA_SETTINGS: Final[dict[str, KafkaSetting]] = {
    "background.threads": KafkaSetting(INT, "10", _THREADS),
    "follower.replication.throttled.rate": KafkaSetting(LONG, str(2**63 - 1), _BYTES),
    "group.consumer.assignment.interval.ms": _PAUSE,
    "group.share.assignment.interval.ms": _PAUSE,
    "group.streams.assignment.interval.ms": _PAUSE,
    "leader.replication.throttled.rate": KafkaSetting(LONG, str(2**63 - 1), _BYTES),
    "log.cleaner.dedupe.buffer.load.factor": KafkaSetting(DOUBLE, "0.9", _share),
    "log.cleaner.io.buffer.size": KafkaSetting(INT, "524288", _whole(0, 2**31 - 1)),
    "log.cleaner.threads": KafkaSetting(INT, "1", _THREADS),
    "num.io.threads": KafkaSetting(INT, "8", _THREADS),
    "num.network.threads": KafkaSetting(INT, "3", _THREADS),
    "num.recovery.threads.per.data.dir": KafkaSetting(INT, "2", _THREADS),
    "num.replica.fetchers": KafkaSetting(INT, "1", _THREADS),
    "replica.alter.log.dirs.io.max.bytes.per.second": KafkaSetting(LONG, str(2**63 - 1), _BYTES),
    "sasl.kerberos.min.time.before.relogin": KafkaSetting(LONG, "60000", _BYTES),
    "sasl.kerberos.ticket.renew.jitter": KafkaSetting(DOUBLE, "0.05", _share),
    "sasl.kerberos.ticket.renew.window.factor": KafkaSetting(DOUBLE, "0.8", _share),
}
DOCUMENTATION: Final = "Kafka's; kept and shown, without effect here."
