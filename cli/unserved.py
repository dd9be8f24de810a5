"""Partitions that the broker does not serve, for commands that list others beside them.

The rows of the others are printed, "?" stands for what nobody knows, and the command ends with the
sentence of the broker about the first one (exit code 6): a script must not take the rest for all.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from .command import ACCEPT_TIMEOUT_MS
from .exit_codes import ExitCode
from .failures import NOT_SERVED_HINT, Failure
from .properties import security

if TYPE_CHECKING:
    from segbroker.client import Admin


def unserved_in(facts: Iterable[dict[str, Any]]) -> list[tuple[str, int]]:
    """Topic and partition of the rows whose end nobody knows: of topics, or of groups."""
    return sorted(
        {
            (row.get("topic", fact.get("name")), row["partition"])
            for fact in facts
            for row in fact["partitions"]
            if row["end"] is None
        }
    )


def unserved_sentence(topic: str, partition: int, why: str | None) -> str:
    """That a partition is not served, and why as the broker has it, which may say all of that."""
    text = f"partition {partition} of topic {topic!r} is not served"
    if why and why.startswith(text):
        return why
    return f"{text}: {why}" if why else text


def failure_of(admin: "Admin", unserved: Sequence[tuple[str, int]]) -> Failure | None:
    """What is said of them at the end; None: there are none."""
    if not unserved:
        return None
    (topic, partition), more = unserved[0], len(unserved) - 1
    text = unserved_sentence(topic, partition, _why(admin, topic, partition))
    return Failure(text + (f"; and {more} more" if more else ""), ExitCode.REFUSED, NOT_SERVED_HINT)


def why_unserved(bootstrap: str, topic: str) -> str:
    """What is said of the partitions of a topic that have no leader, where nobody has an Admin;
    empty: nothing is known.  Takes as long as an Admin waits for a broker that does not answer."""
    from segbroker.client import Admin
    from segbroker.client.errors import SegbrokerError

    limit_ms = ACCEPT_TIMEOUT_MS
    with (
        suppress(SegbrokerError),
        Admin(
            bootstrap,
            security=security(),
            accept_timeout_ms=limit_ms,
            connect_timeout_ms=limit_ms,
            api_timeout_ms=limit_ms,
        ) as admin,
    ):
        rows = admin.partitions(topic)
        failure = failure_of(admin, [(topic, row.partition) for row in rows if row.leader < 0])
        return "" if failure is None else str(failure)
    return ""


@contextmanager
def told_why(bootstrap: str, topics: Iterable[str]) -> Iterator[None]:
    """An error about a partition that nobody serves gets the broker's reason."""
    from segbroker.client.errors import LeaderNotAvailable

    try:
        yield
    except LeaderNotAvailable as exc:
        whys = [why for topic in topics if (why := why_unserved(bootstrap, topic))]
        text = "; ".join([str(exc), *whys[:1]])
        raise Failure(text, ExitCode.REFUSED, NOT_SERVED_HINT) from exc


def _why(admin: "Admin", topic: str, partition: int) -> str:
    """The broker's sentence; empty of another make, or where it may not be asked."""
    from segbroker.client.errors import SegbrokerError

    with suppress(SegbrokerError):
        status = admin.broker_status()
        # Damage that was found while it was open is told among what takes no writes.
        for row in (*status["not_opened"], *status["read_only"]):
            if (row["topic"], row["partition"]) == (topic, partition):
                return str(row["why"])
    return ""
