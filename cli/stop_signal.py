"""SIGINT and SIGTERM for `produce`: stop reading, deliver what was read, then end.

An exception raised by the signal could fall between a read and the send, and lose lines that
have left the writer's pipe.  So the first signal only makes `descriptor` readable, for a `select`
beside standard input; a second one raises, and what is not delivered by then is given up.

The interpreter writes to the pipe in the signal itself (`set_wakeup_fd`), whatever thread has it:
our handler runs later, between two steps of the main thread, and one that came right before that
begins to wait would be heard of with the next input, or never.
"""

import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Self

import click

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class GivenUp(KeyboardInterrupt):
    """By a signal that waits for nothing.  Unlike SystemExit it leaves a client's block at once."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


class StopSignal:
    """See the module. `received` is the number of the first signal, or None."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.descriptor, self._end = -1, -1
        self._before: dict[signal.Signals, object] = {}
        self._woke_before = -1

    def __enter__(self) -> Self:
        self.descriptor, self._end = os.pipe()
        os.set_blocking(self._end, False)  # as a signal needs it; a full pipe is readable
        self._woke_before = signal.set_wakeup_fd(self._end, warn_on_full_buffer=False)
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() gave
        signal.set_wakeup_fd(self._woke_before)
        os.close(self.descriptor)
        os.close(self._end)

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that ended by the signal; 0 without one."""
        return 0 if self.received is None else 128 + self.received

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise GivenUp(number)
        self.received = number
        if sys.stderr.isatty():
            click.echo("delivering what was read; Ctrl-C again gives up", err=True)
