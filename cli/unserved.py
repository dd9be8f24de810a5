"""Partitions that the broker does not serve, for commands that list others beside them.

The rows of the others are printed, "?" stands for what nobody knows, and the command ends with the
sentence of the broker about the first one (exit code 6): a script must not take the rest for all.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .exit_codes import ExitCode
from .failures import NOT_SERVED_HINT, Failure

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


def failure_of(admin: "Admin", unserved: Sequence[tuple[str, int]]) -> Failure | None:
    """What is said of them at the end; None: there are none."""
    if not unserved:
        return None
    (topic, partition), more = unserved[0], len(unserved) - 1
    text = f"partition {partition} of topic {topic!r} is not served"
    if why := _why(admin, topic, partition):
        text = f"{text}: {why}"
    return Failure(text + (f"; and {more} more" if more else ""), ExitCode.REFUSED, NOT_SERVED_HINT)


def _why(admin: "Admin", topic: str, partition: int) -> str:
    """The broker's sentence; empty of another make, or where it may not be asked."""
    from segbroker.client.errors import SegbrokerError

    with suppress(SegbrokerError):
        for row in admin.broker_status()["not_opened"]:
            if (row["topic"], row["partition"]) == (topic, partition):
                return str(row["why"])
    return ""
