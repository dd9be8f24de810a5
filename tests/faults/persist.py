"""Ask a broker that is being killed until it answers."""

import time
from collections.abc import Callable

from segbroker.client import SegbrokerError

PAUSE_S = 0.05


def persist(
    what: Callable[[], object], *, done_by: type[SegbrokerError] | None = None, timeout_s: float
) -> None:
    """Ask until it is done; `done_by` is the answer that an earlier attempt has done it."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            what()
            return
        except SegbrokerError as exc:
            if done_by is not None and isinstance(exc, done_by):
                return
            if not exc.retryable or time.monotonic() > deadline_s:
                raise
        time.sleep(PAUSE_S)
