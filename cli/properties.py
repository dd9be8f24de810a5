"""-X key=value: how a command protects its connection, in Kafka's property names.

    -X security.protocol=SASL_SSL -X ssl.ca.location=ca.pem
    -X sasl.mechanism=SCRAM-SHA-512 -X sasl.username=alice -X sasl.password=env:PASSWORD

And by which protocol its member of a group speaks, where it has one: group.protocol and
group.remote.assignor.  Other commands take them too, as a context may say them for all.

A command line can be read by everybody on the machine, so a secret (sasl.password,
sasl.jaas.config, sasl.oauthbearer.client.secret, ssl.key.password) may be named instead of said:
`env:VARIABLE`, or `file:PATH`, whose last newline does not count.  Names are resolved when a
connection is made.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from segbroker.protocol.oauthbearer import OAUTHBEARER

from .exit_codes import ExitCode
from .failures import Failure

if TYPE_CHECKING:
    from segbroker.client import Security
    from segbroker.client.settings import GroupOptions

SECRET_BYTES_MAX: Final = 64 << 10
_MECHANISM: Final = ("mechanism", "mechanisms")
_TOKEN_JAAS: Final = 'OAuthBearerLoginModule required clientId="c" clientSecret="s";'
_META: Final = "segbroker.properties"
_OF_GROUPS: Final = ("group.protocol", "group.remote.assignor")
_PROTOCOLS: Final = ("classic", "consumer")


def parse_properties(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> dict[str, str]:
    """The -X of a command line; checked, so that a mistake is said before anything is done."""
    properties: dict[str, str] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key:
            # Not the text: it may be a password.
            told = f"not KEY=VALUE (it has {len(text)} characters; not shown, as it may be secret)"
            raise click.BadParameter(told, ctx, param)
        properties[key.strip()] = value
    if properties and not ctx.resilient_parsing:
        try:
            check_names(properties)
        except Failure as exc:
            raise click.UsageError(str(exc), ctx) from exc
    return properties


def remember(ctx: click.Context, properties: Mapping[str, str]) -> None:
    """For `security`: what the command connects with."""
    ctx.meta[_META] = dict(properties)


def security() -> "Security | None":
    """What the connections of the running command are protected with; None: nothing.

    Raises Failure: values that do not go together, a secret that is not where it is said to be.
    """
    return make_security(resolved())


def resolved() -> dict[str, str]:
    """The properties of the running command, secrets looked up.  Raises Failure."""
    properties = click.get_current_context().meta.get(_META, {})
    return {key: resolve(key, value) for key, value in properties.items()}


def group_options() -> "GroupOptions":
    """What the running command was told of how its member of a group speaks.  Raises Failure."""
    given = resolved()
    assignor = given.get("group.remote.assignor")
    if given.get("group.protocol", "classic").lower() == "consumer":
        return {"group_protocol": "consumer", "group_remote_assignor": assignor}
    if assignor is not None:
        raise Failure("-X: group.remote.assignor is for group.protocol=consumer", ExitCode.USAGE)
    return {}


def make_security(properties: Mapping[str, str]) -> "Security | None":
    """From properties without names of secrets.  Raises Failure."""
    from segbroker.client import Security

    others = {key: value for key, value in properties.items() if key not in _OF_GROUPS}
    try:
        return Security.from_properties(others)
    except ValueError as exc:
        raise Failure(f"-X: {exc}", ExitCode.USAGE, "docs/security.md has examples") from exc


def check_names(properties: Mapping[str, str]) -> None:
    """Raises Failure for what can be told to be wrong without the secrets."""
    from segbroker.client.security import SECRET_PROPERTIES

    protocol = properties.get("group.protocol", "classic")
    if protocol.lower() not in _PROTOCOLS:
        raise Failure(
            f"-X: group.protocol={protocol} is not {' or '.join(_PROTOCOLS)}", ExitCode.USAGE
        )
    harmless: dict[str, str] = {}
    for key, value in properties.items():
        hidden = "hidden"
        if key == "sasl.jaas.config" and is_reference(value):
            by_token = OAUTHBEARER in (properties.get(f"sasl.{name}") for name in _MECHANISM)
            hidden = _TOKEN_JAAS if by_token else 'username="u" password="p"'
        harmless[key] = hidden if key in SECRET_PROPERTIES and is_reference(value) else value
    if "security.protocol" in harmless:
        make_security(harmless)
        return
    # Part of what a context says the rest of: only the names are checked.
    make_security({"security.protocol": "PLAINTEXT", **harmless})


def with_whole_paths(properties: Mapping[str, str]) -> dict[str, str]:
    """The same, with files named so that they are found from any working directory."""
    from segbroker.client.security import FILE_PROPERTIES, SECRET_PROPERTIES

    whole: dict[str, str] = {}
    for key, value in properties.items():
        kind, _, name = value.partition(":")
        if key in FILE_PROPERTIES and value:
            value = str(Path(value).absolute())
        elif key in SECRET_PROPERTIES and kind == "file" and name:
            value = f"file:{Path(name).expanduser().absolute()}"
        whole[key] = value
    return whole


def is_reference(value: str) -> bool:
    """Whether it names a secret instead of being one."""
    return value.startswith(("env:", "file:"))


def resolve(key: str, value: str) -> str:
    """The value, or the secret that it names.  Raises Failure."""
    from segbroker.client.security import SECRET_PROPERTIES

    if key not in SECRET_PROPERTIES:
        return value
    kind, _, name = value.partition(":")
    if kind == "env" and name:
        found = os.environ.get(name)
        if found is None:
            raise Failure(f"{key}: the environment variable {name} is not set", ExitCode.USAGE)
        return found
    if kind == "file" and name:
        return read_secret(Path(name).expanduser(), key)
    return value


def read_secret(path: Path, what: str) -> str:
    """A secret in a file, without its last newline.  Raises Failure."""
    try:
        with path.open("rb") as file:
            data = file.read(SECRET_BYTES_MAX + 1)
    except OSError as exc:
        raise Failure(f"{what}: {path}: {exc.strerror or exc}", ExitCode.USAGE) from exc
    if len(data) > SECRET_BYTES_MAX:
        raise Failure(f"{what}: {path} has more than {SECRET_BYTES_MAX} bytes", ExitCode.USAGE)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Failure(f"{what}: {path} is not text", ExitCode.USAGE) from None
    return text.removesuffix("\n").removesuffix("\r")


def options(function: Any) -> Any:  # noqa: ANN401 - click's decorators
    """-X and --context, on every command that talks to a broker."""
    function = click.option(
        "--context",
        "context",
        metavar="NAME",
        envvar="SEGBROKER_CONTEXT",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=lambda ctx, _, value: ctx.meta.__setitem__("segbroker.context", value),
        help="Use this stored context, not the one in use; see `segbroker context`.",
    )(function)
    return click.option(
        "-X",
        "properties",
        metavar="KEY=VALUE",
        multiple=True,
        is_eager=True,
        expose_value=False,
        callback=lambda ctx, param, values: ctx.meta.__setitem__(
            "segbroker.given", parse_properties(ctx, param, values)
        ),
        help="TLS and login, by Kafka's property names (security.protocol, sasl.username, "
        "ssl.ca.location, …); secrets also as env:VARIABLE or file:PATH. May be repeated."
        " With consume --group also group.protocol, group.remote.assignor.",
    )(function)
