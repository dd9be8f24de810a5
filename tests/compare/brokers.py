"""An Apache Kafka and a segbroker for one run."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.peers.apache_kafka import ApacheKafka
from bench.peers.programs import Missing

from ..support.daemon import start
from .cases import Ground
from .crowd import FREE, USERS
from .logins import ADMIN, PASSWORD

__all__ = ["Missing", "Pair", "both"]

# Share groups are finished since 4.2.
VERSION: Final = "4.3.1"

_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_PASSWORDS: Final = " ".join(
    f'user_{name}="{PASSWORD}"' for name in (ADMIN, *FREE, *(user.name for user in USERS))
)
_KAFKA_GUARDED: Final = f"""
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.plaintext.plain.sasl.jaas.config={_PLAIN} \\
  required username="{ADMIN}" password="{PASSWORD}" \\
  {_PASSWORDS};
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{ADMIN};User:ANONYMOUS
"""
_OURS_GUARDED: Final = f"""
listeners = "SASL_PLAINTEXT://127.0.0.1:0"
initial_user = "{ADMIN}"
initial_password = "{PASSWORD}"
authorizer = "acl"
super_users = "User:{ADMIN}"
"""


# Kafka looks for groups that nobody needs any more every ten minutes: one that has just lost its
# last member would be gone in one of many runs.  The daemons of tests look once a day, too.
_KAFKA_SELDOM: Final = "offsets.retention.check.interval.ms=86400000\n"
# Kafka looks for what is too old every second.
_KAFKA_BRIEF: Final = """
producer.id.expiration.ms=30000
producer.id.expiration.check.interval.ms=1000
transactional.id.expiration.ms=30000
transaction.remove.expired.transaction.cleanup.interval.ms=1000
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
offsets.retention.minutes=1
offsets.retention.check.interval.ms=1000
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=1000
log.cleaner.backoff.ms=1000
"""
_OURS_BRIEF: Final = """
producer_id_expiration_ms = 30000
transactional_id_expiration_ms = 30000
offsets_retention_minutes = 1
group_kept_empty_ms = 1000
group_max_session_timeout_ms = 30000
cleaner_backoff_ms = 1000
"""
_KAFKA_STORIES: Final = """
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
group.consumer.assignment.interval.ms=0
group.share.assignment.interval.ms=0
group.streams.assignment.interval.ms=0
group.streams.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
"""
_OURS_STORIES: Final = """
authorizer = "acl"
super_users = "User:ANONYMOUS"
group_initial_rebalance_delay_ms = 0
group_streams_initial_rebalance_delay_ms = 0
"""
_KAFKA: Final = {
    Ground.GUARDED: _KAFKA_GUARDED,
    Ground.BRIEF: _KAFKA_BRIEF,
    Ground.STORIES: _KAFKA_STORIES,
}
# The daemons of tests are told otherwise by a variable, which wins over the file.
_FLAGS_BRIEF: Final = ("--retention-interval-ms", "1000")
_OURS: Final = {
    Ground.GUARDED: _OURS_GUARDED,
    Ground.BRIEF: _OURS_BRIEF,
    Ground.STORIES: _OURS_STORIES,
}


class Pair:
    """An Apache Kafka and a segbroker that run.

    Attributes:
        theirs: address of the first.
        ours: of the second.
    """

    def __init__(self, folder: Path, ground: Ground, given: str | None) -> None:
        """Start both; their data are in `folder`.  given: `host:port` of a Kafka that runs.

        Raises:
            Missing: no Kafka can be had here.
        """
        flags: tuple[str, ...] = ()
        if ground in _OURS:
            config = folder / "segbroker.toml"
            config.write_text(_OURS[ground])
            flags = ("--config", str(config))
        if ground is Ground.BRIEF:
            flags += _FLAGS_BRIEF
        self._place = folder / "kafka"
        self._place.mkdir()
        self._kafka = ExitStack()
        if given is None:
            more = _KAFKA_SELDOM + _KAFKA.get(ground, "")  # of two lines the later one holds
            started = ApacheKafka.start(self._place, durable=False, version=VERSION, more=more)
            self.theirs = self._kafka.enter_context(started).host_and_port
        else:
            host, _, port = given.rpartition(":")
            self.theirs = host, int(port)
        try:
            self._daemon = start(folder / "segbroker", *flags)
        except BaseException:
            self._kafka.close()
            raise
        self.ours = self._daemon.host_and_port

    def restart(self) -> None:
        """End both, in order, and start them again where they were."""
        self._daemon.stop()  # first, so that no session of a member is over meanwhile
        self._kafka.close()
        again = ApacheKafka.again(self._place, self.theirs[1], VERSION)
        self._kafka.enter_context(again)
        self._daemon.again()

    def close(self) -> None:
        """End both."""
        self._kafka.close()
        self._daemon.stop()


@contextmanager
def both(folder: Path, ground: Ground = Ground.OPEN, given: str | None = None) -> Iterator[Pair]:
    """Both, for the length of a `with` block.

    Args:
        folder: gets the data of both.
        ground: how they are set up.
        given: `host:port` of a Kafka that runs already; otherwise one is started.

    Raises:
        Missing: no Kafka can be had here.
    """
    pair = Pair(folder, ground, given)
    try:
        yield pair
    finally:
        pair.close()
