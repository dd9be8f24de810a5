"""Questions before something is deleted: on a terminal, unless --yes has answered them."""

import sys

import click

from .command import note
from .exit_codes import ExitCode

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def require_terminal(instead: str) -> None:
    """Raises UsageError where nobody can be asked; `instead` is the flag that says it."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"there is no terminal to ask on; give {instead}")


def ask(verb: str, what: str) -> None:
    """Ask whether to do it.  A no ends the command with exit code INTERRUPTED.

    Raises UsageError where nobody can be asked.
    """
    require_terminal("--yes")
    if not click.confirm(f"{verb} {what}?", err=True):
        note(f"nothing was {verb}d")
        click.get_current_context().exit(ExitCode.INTERRUPTED)
