"""`segbroker user add | list | remove | passwd`: who may log in.

Without --data-dir a running broker is asked.  With it the data directory is changed while no broker
runs on it: how the first user comes to be, and the way out when no password is known any more.

A password comes from the terminal (asked twice), from standard input, a variable or a file; there
is no flag for it, as everybody on the machine can read command lines.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from segbroker.protocol.scram import ITERATIONS_DEFAULT, ITERATIONS_MAX, ITERATIONS_MIN

from .asking import ask, require_terminal, yes_option
from .command import AnyCallable, Group, bootstrap_option, is_text, note
from .directory_owner import for_owner
from .exit_codes import ExitCode
from .failures import Failure
from .properties import SECRET_BYTES_MAX, read_secret
from .standard_error import log_to_stderr
from .topic import echo_table, json_option, open_admin

if TYPE_CHECKING:
    from segbroker.segments.directory.manager import DiskManager


@click.group(cls=Group)
def user() -> None:
    """Create, list and remove users, and set their passwords.

    \b
    Example:
      segbroker user add alice --data-dir /var/lib/segbroker
    """


data_dir_option = click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(file_okay=False, readable=False, path_type=Path),
    is_eager=True,  # where there is one no broker has to be found
    help="Use this data directory, on which no broker runs, instead of asking a broker.",
)
iterations_option = click.option(
    "--iterations",
    metavar="N",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS_DEFAULT,
    show_default=True,
    help="Hash iterations. More make it slower to guess the password from stolen data,"
    " and to log in.",
)


def password_options(function: AnyCallable) -> AnyCallable:
    """Where the password comes from, if not from the terminal."""
    function = click.option(
        "--password-file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Read the password from a file.",
    )(function)
    function = click.option(
        "--password-env", metavar="VARIABLE", help="Take the password from a variable."
    )(function)
    return click.option(
        "--password-stdin", is_flag=True, help="Read the password from standard input, one line."
    )(function)


def _password(name: str, from_stdin: bool, variable: str | None, file: Path | None) -> str:
    if from_stdin + (variable is not None) + (file is not None) > 1:
        raise click.UsageError("one of --password-stdin, --password-env, --password-file")
    if variable is not None:
        found = os.environ.get(variable)
        if found is None:
            raise Failure(f"the environment variable {variable} is not set", ExitCode.USAGE)
    elif file is not None:
        found = read_secret(file, "--password-file")
    elif from_stdin:
        found = os.fsdecode(sys.stdin.buffer.readline(SECRET_BYTES_MAX)).rstrip("\r\n")
    else:
        require_terminal("--password-stdin")
        found = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True)
    if not found:
        raise Failure("the password is empty", ExitCode.USAGE)
    assert isinstance(found, str)
    if not is_text(found):
        raise Failure("the password is not text in UTF-8", ExitCode.USAGE)
    return found


@user.command()
@click.argument("name")
@password_options
@iterations_option
@data_dir_option
@bootstrap_option
def add(
    name: str,
    password_stdin: bool,
    password_env: str | None,
    password_file: Path | None,
    iterations: int,
    data_dir: Path | None,
    bootstrap: str,
) -> None:
    """Create the user NAME, who can then log in with PLAIN and SCRAM.

    \b
    Examples:
      segbroker user add alice --data-dir /var/lib/segbroker
      pass show alice | segbroker user add alice --password-stdin
    """
    password = _password(name, password_stdin, password_env, password_file)
    is_made = data_dir is not None and not _is_data_directory(data_dir)
    _set(name, password, iterations, data_dir, bootstrap, is_new=True)
    # Of a path that was mistyped nothing else would tell.
    note(f"created user {name}" + (f" in a new data directory, {data_dir}" if is_made else ""))


@user.command()
@click.argument("name")
@password_options
@iterations_option
@data_dir_option
@bootstrap_option
def passwd(
    name: str,
    password_stdin: bool,
    password_env: str | None,
    password_file: Path | None,
    iterations: int,
    data_dir: Path | None,
    bootstrap: str,
) -> None:
    """Set another password for the user NAME. Connections that are logged in stay logged in.

    \b
    Example:
      segbroker user passwd alice
    """
    password = _password(name, password_stdin, password_env, password_file)
    _set(name, password, iterations, data_dir, bootstrap, is_new=False)
    note(f"changed the password of {name}")


@user.command("list")
@json_option
@data_dir_option
@bootstrap_option
def list_(as_json: bool, data_dir: Path | None, bootstrap: str) -> None:
    """List the users.

    \b
    Example:
      segbroker user list
    """
    if data_dir is not None:
        with _offline(data_dir) as manager:
            found = _stored(manager)
    else:
        with open_admin(bootstrap) as admin:
            found = {one.name: dict(one.iterations) for one in admin.list_users()}
    if as_json:
        click.echo(json.dumps([{"name": name, "iterations": row} for name, row in found.items()]))
    elif found:
        rows = [
            (name, ", ".join(sorted(row)), ", ".join(f"{n:,}" for n in sorted(set(row.values()))))
            for name, row in found.items()
        ]
        echo_table(("user", "mechanisms", "iterations"), rows, numbers={2})


@user.command()
@click.argument("name")
@yes_option
@data_dir_option
@bootstrap_option
def remove(name: str, yes: bool, data_dir: Path | None, bootstrap: str) -> None:
    """Remove the user NAME. Its connections last until they have to log in again.

    \b
    Example:
      segbroker user remove alice --yes
    """
    if not yes:
        ask("remove", f"user {name}")
    if data_dir is None:
        with open_admin(bootstrap) as admin:
            admin.delete_user(name)
    else:
        from segbroker.segments.metadata.credentials import USER_UNSET

        with _offline(data_dir) as manager:
            if name not in _stored(manager):
                raise _missing(name)
            manager.record_now(USER_UNSET, name=name, mechanisms=None)
    note(f"removed user {name}")


def _set(
    name: str,
    password: str,
    iterations: int,
    data_dir: Path | None,
    bootstrap: str,
    *,
    is_new: bool,
) -> None:
    if data_dir is None:
        with open_admin(bootstrap) as admin:
            _check(name, [one.name for one in admin.list_users()], is_new=is_new)
            try:
                admin.set_password(name, password, iterations=iterations)
            except ValueError as exc:
                raise Failure(str(exc), ExitCode.USAGE) from exc
        return
    from segbroker.broker.access.authentication import make_credentials
    from segbroker.protocol.sasl import check_password, check_user_name
    from segbroker.segments.metadata.credentials import USER_SET, rows_of

    try:
        check_user_name(name)
        check_password(password)
    except ValueError as exc:
        raise Failure(str(exc), ExitCode.USAGE) from exc
    with _offline(data_dir, made=is_new) as manager:
        _check(name, list(_stored(manager)), is_new=is_new)
        rows = rows_of(make_credentials(password, iterations))
        manager.record_now(USER_SET, name=name, rows=rows)


def _check(name: str, known: list[str], *, is_new: bool) -> None:
    if is_new and name in known:
        raise Failure(
            f"there is a user {name!r} already",
            ExitCode.REFUSED,
            f"segbroker user passwd {name} sets another password",
        )
    if not is_new and name not in known:
        raise _missing(name)


def _missing(name: str) -> Failure:
    return Failure(f"there is no user {name!r}", ExitCode.NOT_FOUND, "segbroker user list")


def _is_data_directory(path: Path) -> bool:
    """Raises OSError where it may not be looked at (`Path.exists` says no since Python 3.14)."""
    try:
        (path / "meta").stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@contextmanager
def _offline(data_dir: Path, *, made: bool = False) -> "Iterator[DiskManager]":
    """The data directory, opened as a broker would; made when missing, if `made` allows it.

    Raises StorageError, Failure.
    """
    from segbroker.segments.directory.manager import DiskManager

    if not made and not _is_data_directory(data_dir):
        hint = "segbroker user add makes one, with its first user"
        raise Failure(f"{data_dir} is not a data directory", ExitCode.USAGE, hint)
    with (
        log_to_stderr(),
        for_owner(data_dir),
        DiskManager(str(data_dir), flushers=1) as manager,
    ):
        yield manager


def _stored(manager: "DiskManager") -> dict[str, dict[str, int]]:
    from segbroker.segments.metadata.credentials import SECTION, credentials_of, names_of

    content = manager.section(SECTION) or {}
    return {
        name: {
            mechanism.label: one.iterations
            for mechanism, one in credentials_of(content, name).items()
        }
        for name in names_of(content)
    }
