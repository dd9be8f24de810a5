"""A change of several topics at once: one set of syncs for all, and of each what comes of it.

attempt, topic by topic      StorageError, OSError: its outcome; the others go on
recorded: syncs and events   OSError: the outcome of all that are left
`taken`                      those whose change is durable and in force now
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeAlias, TypeVar

from ..errors import StorageError
from ..metadata.metadata import TopicMeta

K = TypeVar("K", int, str)

Outcome: TypeAlias = TopicMeta | StorageError
"""What was made, or deleted; or why it was not."""


class SeveralTopics(Generic[K]):
    """By what names each of those that are wanted: its name, or its place."""

    def __init__(self, undone: str) -> None:
        """undone: what is said of a topic with which the disk failed, as "was not created"."""
        self._undone = undone
        self._outcomes: dict[K, Outcome] = {}
        self.taken: dict[K, TopicMeta] = {}
        """Those with which nothing has failed, as they will be, or were."""

    @property
    def outcomes(self) -> list[Outcome]:
        """In the order of the attempts."""
        return list(self._outcomes.values())

    def attempt(self, key: K, name: str, change: Callable[[], TopicMeta]) -> None:
        """What can fail for this topic alone."""
        try:
            self._outcomes[key] = self.taken[key] = change()
        except StorageError as exc:
            self._outcomes[key] = exc
        except OSError as exc:
            self._outcomes[key] = self._failure(name, exc)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Around what makes the change durable, for all or for none."""
        try:
            yield
        except OSError as exc:
            self._outcomes |= {
                key: self._failure(meta.name, exc) for key, meta in self.taken.items()
            }
            self.taken = {}

    def fail(self, key: K, failure: StorageError) -> None:
        """It is durable, but not wholly in force."""
        self._outcomes[key] = failure

    def _failure(self, name: str, exc: OSError) -> StorageError:
        return StorageError(f"topic {name!r} {self._undone}: {exc}")
