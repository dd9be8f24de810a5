"""`segbroker quota list | set | remove`.

An amount of bytes may have a unit (KiB, MiB, GiB) and is per second, as everything here.  What a
script would read goes to standard output (quotas, --json); that something was done is said on
standard error.
"""

import json
from collections.abc import Callable
from typing import Any, Final

import click

from segbroker.segments.settings.units import SIZES, split_unit

from .command import Group, bootstrap_option, note
from .exit_codes import ExitCode
from .failures import Failure
from .topic import echo_table, json_option, open_admin

# Flag, key on the wire, what it is.
KEYS: Final = (
    ("produce", "producer_byte_rate", "Bytes of produce requests."),
    ("consume", "consumer_byte_rate", "Bytes of fetched records."),
    ("requests", "request_rate", "Requests of any kind."),
    ("request-percentage", "request_percentage", "Time of the broker's loop; 100 is all of it."),
    ("mutations", "controller_mutation_rate", "Partitions created or deleted."),
    ("connections", "connection_creation_rate", "New connections, of an --ip alone."),
)
DEFAULT: Final = "*"


@click.group(cls=Group)
def quota() -> None:
    """List, set and remove quotas: how much clients may use per second.

    A client over its quota is throttled; only creating and deleting partitions is refused.

    \b
    Examples:
      segbroker quota set --user alice --produce 10MiB --consume 50MiB
      segbroker quota set --user '*' --requests 500
    """


def entity_options(command: Callable[..., None]) -> Callable[..., None]:
    """Whom it is about."""
    for option in (
        click.option("--ip", metavar="ADDRESS", help="An address; * is every other one."),
        click.option("--client-id", metavar="NAME", help="A client id; * is every other one."),
        click.option("--user", metavar="NAME", help="A user; * is every other one."),
    ):
        command = option(command)
    return command


def _entity(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    named = {"user": user, "client-id": client_id, "ip": ip}
    return {
        kind: None if name == DEFAULT else name for kind, name in named.items() if name is not None
    }


def _amount(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    number, size = split_unit(value, SIZES)
    try:
        return float(number) * size
    except ValueError:
        raise click.BadParameter(f"{value!r} is not an amount: 500, 2.5, 10MiB") from None


def value_options(command: Callable[..., None]) -> Callable[..., None]:
    """How much."""
    for flag, key, text in reversed(KEYS):
        option = click.option(f"--{flag}", key, metavar="AMOUNT", callback=_amount, help=text)
        command = option(command)
    return command


def _name(kind: str, name: str | None) -> str:
    return f"{kind} {DEFAULT if name is None else name}"


@quota.command("list")
@entity_options
@json_option
@bootstrap_option
def list_(
    user: str | None, client_id: str | None, ip: str | None, as_json: bool, bootstrap: str
) -> None:
    """List the quotas, of all or of one.

    \b
    Example:
      segbroker quota list --user alice
    """
    with open_admin(bootstrap) as admin:
        found = admin.list_quotas(_entity(user, client_id, ip))
    if as_json:
        rows = [{"entity": dict(row.entity), "values": dict(row.values)} for row in found]
        click.echo(json.dumps(rows, indent=2))
        return
    table = [
        (", ".join(_name(kind, name) for kind, name in row.entity.items()), key, f"{value:,.10g}")
        for row in found
        for key, value in sorted(row.values.items())
    ]
    echo_table(("of", "quota", "per second"), sorted(table), {2})


@quota.command("set")
@entity_options
@value_options
@bootstrap_option
def set_(
    user: str | None, client_id: str | None, ip: str | None, bootstrap: str, **values: float | None
) -> None:
    """Set quotas of a user, a client id, both together, or an address.

    They are in force when the command returns; what is not named stays as it is.

    \b
    Examples:
      segbroker quota set --user alice --produce 10MiB --consume 50MiB
      segbroker quota set --user '*' --client-id '*' --requests 500
      segbroker quota set --ip 10.0.0.7 --connections 5
    """
    changes = {key: value for key, value in values.items() if value is not None}
    entity = _checked(user, client_id, ip)
    if not changes:
        raise click.UsageError("how much? " + ", ".join(f"--{flag}" for flag, _, _ in KEYS))
    with open_admin(bootstrap) as admin:
        admin.alter_quotas(entity, changes)
    note(f"set {', '.join(changes)}")


@quota.command()
@entity_options
@bootstrap_option
def remove(user: str | None, client_id: str | None, ip: str | None, bootstrap: str) -> None:
    """Remove every quota of a user, client id, both, or an address.

    \b
    Example:
      segbroker quota remove --user alice
    """
    entity = _checked(user, client_id, ip)
    with open_admin(bootstrap) as admin:
        keys = [
            key for row in admin.list_quotas(entity) if row.entity == entity for key in row.values
        ]
        if not keys:
            whose = " and ".join(_name(kind, name) for kind, name in entity.items())
            hint = "segbroker quota list shows them"
            raise Failure(f"{whose}: no quota is set", ExitCode.NOT_FOUND, hint)
        admin.alter_quotas(entity, dict.fromkeys(keys))
    note(f"removed {', '.join(sorted(keys))}")


def _checked(user: str | None, client_id: str | None, ip: str | None) -> dict[str, Any]:
    entity = _entity(user, client_id, ip)
    if not entity:
        raise click.UsageError("for whom? give --user, --client-id, or --ip; * is every other one")
    return entity
