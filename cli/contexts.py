"""Stored brokers: addresses and -X properties under a name, one of them in use.

    $XDG_CONFIG_HOME/segbroker/contexts.json   (~/.config without the variable), mode 0600

    {"current": "prod", "contexts": {"prod": {"bootstrap": "…", "properties": {"…": "…"}}}}

What a command connects to:

| given                                   | broker       | properties                  |
|-----------------------------------------|--------------|-----------------------------|
| --context NAME, SEGBROKER_CONTEXT       | of NAME      | of NAME, then -X            |
| -b or SEGBROKER_BOOTSTRAP               | that         | -X alone                    |
| neither, and a context is in use        | of that one  | of that one, then -X        |
| nothing                                 | the default  | -X alone                    |

So the password of one broker is never sent to another that was named on the command line: -b beside
a context that was named is an error, SEGBROKER_BOOTSTRAP has no meaning then.  A file
that others can read is refused when it holds a password itself and not only where it is.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from .exit_codes import ExitCode
from .failures import Failure
from .properties import is_reference

FILE_BYTES_MAX: Final = 1 << 20
CONTEXTS_MAX: Final = 1_000


@dataclass(frozen=True)
class Context:
    """One stored broker."""

    bootstrap: str
    properties: dict[str, str]


@dataclass
class Contexts:
    """All of them, and which is in use."""

    current: str | None = None
    by_name: dict[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        """Raises Failure: there is none of this name."""
        found = self.by_name.get(name)
        if found is None:
            raise Failure(
                f"there is no context {name!r}", ExitCode.NOT_FOUND, "segbroker context list"
            )
        return found


def path() -> Path | None:
    """Where they are stored; None for a user without a home."""
    base = os.environ.get("XDG_CONFIG_HOME")
    try:
        folder = Path(base) if base else Path.home() / ".config"
    except RuntimeError:  # no HOME, and a number that is nobody's
        return None
    return folder / "segbroker" / "contexts.json"


def load() -> Contexts:
    """What is stored; nothing where there is no file.  Raises Failure, OSError."""
    where = path()
    if where is None:
        return Contexts()
    try:
        with where.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return Contexts()
    try:
        if len(data) > FILE_BYTES_MAX:
            raise ValueError(f"more than {FILE_BYTES_MAX} bytes")
        contexts = _parsed(json.loads(data))
    except (ValueError, RecursionError) as exc:
        hint = "correct it, or remove it and add the contexts again"
        raise Failure(f"{where} cannot be read: {exc}", ExitCode.CONFIG, hint) from exc
    if mode & 0o077 and any(_holds_secret(one) for one in contexts.by_name.values()):
        raise Failure(
            f"{where} holds a password and can be read by others",
            ExitCode.CONFIG,
            f"chmod 600 {where}",
        )
    return contexts


@contextmanager
def changing() -> Iterator[Contexts]:
    """What is stored, to be changed: saved when the block is left in order.

    One at a time: who changes them at the same moment waits.  Raises Failure, OSError.
    """
    where = path()
    if where is None:
        hint = "XDG_CONFIG_HOME names a directory to store them in"
        raise Failure("there is no home directory", ExitCode.SYSTEM, hint)
    where.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A file of its own: the one with the contexts is replaced.
    lock = os.open(where.with_name(".contexts.lock"), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        contexts = load()
        yield contexts
        _save(contexts, where)
    finally:
        os.close(lock)


def _save(contexts: Contexts, where: Path) -> None:
    """Replace what is stored; nobody else may read it, at no time.  Raises OSError."""
    stored = {
        "current": contexts.current,
        "contexts": {
            name: {"bootstrap": one.bootstrap, "properties": one.properties}
            for name, one in sorted(contexts.by_name.items())
        },
    }
    new = where.with_name(f".{where.name}.{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(stored, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(where)
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, str(new)) from exc
    finally:
        new.unlink(missing_ok=True)  # half of it, which may be a password


def chosen(ctx: click.Context, *, is_bootstrap_given: bool) -> Context | None:
    """The context that a command uses; None: none.  Raises Failure, OSError."""
    name = ctx.meta.get("segbroker.context")
    if name is not None:
        return load().get(name)
    if is_bootstrap_given:
        return None
    contexts = load()
    return None if contexts.current is None else contexts.get(contexts.current)


def _parsed(stored: object) -> Contexts:
    """From JSON.  One in use that is not there stays so: a command that went to the default broker
    instead would go to another one than its user means.  Raises ValueError."""
    by_name = {}
    whole = _object(stored, "the whole of it")
    for name, row in _object(whole.get("contexts"), "'contexts'").items():
        one = _object(row, f"context {name!r}")
        properties = _object(one.get("properties"), f"'properties' of context {name!r}")
        bootstrap = one.get("bootstrap")
        is_text = all(isinstance(text, str) for text in properties.values())
        if not (isinstance(bootstrap, str) and is_text):
            raise ValueError(f"context {name!r} has a value that is not text")
        by_name[name] = Context(bootstrap, properties)
    current = whole.get("current")
    if not isinstance(current, str | None):
        raise ValueError("'current' is no name")
    return Contexts(current, by_name)


def _object(value: object, what: str) -> dict[str, Any]:
    """As JSON calls it.  Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no JSON object")
    return value


def _holds_secret(context: Context) -> bool:
    from segbroker.client.security import SECRET_PROPERTIES

    return any(
        key in SECRET_PROPERTIES and not is_reference(value)
        for key, value in context.properties.items()
    )
