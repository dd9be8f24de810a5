"""What a member subscribes to: topics by name, or all whose whole name a pattern matches.

names      one that is not there, or not any more, is an error, said once, and again where it is
           chosen anew
pattern    looked for every metadata_max_age_ms; one that comes or goes is another subscription.
           Where more match than a client works with, that is an error, and what was chosen stays.
           That nobody says which there are, for api_timeout_ms, is an error: a member that knows
           of none does not join, and nothing else would tell
"""

import re
from collections.abc import Callable, Collection, Sequence

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import MetadataRequest, MetadataResponse

from .asking import look
from .completion import Completion
from .engine import Call, Engine
from .errors import SegbrokerError, as_told

# After a question that got no answer, and whose error the caller hears.
AGAIN_MS = 1_000


class GroupTopics:
    """See the module."""

    def __init__(
        self,
        engine: Engine,
        *,
        changed: Callable[[], object],
        missing: Callable[[SegbrokerError, str], object],
        known: Callable[[], object] = lambda: None,
    ) -> None:
        """`changed` when the subscription is another one, `missing` with what a topic lacks, or why
        nobody says which there are, and what that is about: the topic, or the pattern in words;
        `known` when it may be known by now what there is."""
        self.names: list[str] = []
        self._engine = engine
        self._changed = changed
        self._missing = missing
        self._known = known
        self._pattern: re.Pattern[str] | None = None
        self._has_looked = False
        self._is_looking = False
        self._due_ms = 0
        self._now_ms = 0
        self._said: set[str] = set()
        engine.cluster.on_update.append(self._cluster_updated)

    @property
    def is_undecided(self) -> bool:
        """A pattern that matches nothing yet: who knows of no topic does not join."""
        return self._pattern is not None and not self.names

    @property
    def is_known(self) -> bool:
        """Whether it is known what there is of it: what matches, and of each name whether it is
        there; what is not was said."""
        if self._pattern is not None:
            return self._has_looked
        views = map(self._engine.cluster.topics.get, self.names)
        return all(view and view.is_settled and not view.is_doubted for view in views)

    @property
    def is_wanted(self) -> bool:
        """Whether anything is subscribed to."""
        return self._pattern is not None or bool(self.names)

    def choose(self, names: Sequence[str]) -> None:
        self._engine.cluster.want(names)  # first: who is refused reads on what he had
        self._pattern = None
        self._said.intersection_update(names)
        self._set(names)

    def match(self, pattern: re.Pattern[str]) -> None:
        self._said.clear()
        self._pattern = pattern
        self._has_looked = False
        self._due_ms = 0

    def step(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self._pattern is None or self._is_looking or now_ms < self._due_ms:
            return
        self._is_looking = True
        call = self._engine.call(_all_topics(self._engine), now_ms)
        call.on_done(lambda: self._found(call))

    def next_wake_ms(self) -> int | None:
        return self._due_ms if self._pattern is not None and not self._is_looking else None

    def _found(self, call: Completion[list[str]]) -> None:
        self._is_looking = False
        if call.error is not None:
            self._due_ms = self._now_ms + AGAIN_MS
            if self._pattern is not None:
                self._missing(as_told(call.error), _about(self._pattern))
            return
        self._due_ms = self._now_ms + self._engine.settings.metadata_max_age_ms
        if self._pattern is None:
            return
        self._has_looked = True
        names = sorted(name for name in call.result() if self._pattern.fullmatch(name))
        if names != self.names:
            try:
                self._engine.cluster.want(names)
            except ValueError as exc:  # there are too many
                about = _about(self._pattern)
                self._missing(SegbrokerError(f"{about}: {exc}"), about)
            else:
                self._set(names)
        self._known()

    def _set(self, names: Sequence[str]) -> None:
        """They are in view."""
        self.names = list(names)
        self._changed()

    def _cluster_updated(self, asked: Collection[str]) -> None:
        if self._pattern is not None:
            return
        for name in self.names:
            view = self._engine.cluster.topics.get(name)
            if view is None or not view.is_settled:
                continue
            if view.dealt_count:
                self._said.discard(name)
            elif name not in self._said and view.error is not None:
                self._said.add(name)
                self._missing(view.error, name)
        self._known()


def _about(pattern: re.Pattern[str]) -> str:
    """In words, which no topic has for a name."""
    return f"pattern {pattern.pattern!r}"


def _all_topics(engine: Engine) -> Call[list[str]]:
    """The names of the topics that are not the broker's own."""
    reply = yield from look(engine, MetadataRequest(topics=None), MetadataResponse)
    return [
        topic.name
        for topic in reply.topics
        if topic.name and not topic.is_internal and topic.error_code == ErrorCode.NONE
    ]
