"""Lines for the person who looks, on standard error; never data.

Nobody may look any more: the reader of a pipe has gone (`2>&1 | head -1`), the terminal was closed.
Then the lines go nowhere, and the command goes on: its exit code says the same to a script.
"""

import os
import sys

import click


def say(text: str) -> None:
    """A line on standard error, or nowhere."""
    try:
        click.echo(text, err=True)
    except OSError:
        abandon_stderr()


def abandon_stderr() -> None:
    """Let what is still buffered go nowhere: the interpreter flushes it on exit, and would end
    with an exit code of its own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)
