"""`segbroker acl list | add | remove`.

A name that ends in `*` is a prefix, `*` alone is every one:

    --topic flights       the topic flights
    --topic 'flights*'    every topic whose name begins with flights
    --topic '*'           every topic

What a script would read goes to standard output (rules, --json); that something was done is said
on standard error.
"""

import json
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import click

from .asking import ask, require_terminal, yes_option
from .command import Group, bootstrap_option, note
from .exit_codes import ExitCode
from .failures import Failure
from .topic import echo_table, json_option, open_admin
from .words import plural

if TYPE_CHECKING:
    from segbroker.client import Acl

OPERATIONS: Final = (
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
    "cluster_action",
    "all",
)
CLUSTER: Final = "kafka-cluster"
HEAD: Final = ("principal", "host", "permission", "operation", "on", "name")


@click.group(cls=Group)
def acl() -> None:
    """List, add and remove access rules: who may do what.

    They apply on a broker that was started with authorizer = acl.

    \b
    Examples:
      segbroker acl add --principal User:alice --operation read --topic 'flights*' --group '*'
      segbroker acl list --principal User:alice
    """


def resource_options(command: Callable[..., None]) -> Callable[..., None]:
    """What the rules are about."""
    for option in (
        click.option("--cluster", is_flag=True, help="The broker itself: its settings and rules."),
        click.option(
            "--transactional-id", "transactional_ids", metavar="NAME", multiple=True,
            help="A transactional id; NAME* a prefix, * every one. Repeatable.",
        ),
        click.option(
            "--group", "groups", metavar="NAME", multiple=True,
            help="A consumer group; NAME* a prefix, * every one. Repeatable.",
        ),
        click.option(
            "--topic", "topics", metavar="NAME", multiple=True,
            help="A topic; NAME* a prefix, * every one. Repeatable.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def _resources(
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
) -> list[tuple[str, str, str]]:
    """Kind, name and pattern of each resource that was named."""
    found = [
        (kind, *_pattern(name))
        for kind, names in (
            ("topic", topics),
            ("group", groups),
            ("transactional_id", transactional_ids),
        )
        for name in names
    ]
    return [*found, ("cluster", CLUSTER, "literal")] if cluster else found


def _pattern(name: str) -> tuple[str, str]:
    if len(name) > 1 and name.endswith("*"):
        return name[:-1], "prefixed"
    return name, "literal"


def _row(rule: "Acl") -> tuple[str, ...]:
    name = rule.resource_name
    if rule.pattern == "prefixed":
        name += "*"
    elif _pattern(name)[1] == "prefixed":  # `kafka-acls.sh --topic 'flights*'` makes such
        name += " (literal)"
    host = "any" if rule.host == "*" else rule.host
    return rule.principal, host, rule.permission, rule.operation, rule.resource_type, name


def _checked_principal(
    ctx: click.Context, param: click.Parameter, value: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    for one in (value,) if isinstance(value, str) else value or ():
        kind, colon, name = one.partition(":")
        if not (kind and colon and name):
            raise click.BadParameter(f"{one!r}: write User:{one.strip(':') or 'NAME'}")
    return value


@acl.command("list")
@click.option(
    "--principal",
    metavar="User:NAME",
    callback=_checked_principal,
    help="Only rules of this principal.",
)
@resource_options
@json_option
@bootstrap_option
def list_(
    principal: str | None,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """List the access rules, one per line.

    With a name, every rule that concerns it: rules for it, for a prefix of it, and for all.

    \b
    Examples:
      segbroker acl list
      segbroker acl list --topic flights-eu
    """
    from segbroker.client import AclFilter

    named = _resources(topics, groups, transactional_ids, cluster)
    filters = [
        AclFilter(
            principal=principal,
            resource_type=kind,
            resource_name=name,
            pattern="match" if pattern == "literal" and name != "*" else pattern,
        )
        for kind, name, pattern in named
    ] or [AclFilter(principal=principal)]
    with open_admin(bootstrap) as admin:
        rules = sorted({rule for which in filters for rule in admin.list_acls(which)})
    if as_json:
        click.echo(json.dumps([rule._asdict() for rule in rules], indent=2))
        return
    echo_table(HEAD, [_row(rule) for rule in rules], set())


def _checked_hosts(
    ctx: click.Context, param: click.Parameter, hosts: tuple[str, ...]
) -> tuple[str, ...]:
    """A rule for a name or a network would be stored, as by Kafka, and never apply."""
    for host in hosts:
        try:
            if host != "*":
                ip_address(host)
        except ValueError:
            problem = f"{host!r} is no address; a rule is for single ones, or for all: '*'"
            raise click.BadParameter(problem) from None
    return hosts


@acl.command()
@click.option(
    "--principal", "principals", metavar="User:NAME", multiple=True, required=True,
    callback=_checked_principal,
    help="Who: User:alice, User:ANONYMOUS, or User:* for everybody. Repeatable.",
)  # fmt: skip
@click.option(
    "--operation", "operations", metavar="OPERATION",
    type=click.Choice(OPERATIONS, case_sensitive=False), multiple=True, required=True,
    help=f"What: {', '.join(OPERATIONS)}. Reading, writing, deleting and altering include"
    " describing. Repeatable.",
)  # fmt: skip
@resource_options
@click.option(
    "--host", "hosts", metavar="ADDRESS", multiple=True, default=("*",), callback=_checked_hosts,
    help="From where: an address as the broker sees it. Repeatable; all by default.",
)  # fmt: skip
@click.option("--deny", is_flag=True, help="Forbid it: wins over everything that allows.")
@bootstrap_option
def add(
    principals: tuple[str, ...],
    operations: tuple[str, ...],
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    hosts: tuple[str, ...],
    deny: bool,
    bootstrap: str,
) -> None:
    """Add access rules.

    There is one rule for each principal, operation and resource that is given. They are in force
    when the command returns. A rule that exists already stays.

    \b
    Examples:
      segbroker acl add --principal User:alice --operation read --topic 'flights*' --group '*'
      segbroker acl add --principal User:bob --operation write --topic orders --host 10.0.0.7
      segbroker acl add --principal 'User:*' --operation all --topic secret --deny
    """
    from segbroker.client import Acl

    named = _resources(topics, groups, transactional_ids, cluster)
    if not named:
        raise click.UsageError("on what? --topic, --group, --transactional-id or --cluster")
    rules = [
        Acl(principal, operation, kind, name, pattern, host, "deny" if deny else "allow")
        for principal in principals
        for operation in operations
        for kind, name, pattern in named
        for host in hosts
    ]
    with open_admin(bootstrap) as admin:
        admin.create_acls(rules)
    note(f"added {plural(len(rules), 'rule')}")


@acl.command()
@click.option(
    "--principal",
    metavar="User:NAME",
    callback=_checked_principal,
    help="Only rules of this principal.",
)
@click.option(
    "--operation",
    metavar="OPERATION",
    type=click.Choice(OPERATIONS, case_sensitive=False),
    help="Only rules about this operation.",
)
@resource_options
@click.option("--host", metavar="ADDRESS", help="Only rules about this address.")
@click.option("--all", "everything", is_flag=True, help="All rules.")
@yes_option
@bootstrap_option
def remove(
    principal: str | None,
    operation: str | None,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    host: str | None,
    everything: bool,
    yes: bool,
    bootstrap: str,
) -> None:
    """Remove access rules, and print the removed ones.

    A rule is removed if it matches every option that is given. A name matches only rules with
    exactly this name: 'flights*' matches the rule for the prefix flights, not one for flights-eu.
    With --all and nothing else it asks first: only super users may do anything afterwards.

    \b
    Examples:
      segbroker acl remove --principal User:alice
      segbroker acl remove --principal User:bob --operation write --topic orders
    """
    from segbroker.client import AclFilter

    named = _resources(topics, groups, transactional_ids, cluster)
    given: dict[str, Any] = {
        "principal": principal,
        "operation": operation or "any",
        "host": host,
    }
    is_about_some = bool(named or principal or operation or host)
    if not (is_about_some or everything):
        raise click.UsageError("which? name a principal, operation, resource or host, or --all")
    filters = [
        AclFilter(resource_type=kind, resource_name=name, pattern=pattern, **given)
        for kind, name, pattern in named
    ] or [AclFilter(**given)]
    must_ask = not (is_about_some or yes)
    if must_ask:
        require_terminal("--yes")
    with open_admin(bootstrap) as admin:
        if must_ask and (count := len(admin.list_acls())):
            ask("remove", f"all {plural(count, 'access rule')}")
        gone = sorted({rule for which in filters for rule in admin.delete_acls(which)})
    if not gone:
        raise Failure("no rule matches", ExitCode.NOT_FOUND, "segbroker acl list shows them")
    note(f"removed {plural(len(gone), 'rule')}")
    echo_table(HEAD, [_row(rule) for rule in gone], set())
