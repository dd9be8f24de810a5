"""Changes of groups and transactions that could not be stored: lines, so many a minute.

A failing disk refuses them to thousands of groups, whose members ask again at once: the lines are
limited, or they would fill a disk by saying that one fails.
"""

from .limited_lines import LimitedLines
from .recording import Done, ignored


class FailedChanges(LimitedLines):
    """Those of one broker.  It belongs to the loop."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("change_lines_omitted", "warning")

    def told(
        self, event: str, name: str, then: Done = ignored, /, **facts: str | int | None
    ) -> Done:
        """For an event of what is called `name`: its failure is a line `event` with `facts`; then
        `then` is told."""

        def done(error: OSError | None) -> None:
            if error is not None:
                self.tell(event, name, **facts, error=str(error))
            then(error)

        return done
