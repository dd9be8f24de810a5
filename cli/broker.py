"""`segbroker broker status | describe | alter`: a broker that is running, and its settings.

What a script would read goes to standard output (state, settings, --json); that something was done
is said on standard error.
"""

import json
from typing import TYPE_CHECKING, Final

import click

from .broker_status import concerns, status_lines
from .command import Group, bootstrap_option, note
from .exit_codes import ExitCode
from .topic import (
    changes_of,
    check_known,
    echo_table,
    json_option,
    open_admin,
    settings_option,
)

if TYPE_CHECKING:
    from segbroker.client import Admin

_FROM: Final = {
    "broker": "set here",
    "every broker": "set for all",
    "start": "flag, variable or file",
}


@click.group(cls=Group)
def broker() -> None:
    """Show the state of a running broker; describe and change its settings.

    \b
    Examples:
      segbroker broker status
      segbroker broker describe
      segbroker broker alter -c connections_per_ip_max=100 -c log_level=debug
    """


@broker.command()
@click.option("--check", is_flag=True, help="Exit with code 11 if there is a problem.")
@json_option
@bootstrap_option
@click.pass_context
def status(ctx: click.Context, check: bool, as_json: bool, bootstrap: str) -> None:
    """Show the state of a broker: problems first, then its numbers.

    With --json everything that the broker tells of itself, times in milliseconds.

    \b
    Examples:
      segbroker broker status
      segbroker broker status --json | jq .scrub
      segbroker broker status --check > /dev/null || echo look
    """
    with open_admin(bootstrap) as admin:
        info = admin.broker_status()
    if as_json:
        click.echo(json.dumps(info, indent=2))
    else:
        for line in status_lines(info):
            click.echo(line)
    if check and any(concerns(info)):
        ctx.exit(ExitCode.ATTENTION)


every_option = click.option(
    "--every", is_flag=True, help="The values for all brokers that have none of their own."
)


@broker.command()
@every_option
@click.option(
    "-a", "--all", "everything", is_flag=True, help="Also settings that have their default."
)
@click.option("-v", "--verbose", is_flag=True, help="Say what each setting means.")
@json_option
@bootstrap_option
def describe(every: bool, everything: bool, verbose: bool, as_json: bool, bootstrap: str) -> None:
    """Describe the settings of a broker: what is set, and where.

    \b
    Examples:
      segbroker broker describe
      segbroker broker describe --all --verbose
    """
    with open_admin(bootstrap) as admin:
        found = admin.describe_broker(None if every else _broker_id(admin))
    told = {
        key: setting for key, setting in found.items() if everything or setting.source != "default"
    }
    if as_json:
        click.echo(json.dumps({key: setting._asdict() for key, setting in told.items()}, indent=2))
        return
    rows = [
        (
            key,
            "(secret)" if setting.value is None else setting.value,
            _FROM.get(setting.source, setting.source),
            "by a restart" if setting.is_read_only else "while running",
            setting.documentation or "",
        )
        for key, setting in told.items()
    ]
    width = 5 if verbose else 4
    head = ("setting", "value", "from", "changes", "meaning")[:width]
    echo_table(head, [row[:width] for row in rows], numbers=frozenset())


@broker.command()
@settings_option("broker", "describe --all")
@click.option(
    "--unset",
    metavar="KEY",
    multiple=True,
    help="Remove a changed value; the one below it applies again.",
)
@every_option
@bootstrap_option
def alter(settings: dict[str, str], unset: tuple[str, ...], every: bool, bootstrap: str) -> None:
    """Change settings of a broker while it runs.

    A change is in force when the command returns, and holds after a restart as well.

    \b
    Examples:
      segbroker broker alter -c connections_per_ip_max=100
      segbroker broker alter --unset connections_per_ip_max
    """
    changes = changes_of(settings, unset)
    if not changes:
        raise click.UsageError("nothing to change; give -c or --unset")
    with open_admin(bootstrap) as admin:
        target = _broker_id(admin)
        if unset:
            check_known("broker", unset, _names(admin, target, every=every))
        admin.alter_broker_config(changes, broker_id=None if every else target)
    note(f"changed {', '.join(changes)}")


def _names(admin: "Admin", broker_id: int, *, every: bool) -> set[str]:
    """Of every setting that there is, or is still stored, all that it is called."""
    from segbroker.broker.configuration.kafka_settings import KAFKA_SETTINGS

    found = admin.describe_broker(broker_id) | (admin.describe_broker(None) if every else {})
    others = {one.other_name for one in found.values() if one.other_name is not None}
    return {*found, *others, *KAFKA_SETTINGS}


def _broker_id(admin: "Admin") -> int:
    """The broker that decides: of segbroker's there is one."""
    return admin.describe_cluster().controller
