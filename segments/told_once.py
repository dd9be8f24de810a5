"""A failure of what is tried again and again, told once for each errno, and when it is over."""


class ToldOnce:
    """What was told of one thing that is tried.  One thread at a time."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: tuple[int | None, ...] = ()

    def is_new(self, exc: OSError) -> bool:
        """It has failed: whether that is to be told."""
        before, self._told = self._told, (exc.errno,)
        return before != self._told

    def is_over(self) -> bool:
        """It has not failed: whether that is to be told."""
        before, self._told = self._told, ()
        return before != ()
