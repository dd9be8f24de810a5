"""`segbroker context add | use | list | remove`: brokers by name; contexts.py has the rules."""

import json
from collections.abc import Mapping

import click

from . import contexts
from .command import Group, note
from .contexts import CONTEXTS_MAX, Context
from .exit_codes import ExitCode
from .failures import Failure
from .properties import check_names, parse_properties, with_whole_paths


@click.group(cls=Group)
def context() -> None:
    """Store brokers under a name, with their TLS and login.

    \b
    Example:
      segbroker context add prod --bootstrap broker:9093 -X security.protocol=SSL
    """


@context.command()
@click.argument("name")
@click.option("-b", "--bootstrap", metavar="HOST:PORT", required=True, help="The broker.")
@click.option(
    "-X",
    "properties",
    metavar="KEY=VALUE",
    multiple=True,
    callback=parse_properties,
    help="TLS and login, by Kafka's property names; secrets better as env:VARIABLE or file:PATH.",
)
@click.option("--force", is_flag=True, help="Replace a context of this name.")
def add(name: str, bootstrap: str, properties: dict[str, str], force: bool) -> None:
    """Store the context NAME; the first one is in use at once.

    \b
    Example:
      segbroker context add prod --bootstrap broker:9093 -X security.protocol=SASL_SSL \\
        -X sasl.mechanism=SCRAM-SHA-512 -X sasl.username=alice -X sasl.password=file:~/.secret
    """
    from segbroker.client.settings import parse_bootstrap

    try:
        parse_bootstrap(bootstrap)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--bootstrap") from exc
    check_names(properties)
    if not name.strip():
        raise click.BadParameter("the name must not be empty", param_hint="NAME")
    with contexts.changing() as stored:
        if name in stored.by_name and not force:
            raise Failure(f"there is a context {name!r}", ExitCode.REFUSED, "--force replaces it")
        if len(stored.by_name) >= CONTEXTS_MAX:
            raise Failure(f"there are {CONTEXTS_MAX} contexts", ExitCode.REFUSED)
        stored.by_name[name] = Context(bootstrap, with_whole_paths(properties))
        stored.current = stored.current or name
    note(f"stored context {name}" + (", in use" if stored.current == name else ""))


@context.command()
@click.argument("name", required=False)
@click.option("--none", "nothing", is_flag=True, help="Use no context.")
def use(name: str | None, nothing: bool) -> None:
    """Use the context NAME from now on.

    \b
    Examples:
      segbroker context use prod
      segbroker context use --none
    """
    if (name is None) != nothing:
        raise click.UsageError("a NAME, or --none")
    with contexts.changing() as stored:
        if name is not None:
            stored.get(name)
        stored.current = name
    note(f"context {name} is in use" if name else "no context is in use")


@context.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def list_(as_json: bool) -> None:
    """List the contexts, the one in use with a star. Passwords are not shown.

    \b
    Example:
      segbroker context list
    """
    from .topic import echo_table

    stored = contexts.load()
    rows = [
        (
            "*" if name == stored.current else "",
            name,
            one.bootstrap,
            one.properties.get("security.protocol", "PLAINTEXT").upper(),
            _user(one.properties),
        )
        for name, one in sorted(stored.by_name.items())
    ]
    head = ("", "name", "bootstrap", "protocol", "user")
    if as_json:
        keys = ("name", "bootstrap", "protocol", "user")
        click.echo(
            json.dumps(
                [{**dict(zip(keys, row[1:], strict=True)), "in_use": bool(row[0])} for row in rows]
            )
        )
    elif rows:
        echo_table(head, rows, numbers=frozenset())


def _user(properties: Mapping[str, str]) -> str:
    """Who logs in: a user, or a client that gets tokens."""
    from segbroker.client.security import CLIENT_ID_PROPERTIES

    names = ("sasl.username", *CLIENT_ID_PROPERTIES)
    return next((properties[name] for name in names if name in properties), "")


@context.command()
@click.argument("name")
def remove(name: str) -> None:
    """Delete the context NAME.

    \b
    Example:
      segbroker context remove prod
    """
    with contexts.changing() as stored:
        stored.get(name)
        del stored.by_name[name]
        if stored.current == name:
            stored.current = None
    note(f"removed context {name}")
